"""A BiLSTM with connectionist temporal classification (CTC), trained for a budget of CPU seconds.

The network reads x in both directions and predicts `LABELS` labels, which may be blanks, for each
symbol of x.  The learning rate falls linearly to zero over the budget.

With `Bigrams`, p(y | x) is p_CTC(y | x) exp(sum_k A[y_{k-1}, y_k]) / Z: the same network with one
more weight for each pair of labels, normalized over all strings y.  All A are zero at the start.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import fstgrad as fg
import fstgrad.torch as fgt

Symbols = tuple[str, ...]
Pairs = Sequence[tuple[Symbols, Symbols]]
LABELS = 2  # per symbol of x
BATCH = 32
RATE = 5e-3
BIGRAM_RATE = 5.0  # times RATE: each weight of a pair of labels is rarely in a gradient
HALF = 0.5  # of the seconds
WRONG = 3.0  # nats: the loss of a wrong string
SCALE = 4.0  # of the gradient of likelihood; with the risk, that of a pair with p = 1
Objective = Callable[[torch.Tensor], torch.Tensor]  # of -log p(y | x) of each item, in nats


class Network(nn.Module):
    """A BiLSTM that scores n labels: (B, LABELS |x|, n) for inputs (B, |x|); label 0 is blank."""

    def __init__(self, symbols: int, labels: int, hidden: int = 128, dropout: float = 0.3) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(2 * hidden, LABELS * labels)
        self.labels = labels

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the scores of labels; those after position LABELS * length are arbitrary."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.drop(self.embed(x)), lengths, batch_first=True, enforce_sorted=False
        )
        read, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(self.drop(read)).view(len(x), -1, self.labels)


class Bigrams(nn.Module):
    """The log-weights A (n, n) of pairs of labels in the collapsed string; row 0: the first label.

    A path is a chain of 2 n - 1 states: (last label, blank), or the label itself; label 0 stands
    for no label yet.  `fstgrad.torch.CRF` sums over all paths.
    """

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(labels, labels))

    def chain(self, scores: torch.Tensor, lengths: torch.Tensor) -> fgt.CRF:
        """Return the distribution of paths, by scores (B, T, n) of labels."""
        n = scores.shape[2]
        own = torch.eye(n, dtype=torch.bool)
        stay = torch.full((n, n), -torch.inf).masked_fill(own, 0.0)
        behind_blank = torch.cat([stay, self.table[:, 1:]], 1)
        behind_label = torch.cat([stay, self.table.masked_fill(own, 0.0)[:, 1:]], 1)
        blanks = scores[..., :1].expand(*scores.shape[:2], n)
        return fgt.CRF(
            torch.cat([blanks, scores[..., 1:]], 2),
            torch.cat([behind_blank, behind_label[1:]]),
            torch.arange(scores.shape[1]) < lengths[:, None],
            start=behind_blank[0],
        )

    def sums(self, gold: list[list[int]]) -> torch.Tensor:
        """Return the sum of the weights of each string (B,)."""
        rows = [(i, a, b) for i, y in enumerate(gold) for a, b in itertools.pairwise([0, *y])]
        item, first, second = torch.tensor(rows).T
        return self.table.new_zeros(len(gold)).index_add(0, item, self.table[first, second])

    def best(self, scores: torch.Tensor, lengths: torch.Tensor) -> list[list[int]]:
        """Return the labels, 0 for blanks, of the best path of each item."""
        n = scores.shape[2]
        states = self.chain(scores, lengths).decode()
        paths = (states - (n - 1)).clamp(min=0).tolist()
        return [path[:length] for path, length in zip(paths, lengths.tolist(), strict=True)]


class CTCModel:
    """A network and its alphabets.

    Pairs whose y needs more than LABELS |x| labels are left out.
    """

    def __init__(self, pairs: Pairs, seed: int = 0, *, bigrams: bool = False) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.rng = np.random.default_rng(seed)
        self.inputs = {s: i for i, s in enumerate(sorted({s for x, _ in pairs for s in x}), 2)}
        self.labels = fg.Alphabet(["<blank>", *sorted({s for _, y in pairs for s in y})])
        self.network = Network(len(self.inputs) + 2, len(self.labels))
        self.bigrams = Bigrams(len(self.labels)) if bigrams else None
        coded = [(self._ids(x), self.labels.encode(y).tolist()) for x, y in pairs]
        self.pairs = [(x, y) for x, y in coded if _needed(y) <= LABELS * len(x)]

    def _ids(self, x: Symbols) -> list[int]:
        return [self.inputs.get(symbol, 1) for symbol in x]

    def fit(self, stages: Sequence[tuple[float, Objective]], seconds: float) -> "CTCModel":
        """Train for a number of CPU seconds; the learning rate falls to zero.

        Stages are (end, objective), where the end is a share of the seconds.  Bigrams are used from
        HALF of the seconds on, because a step with them takes about a third longer.
        """
        groups: list[dict[str, Any]] = [{"params": self.network.parameters(), "times": 1.0}]
        if self.bigrams is not None:
            groups.append({"params": self.bigrams.parameters(), "times": BIGRAM_RATE})
        optimizer = torch.optim.Adam(groups, lr=RATE)
        self.network.train()
        start, self.epochs = time.process_time(), 0.0
        for batch in self._batches():
            spent = (time.process_time() - start) / seconds
            if spent >= 1:
                break
            for group in optimizer.param_groups:
                group["lr"] = RATE * group["times"] * (1 - spent)
            objective = next(objective for end, objective in stages if spent < end)
            x, lengths = _padded([x for x, _ in batch])
            optimizer.zero_grad()
            scores = self.network(x, lengths)
            bigrams = self.bigrams if spent >= HALF else None
            gold = [y for _, y in batch]
            nll = negative_log_likelihood(scores, gold, LABELS * lengths, bigrams)
            objective(nll).backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
            optimizer.step()
            self.epochs += len(batch) / len(self.pairs)
        return self

    def _batches(self) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Yield batches of pairs with inputs of similar lengths, endlessly."""
        while True:
            noise = self.rng.uniform(0, 1, len(self.pairs))
            sizes = np.array([len(x) for x, _ in self.pairs]) + noise
            order = np.argsort(sizes)
            starts = np.arange(0, len(order), BATCH)
            for start in self.rng.permutation(starts):
                yield [self.pairs[i] for i in order[start : start + BATCH]]

    @torch.no_grad()
    def predict(self, xs: Sequence[Symbols]) -> list[Symbols]:
        """Return the collapsed best path of each x."""
        self.network.eval()
        found: list[Symbols] = []
        for start in range(0, len(xs), 256):
            part = [self._ids(x) for x in xs[start : start + 256]]
            x, lengths = _padded(part)
            scores, lengths = self.network(x, lengths), LABELS * lengths
            if self.bigrams is None:
                rows = zip(scores.argmax(-1).tolist(), lengths.tolist(), strict=True)
                paths = [path[:length] for path, length in rows]
            else:
                paths = self.bigrams.best(scores, lengths)
            found += [tuple(self.labels.decode(collapsed(path))) for path in paths]
        return found


