"""A BiLSTM with connectionist temporal classification (CTC), trained for a budget of CPU seconds.

The network reads x in both directions and predicts `LABELS` labels, which may be blanks, for each
symbol of x.  The learning rate falls linearly to zero over the budget.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import nn

import fstgrad as fg

Symbols = tuple[str, ...]
Pairs = Sequence[tuple[Symbols, Symbols]]
LABELS = 2  # per symbol of x
BATCH = 32
RATE = 5e-3
Objective = Callable[[torch.Tensor, list[list[int]], torch.Tensor], torch.Tensor]


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


class CTCModel:
    """A network and its alphabets.

    Pairs whose y needs more than LABELS |x| labels are left out.
    """

    def __init__(self, pairs: Pairs, seed: int = 0) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.rng = np.random.default_rng(seed)
        self.inputs = {s: i for i, s in enumerate(sorted({s for x, _ in pairs for s in x}), 2)}
        self.labels = fg.Alphabet(["<blank>", *sorted({s for _, y in pairs for s in y})])
        self.network = Network(len(self.inputs) + 2, len(self.labels))
        coded = [(self._ids(x), self.labels.encode(y).tolist()) for x, y in pairs]
        self.pairs = [(x, y) for x, y in coded if _needed(y) <= LABELS * len(x)]

    def _ids(self, x: Symbols) -> list[int]:
        return [self.inputs.get(symbol, 1) for symbol in x]

    def fit(self, stages: Sequence[tuple[float, Objective]], seconds: float) -> "CTCModel":
        """Train for a number of CPU seconds; the learning rate falls to zero.

        Stages are (end, objective), where the end is a share of the seconds.
        """
        optimizer = torch.optim.Adam(self.network.parameters(), lr=RATE)
        self.network.train()
        start, self.epochs = time.process_time(), 0.0
        for batch in self._batches():
            spent = (time.process_time() - start) / seconds
            if spent >= 1:
                break
            optimizer.param_groups[0]["lr"] = RATE * (1 - spent)
            objective = next(objective for end, objective in stages if spent < end)
            x, lengths = _padded([x for x, _ in batch])
            optimizer.zero_grad()
            scores = self.network(x, lengths)
            objective(scores, [y for _, y in batch], LABELS * lengths).backward()
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
            best = self.network(x, lengths).argmax(-1).tolist()
            for path, length in zip(best, (LABELS * lengths).tolist(), strict=True):
                found.append(tuple(self.labels.decode(collapsed(path[:length]))))
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
    scores: torch.Tensor, gold: list[list[int]], lengths: torch.Tensor
) -> torch.Tensor:
    """Return -log p(y | x) of each item in nats, computed by PyTorch."""
    log_p = scores.log_softmax(-1).transpose(0, 1)
    sizes = torch.tensor([len(y) for y in gold])
    targets = torch.tensor([label for y in gold for label in y])
    return nn.functional.ctc_loss(log_p, targets, lengths, sizes, reduction="none")


def likelihood(scores: torch.Tensor, gold: list[list[int]], lengths: torch.Tensor) -> torch.Tensor:
    """Return the mean of -log p(y | x), in nats."""
    return negative_log_likelihood(scores, gold, lengths).mean()


def margin(scores: torch.Tensor, gold: list[list[int]], lengths: torch.Tensor) -> torch.Tensor:
    """Return the mean of `fstgrad.torch.ctc_softmax_margin` with an edit distance capped at 1.

    The capped loss is 1 for all strings except gold.  With p = p(gold | x), the objective is
    therefore log(e (1 - p) + p) - log p, without an automaton.
    """
    nll = negative_log_likelihood(scores, gold, lengths)
    return (nll + torch.log(math.e - (math.e - 1) * torch.exp(-nll))).mean()


def risk(scores: torch.Tensor, gold: list[list[int]], lengths: torch.Tensor) -> torch.Tensor:
    """Return the mean of `fstgrad.torch.ctc_risk` with an edit distance capped at 1: 1 - p."""
    return (1 - torch.exp(-negative_log_likelihood(scores, gold, lengths))).mean()


def smoothed_risk(
    scores: torch.Tensor, gold: list[list[int]], lengths: torch.Tensor
) -> torch.Tensor:
    """Return the risk plus a fifth of -log p, whose gradient does not vanish for small p."""
    nll = negative_log_likelihood(scores, gold, lengths)
    return (1 - torch.exp(-nll) + 0.2 * nll).mean()


# Chosen on the dev sets of Dutch and Bulgarian: the loss is used after half of the seconds.
STAGES: dict[str, tuple[tuple[float, Objective], ...]] = {
    "ctc": ((1.0, likelihood),),
    "margin": ((0.5, likelihood), (1.0, margin)),
    "risk": ((0.5, likelihood), (1.0, smoothed_risk)),
}
