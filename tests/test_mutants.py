"""The list of equivalent mutants: every key names a mutant of the current sources."""

from tests.mutant_places import ROOT, Places
from tests.mutants import equivalent_mutants


def test_every_equivalent_mutant_exists():
    keys = equivalent_mutants()
    assert len(keys) > 40
    paths = {key.split("::")[0] for key in keys}
    found = {m.key for p in paths for m in Places(p, (ROOT / p).read_text(encoding="utf-8")).found}
    assert not keys.keys() - found