def collapsed(path: Sequence[int]) -> list[int]:
    """Return the labels of a path with runs merged and blanks removed."""
    return [b for a, b in zip([0, *path], path, strict=False) if b not in (0, a)]


def _needed(y: Sequence[int]) -> int:
    """Return the length of the shortest path of y, which has blanks between equal neighbours."""
    return len(y) + sum(a == b for a, b in itertools.pairwise(y))


def _padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    x = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return x, lengths


def negative_log_likelihood(
    scores: torch.Tensor,
    gold: list[list[int]],
    lengths: torch.Tensor,
    bigrams: Bigrams | None = None,
) -> torch.Tensor:
    """Return -log p(y | x) of each item in nats; the sum of CTC is computed by PyTorch."""
    log_p = scores.log_softmax(-1)
    sizes = torch.tensor([len(y) for y in gold])
    targets = torch.tensor([label for y in gold for label in y])
    nll = nn.functional.ctc_loss(log_p.transpose(0, 1), targets, lengths, sizes, reduction="none")
    if bigrams is None:
        return nll
    return nll + bigrams.chain(log_p, lengths).log_partition() - bigrams.sums(gold)


def likelihood(nll: torch.Tensor) -> torch.Tensor:
    """Return the mean of -log p(y | x), in nats."""
    return nll.mean()


def margin(nll: torch.Tensor) -> torch.Tensor:
    """Return the mean of `fstgrad.torch.ctc_softmax_margin`: edits cost WRONG, capped at WRONG.

    The capped loss is c = WRONG for all strings except gold.  With p = p(gold | x), the objective
    is therefore log(e^c (1 - p) + p) - log p, without an automaton.
    """
    top = math.exp(WRONG)
    return (nll + torch.log(top - (top - 1) * torch.exp(-nll))).mean()


def risk(nll: torch.Tensor) -> torch.Tensor:
    """Return the mean of `fstgrad.torch.ctc_risk` with an edit distance capped at 1: 1 - p."""
    return (1 - torch.exp(-nll)).mean()


def smoothed_risk(nll: torch.Tensor) -> torch.Tensor:
    """Return SCALE - 1 times the risk plus -log p, whose gradient does not vanish for small p."""
    return (SCALE - 1) * risk(nll) + likelihood(nll)


def scaled(nll: torch.Tensor) -> torch.Tensor:
    """Return SCALE times the mean of -log p(y | x): larger steps, without another loss."""
    return SCALE * likelihood(nll)


# The loss is used after half of the seconds.  Its gradients are larger than those of likelihood, so
# that Adam, whose scale is a mean over the last steps, takes larger steps for some time: "scaled"
# has the same effect without a loss, and is the control.
STAGES: dict[str, tuple[tuple[float, Objective], ...]] = {
    "ctc": ((1.0, likelihood),),
    "scaled": ((HALF, likelihood), (1.0, scaled)),
    "margin": ((HALF, likelihood), (1.0, margin)),
    "risk": ((HALF, likelihood), (1.0, smoothed_risk)),
}
