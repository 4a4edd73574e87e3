"""The time of a loss in a tagger, relative to a BiLSTM and to other packages.

The network is an embedding, a 2-layer BiLSTM-256 and a linear layer on batches of 64 sequences of
length 20 and 40 (--quick: 20).  "share" is the time of a step (value and gradient) of the
objective, divided by that of the network.  "ratio" is the time of a step of another package,
divided by that of our objective on the same input.  CTC has rows of its own, whose labels are those
of the frames: 8 items of 1,500 frames and 250 labels (--quick: 300 and 50).

    python benchmarks/torch_users.py [--quick] [--json FILE]
"""

from _harness import interleaved_medians, one_thread, run

one_thread()

import itertools  # noqa: E402
import warnings  # noqa: E402

import torch  # noqa: E402

import fstgrad as fg  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402

BATCH, BEAM = 64, 8


class Tagger(torch.nn.Module):
    """A BiLSTM that computes emissions (B, T, n) of words (B, T)."""

    def __init__(self, labels):
        super().__init__()
        self.embed = torch.nn.Embedding(1000, 256)
        self.lstm = torch.nn.LSTM(256, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.emit = torch.nn.Linear(256, labels)

    def forward(self, words):
        return self.emit(self.lstm(self.embed(words))[0])


def levenshtein(y, target):
    """Return the edit distance in plain Python, as training scripts compute it."""
    row = list(range(len(target) + 1))
    for i, symbol in enumerate(y, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(target, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (symbol != other))
    return row[-1]


def inputs(labels, length):
    """Return emissions and transitions, which require gradients, tags, and a beam per item."""
    torch.manual_seed(0)
    emissions = torch.randn(BATCH, length, labels, requires_grad=True)
    transitions = torch.randn(labels, labels, requires_grad=True)
    tags = torch.randint(labels, (BATCH, length))
    beam = tags[:, None].repeat(1, BEAM, 1)
    wrong = torch.rand(beam.shape) < 0.15
    beam = torch.where(wrong, torch.randint(labels, beam.shape), beam)
    return emissions, transitions, tags, beam


def objectives(labels, length):
    """Return {name: step} of the objectives of this package."""
    emissions, transitions, tags, beam = inputs(labels, length)
    scores = torch.randn(BATCH, BEAM, requires_grad=True)
    edit = fg.EditDistance(fg.Alphabet(f"t{i}" for i in range(labels)))
    hamming = fg.Hamming(edit.alphabet)
    layer = fgt.nn.CRF(labels, batch_first=True)

    def step(value):
        def call():
            emissions.grad = transitions.grad = scores.grad = None
            layer.zero_grad()
            value().backward()

        return call

    return {
        "CRF": step(lambda: fgt.CRF(emissions, transitions).nll(tags)),
        "nn.CRF": step(lambda: -layer(emissions, tags, reduction="mean")),
        "Hamming margin": step(lambda: fgt.softmax_margin(emissions, tags, hamming)),
        "edit margin, cap 3": step(lambda: fgt.softmax_margin(emissions, tags, edit, cap=3.0)),
        "edit margin, band 1": step(lambda: fgt.softmax_margin(emissions, tags, edit, band=1)),
        "edit risk, band 1": step(lambda: fgt.risk(emissions, tags, edit, band=1)),
        "n-best risk": step(lambda: fgt.nbest_risk(scores, beam, tags, edit)),
    }


def competitors(labels, length):
    """Return {name: (our objective, step)} of other packages."""
    emissions, transitions, tags, beam = inputs(labels, length)
    scores = torch.randn(BATCH, BEAM, requires_grad=True)
    found = {}

    def plain_nbest():
        scores.grad = None
        rows = zip(beam.tolist(), tags.tolist(), strict=True)
        losses = torch.tensor([[levenshtein(y, own) for y in ys] for ys, own in rows])
        (torch.softmax(scores, 1) * losses).sum(1).mean().backward()

    found["plain n-best"] = ("n-best risk", plain_nbest)
    try:
        from torchcrf import CRF
    except ImportError:
        pass
    else:
        theirs = CRF(labels, batch_first=True)

        def crf_step():
            emissions.grad = None
            theirs.zero_grad()
            (-theirs(emissions, tags, reduction="mean")).backward()

        found["pytorch-crf"] = ("nn.CRF", crf_step)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch_struct import LinearChainCRF
    except ImportError:
        return found

    def struct_step():
        emissions.grad = transitions.grad = None
        edges = emissions[:, 1:, :, None] + transitions.T
        first = torch.nn.functional.pad(emissions[:, :1, None, :], (0, 0, 0, 0, 0, length - 2))
        chain = LinearChainCRF((edges + first).contiguous())
        parts = LinearChainCRF.struct.to_parts(tags, labels)
        (-chain.log_prob(parts.contiguous().type_as(emissions))).mean().backward()

    if 8 * BATCH * length * labels**3 > 2**29:  # bytes of its chart; a step takes seconds
        return found
    return found | {"torch-struct": ("CRF", struct_step)}


def decoders(labels, length):
    """Return {name: call} of decoding to lists, by this package and by pytorch-crf if installed."""
    emissions, transitions, *_ = (tensor.detach() for tensor in inputs(labels, length))
    ours = fgt.nn.CRF(labels, batch_first=True)
    with torch.no_grad():
        ours.transitions.copy_(transitions)
    found = {"decode": lambda: ours.decode(emissions)}
    try:
        from torchcrf import CRF
    except ImportError:
        return found
    theirs = CRF(labels, batch_first=True)
    theirs.load_state_dict(ours.state_dict())
    return found | {"decode, pytorch-crf": lambda: theirs.decode(emissions)}


def ctc(quick):
    """Return {name: step} of the likelihood of CTC: ours, and PyTorch's from log-probabilities."""
    frames, size, labels, items = (300, 50, 30, 8) if quick else (1500, 250, 30, 8)
    torch.manual_seed(0)
    scores = torch.randn(items, frames, labels, requires_grad=True)
    log_p = scores.detach().log_softmax(2).transpose(0, 1).contiguous().requires_grad_()
    gold = torch.randint(1, labels, (items, size))
    sizes = torch.full((items,), frames), torch.full((items,), size)

    def ours():
        scores.grad = None
        fgt.ctc_nll(scores, gold).backward()

    def theirs():
        log_p.grad = None
        torch.nn.functional.ctc_loss(log_p, gold, *sizes).backward()

    return (labels, frames), {
        "CTC": ours,
        "PyTorch's CTC loss": theirs,
        "CTC, best path": lambda: fgt.ctc_align(scores, gold),
    }


def row(cell, name, seconds, network, other=None, threads=1):
    labels, length = cell
    return {
        "labels": labels,
        "length": length,
        "objective": name,
        "threads": threads,
        "seconds": seconds,
        "share of BiLSTM": None if network is None else seconds / network,
        "ratio to ours": None if other is None else seconds / other,
    }


def rows(quick):
    repeat = 5 if quick else 11
    cell, steps = ctc(quick)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        seconds = interleaved_medians(steps, repeat=repeat)
        for name, value in seconds.items():
            yield row(cell, name, value, None, seconds["CTC"], threads)
    cells = itertools.product((10, 40) if quick else (10, 40, 200), (20,) if quick else (20, 40))
    for labels, length in cells:
        torch.set_num_threads(1)
        network, words = Tagger(labels), torch.randint(1000, (BATCH, length))
        tags, cell = inputs(labels, length)[2], (labels, length)

        def step(network=network, words=words, tags=tags):
            network.zero_grad()
            torch.nn.functional.cross_entropy(
                network(words).flatten(0, 1), tags.flatten()
            ).backward()

        ours, others, decoding = (f(*cell) for f in (objectives, competitors, decoders))
        calls = {"BiLSTM": step} | ours | {name: call for name, (_, call) in others.items()}
        seconds = interleaved_medians(calls | decoding, repeat=repeat)
        whole = seconds["BiLSTM"]
        for name in ("BiLSTM", *ours):
            yield row(cell, name, seconds[name], whole)
        for name, (mine, _) in others.items():
            yield row(cell, name, seconds[name], whole, seconds[mine])
        for name in decoding:
            yield row(cell, name, seconds[name], whole, seconds["decode"])
        torch.set_num_threads(2)
        double = interleaved_medians(ours | {"decode": decoding["decode"]}, repeat=repeat)
        for name, value in double.items():
            yield row(cell, name, value, whole, seconds[name], threads=2)


if __name__ == "__main__":
    run("Losses of a tagger beside its BiLSTM, batch 64", rows)
