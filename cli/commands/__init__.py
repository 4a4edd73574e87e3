"""The commands of `fstgrad`: the table below says which module has which command.

A module is imported only when one of its commands is called, so that `fstgrad --help` is fast.

Reading order
-------------
- `lattices`, `grad`, `loss` : objectives over pairs and over lattices; losses, marginals and
  alignments of pairs.
- `train`, `predict` : sequence models.
- `grm_tables`, `page`, `score_page`, `report` : tables of counts; HTML pages about runs.
- `score_systems`, `score` : error rates of hypotheses.
- `grammar_options`, `grammar_fit`, `grammar` : `fstgrad grammar`.
- `grm`, `trees`, `mrf` : the other families.
- `doctor`, `completion` : the installation.
"""

# command -> (module here that has an object of this name, one line of help)
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
