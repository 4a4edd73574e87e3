"""PyTorch: entities with a transformer and a CRF layer
====================================================

Only first pieces of words have tags.  With transformers, its ``Trainer`` trains, otherwise a loop.

    python examples/torch_entities.py
"""

import tempfile

import torch
from torch.utils.data import DataLoader, StackDataset

import fstgrad as fg
import fstgrad.torch as fgt

try:
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
except ImportError:
    PretrainedConfig, PreTrainedModel, Trainer = dict, torch.nn.Module, None

TAGS, LENGTH, WORDS, PIECES = ["O", "B-PER", "I-PER"], 14, 30, 40  # pieces >= 30 continue a word
SPANS = fg.SpanHamming(fg.Alphabet(TAGS))


def sentences(count: int) -> StackDataset:
    """Return pieces and labels; words below 10 begin a name, those below 15 continue one."""
    pieces = torch.randint(PIECES, (count, LENGTH))
    labels = (pieces < 10).long()
    labels[:, 1:][(pieces[:, :-1] < 10) & (pieces[:, 1:] >= 10) & (pieces[:, 1:] < 15)] = 2
    labels[:, 1:][pieces[:, 1:] >= WORDS] = -100
    labels[torch.arange(LENGTH) >= torch.randint(6, LENGTH + 1, (count, 1))] = -100
    return StackDataset(input_ids=pieces, labels=labels)


class Tagger(PreTrainedModel):
    """Two transformer layers, emissions of the tags, and a CRF that allows BIO alone."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(*([config] if Trainer else []))
        self.embed, self.place = torch.nn.Embedding(PIECES, 32), torch.nn.Embedding(LENGTH, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.emit = torch.nn.Linear(32, len(TAGS))
        self.crf = fgt.nn.CRF(len(TAGS), batch_first=True, scheme=fg.TagScheme(TAGS))
        self.post_init() if Trainer else None

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss: likelihood plus the expected number of wrong and missed names."""
        scores = self.emit(self.layers(self.embed(input_ids) + self.place.weight))
        loss = self.crf.risk(scores, labels, SPANS) - self.crf(scores, labels)
        crf = self.crf.distribution(scores.detach(), labels >= 0)
        return {"loss": loss / len(labels), "logits": crf.decode(), "marginals": crf.marginals()}


def main(count: int = 2000) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Train; return the share of wrong and missed names, and marginals and tags of a sentence."""
    torch.manual_seed(0)
    train, new, model = sentences(count), sentences(100), Tagger(PretrainedConfig())
    if Trainer:
        with tempfile.TemporaryDirectory() as folder:
            options = TrainingArguments(folder, num_train_epochs=1, learning_rate=1e-3)
            Trainer(model, options, train_dataset=train).train()
            model.save_pretrained(folder)
            model = Tagger.from_pretrained(folder, config=model.config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in () if Trainer else DataLoader(train, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    output, gold = model(**new.datasets), new.datasets["labels"]
    wrong = sum(SPANS(y[z >= 0], z[z >= 0]) for y, z in zip(output["logits"], gold, strict=True))
    print(f"wrong or missed, by name {wrong / (gold == 1).sum():.3f}")
    return float(wrong / (gold == 1).sum()), output["marginals"][0], gold[0]


if __name__ == "__main__":
    _, marginals, gold = main()
    figure = fg.plot.marginals(marginals[gold >= 0], fg.Alphabet(TAGS), target=gold[gold >= 0])
