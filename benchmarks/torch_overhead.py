"""The PyTorch wrapper for a batch of 64 words, against the array API and plain autograd.

"plain" is the same softmax margin as a loop of tensor operations over A o B, with autograd through
the loop: the code that one would write without this library, given the automaton.
"""

from _harness import interleaved_medians, one_thread, run

one_thread()

import numpy as np  # noqa: E402
import torch  # noqa: E402

import fstgrad as fg  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402


def plain_softmax_margin(scores, gold, b):
    """Return log Z - score(gold) of one word by tensor operations, for autograd."""
    n = len(b.alphabet)
    class_of = torch.as_tensor(np.array(b.class_of))
    alpha = torch.full((1, n + 1), -torch.inf, dtype=torch.float64)
    alpha[0, n] = 0.0
    for t, level in enumerate(b.levels):
        rows = slice(n, n + 1) if t == 0 else slice(0, n)
        arrived = torch.logsumexp(alpha[:, rows, None] + scores[t, rows], dim=1)
        cost = torch.as_tensor(np.array(level.cost))[:, class_of]
        target = torch.as_tensor(np.array(level.nextstate))[:, class_of]
        size = b.level_sizes[t + 1]
        shift = (arrived + cost).max().detach()
        after = torch.zeros(size, n, dtype=torch.float64)
        after = after.scatter_add(0, target, (arrived + cost - shift).exp())
        alpha = torch.nn.functional.pad(after.log() + shift, (0, 1), value=-torch.inf)
    final = torch.as_tensor(np.array(b.final))[:, None]
    log_z = torch.logsumexp((alpha + final).flatten(), dim=0) + b.initial
    previous = np.append(n, gold[:-1])
    return log_z - scores[np.arange(len(gold)), previous, gold].sum()


def rows(quick):
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    abc = fg.Alphabet(f"p{i}" for i in range(39))
    loss = fg.EditDistance(abc)
    size, length = (16 if quick else 64), 7
    golds = rng.integers(39, size=(size, length))
    automata = [loss.compile(gold) for gold in golds]
    scores = torch.tensor(rng.normal(size=(size, length, 40, 39)), requires_grad=True)
    arrays = scores.detach().numpy()

    def by_arrays():
        return [fg.softmax_margin(s, g, b) for s, g, b in zip(arrays, golds, automata, strict=True)]

    def by_wrapper():
        scores.grad = None
        fgt.softmax_margin(scores, torch.as_tensor(golds), automata).backward()

    def by_plain():
        scores.grad = None
        values = [
            plain_softmax_margin(s, g, b) for s, g, b in zip(scores, golds, automata, strict=True)
        ]
        torch.stack(values).mean().backward()

    by_wrapper()
    exact = scores.grad.clone()
    by_plain()
    torch.testing.assert_close(scores.grad, exact, rtol=0, atol=1e-10)
    calls = {"arrays": by_arrays, "wrapper": by_wrapper, "plain": by_plain}
    seconds = interleaved_medians(calls, repeat=15)
    for name, median in seconds.items():
        yield {
            "case": f"{name}, {size} words of {length}",
            "seconds": median,
            "times arrays": median / seconds["arrays"],
            "times wrapper": median / seconds["wrapper"],
        }


if __name__ == "__main__":
    run("PyTorch: value and gradient of the edit-distance softmax margin, one thread", rows)
