"""The commands of `fstgrad`: a new command is a row here.

A module is imported only when one of its commands is called, so that `fstgrad --help` is fast.
"""

# command -> (module of `fstgrad.cli.commands` that has an object of this name, one line of help)
COMMANDS = {
    "grad": ("grad", "Compute the gradient of an objective over string pairs."),
    "risk": ("grad", "Compute the expected loss of string pairs or lattices."),
    "loss": ("loss", "Print the loss of column 1 against column 2."),
    "score": ("score", "Compute error rates of hypotheses: counts, intervals, comparisons."),
    "marginals": ("loss", "Print the gradient terms Q of one pair."),
    "grammar": ("grammar", "Write, test and explain losses as grammars; learn costs."),
    "align": ("loss", "Align the symbols of pairs by expectation maximization."),
    "train": ("train", "Train a sequence model on pairs."),
    "predict": ("predict", "Print the outputs of a trained model."),
    "evaluate": ("predict", "Compute accuracy, mean loss and error rate of a model."),
    "compare": ("predict", "Compare two models on the same pairs: error rates with intervals."),
    "report": ("report", "Write one HTML page about a run: tables, curves, worst pairs."),
    "completion": ("completion", "Print the completion script for bash, zsh or fish."),
    "doctor": ("doctor", "Print versions, and test OpenFst for silent errors."),
    "trees": ("trees", "Spanning trees: marginals, entropy, decoding, sampling."),
    "mrf": ("mrf", "Markov random fields in UAI files and on images."),
    "grm": ("grm", "Generalized root models of word counts."),
}
