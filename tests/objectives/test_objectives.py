"""What all objectives of a batch of arrays have in common."""

import gc

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.objectives.base import Objective
from fstgrad.objectives.strings import StringObjective


def test_an_objective_keeps_no_automaton_that_its_cache_has_dropped(monkeypatch):
    monkeypatch.setattr("fstgrad.objectives.strings._AUTOMATA", fg.AutomatonCache(max_memory=0))
    objective = StringObjective("softmax-margin", fg.EditDistance(fg.Alphabet("abc")))
    objective.evaluate([np.zeros((2, 4, 3))], [np.array([[0, 1, 2, 0], [2, 1, 0, 0]])])
    gc.collect()
    assert len(objective._known) == 0


def test_an_objective_without_values_says_so():
    with pytest.raises(NotImplementedError):
        Objective().evaluate([np.zeros(1)], [])
