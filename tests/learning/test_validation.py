"""Held-out pairs of a model are checked before it trains."""

import pytest

import fstgrad as fg


def test_validation_has_as_many_inputs_as_targets():
    model = fg.SequenceModel("hamming", features="aligned", epochs=1)
    with pytest.raises(fg.InvalidInputError, match="X has 1 inputs and Y 2 targets"):
        model.fit(["ab", "ba"], ["ab", "ba"], validation=(["ab"], ["ab", "ba"]))
