"""PyTorch: two processes train one tagger
=======================================

Two processes train one tagger under DistributedDataParallel: python examples/torch_ddp.py."""

import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import fstgrad as fg
import fstgrad.torch as fgt

WORDS, TAGS, LENGTH = 40, 4, 8


def sentences(count: int, seed: int) -> torch.utils.data.TensorDataset:
    """Return words and tags; the tag of a word depends on the word and the word before it."""
    words = torch.randint(WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    tags = words % TAGS
    tags[:, 1:] = (tags[:, 1:] + words[:, :-1] // 20) % TAGS
    return torch.utils.data.TensorDataset(words, tags)


class Tagger(torch.nn.Module):
    """An LSTM tagger; its objective is in the module, so that DDP sees the whole backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, 32)
        self.lstm = torch.nn.LSTM(32, 32, batch_first=True)
        self.emit = torch.nn.Linear(32, TAGS)
        self.criterion = fgt.SoftmaxMarginLoss(fg.EditDistance(fg.Alphabet("abcd")), cap=3.0)

    def forward(self, words: torch.Tensor, tags: torch.Tensor | None = None) -> torch.Tensor:
        """Return the loss in nats; without tags, the scores (batch, LENGTH, TAGS)."""
        scores = self.emit(self.lstm(self.embed(words))[0])
        return scores if tags is None else self.criterion(scores, tags)


def train(rank: int, port_file: str, result: str, epochs: int) -> None:
    """Train in one process; process 0 saves the share of correct tags on new sentences."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{port_file}", rank=rank, world_size=2)
    data, model = sentences(200, seed=0), torch.nn.parallel.DistributedDataParallel(Tagger())
    sampler = torch.utils.data.DistributedSampler(data, seed=0)
    loader = torch.utils.data.DataLoader(data, batch_size=20, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for words, tags in loader:
            optimizer.zero_grad()
            model(words, tags).backward()
            optimizer.step()
    if rank == 0:
        words, tags = sentences(100, seed=1).tensors
        with torch.no_grad():
            right = model.module(words).argmax(dim=2) == tags
        torch.save(right.float().mean(), result)
    del model, optimizer  # if DDP outlives the group, it may wait for its threads forever
    dist.destroy_process_group()


def main(epochs: int = 15) -> float:
    """Train in two processes; return the share of correct tags on new sentences."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        mp.spawn(train, (str(folder / "rendezvous"), str(folder / "share.pt"), epochs), nprocs=2)
        share = float(torch.load(folder / "share.pt"))
    print(f"tags right on new sentences {share:.3f}")
    return share


if __name__ == "__main__":
    main()
