"""Compiled losses kept in memory and on disk."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.cache import load_automaton, save_automaton
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")


def same(a, b):
    return all(a.loss(np.array(y)) == b.loss(np.array(y)) for y in oracle.all_strings(3, a.length))


def test_every_setting_has_its_own_entry():
    cache = fg.AutomatonCache()
    calls = [
        (fg.EditDistance(ABC), "abca", {}),
        (fg.EditDistance(ABC), "abca", {"cap": 1.0}),
        (fg.EditDistance(ABC), "abca", {"length": 3}),
        (fg.EditDistance(ABC), "abcb", {}),
        (fg.EditDistance(ABC, 2.0), "abca", {}),
        (fg.NGram(ABC, 2, smoothing=0.5), "abca", {}),
        (fg.NGram(ABC, 2, smoothing=0.25), "abca", {}),
        (fg.NGram(ABC, 2, log=False), "abca", {}),
    ]
    for loss, target, settings in calls * 2:
        assert same(cache.automaton(loss, target, **settings), loss.compile(target, **settings))
    assert (cache.hits, cache.misses, len(cache)) == (8, 8, 8)


def test_equal_losses_share_entries_across_objects_and_processes():
    first, second = fg.EditDistance(ABC), pickle.loads(pickle.dumps(fg.EditDistance(ABC)))
    assert first.fingerprint == second.fingerprint
    assert first("abc", "bc") == second("abc", "bc") == 1
    cache = fg.AutomatonCache()
    assert cache.automaton(first, "ab") is cache.automaton(second, np.array([0, 1]))
    assert cache.target_loss(first, "ab") is cache.target_loss(second, "ab")


def test_passes_over_more_than_fits_find_what_fits():
    loss = fg.Hamming(ABC)
    single = fg.AutomatonCache()
    single.automaton(loss, "abca")
    cache = fg.AutomatonCache(3 * single.nbytes)
    targets = ["abca", "abcb", "abcc", "bbca", "cbca"]
    for _ in range(4):
        for target in targets:
            cache.automaton(loss, target)
    assert len(cache) == 3
    assert cache.nbytes <= cache.max_memory
    assert (cache.hits, cache.misses) == (3 * 3, 5 + 3 * 2)
    for _ in range(4):  # other targets: after 10 requests for each of 3 entries the old ones go
        for i in range(10):
            cache.automaton(loss, np.array([i % 3, i // 3 % 3, 0, i // 9]))
    misses = cache.misses
    cache.automaton(loss, "abca")
    assert cache.misses == misses + 1


def test_no_bytes_keep_nothing():
    cache = fg.AutomatonCache(0)
    cache.automaton(fg.Hamming(ABC), "ab")
    assert (len(cache), cache.nbytes) == (0, 0)


def test_failures_are_kept():
    cache, loss = fg.AutomatonCache(), fg.EditDistance(ABC)
    for _ in range(2):
        with pytest.raises(fg.StateLimitError):
            cache.automaton(loss, "abcab", max_states=3)
    assert (cache.hits, cache.misses) == (1, 1)


def test_files_are_read_back_and_damaged_ones_written_anew(tmp_path):
    loss = fg.SmithWaterman(ABC)
    exact = fg.AutomatonCache(directory=tmp_path).automaton(loss, "abca")
    again = fg.AutomatonCache(directory=tmp_path)
    assert same(again.automaton(loss, "abca"), exact)
    assert (again.hits, again.misses) == (1, 0)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    pickled = {"target": np.array([{}], dtype=object)}
    for content in (b"", b"damaged", whole[: len(whole) // 2], pickled):
        if isinstance(content, dict):
            np.savez(path, **content)
        else:
            path.write_bytes(content)
        cache = fg.AutomatonCache(directory=tmp_path)
        assert same(cache.automaton(loss, "abca"), exact)
        assert cache.misses == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_file_with_states_out_of_range_is_refused(tmp_path):
    path = tmp_path / "b.npz"
    b = fg.Hamming(ABC).compile("ab")
    save_automaton(path, b)
    assert same(load_automaton(path, ABC), b)
    assert load_automaton(path, fg.Alphabet("ab")) is None
    with np.load(path) as archive:
        arrays = dict(archive)
    for name in ("nextstate", "class_of", "sizes"):
        np.savez(path, **(arrays | {name: arrays[name] + 7}))
        assert load_automaton(path, ABC) is None
    assert load_automaton(tmp_path / "none.npz", ABC) is None


@pytest.mark.slow
def test_automata_of_many_states_are_read_back(tmp_path):
    b = fg.EditDistance(ABC).compile("abcabbcaacb")
    assert max(len(level.nextstate) for level in b.levels) > 62
    save_automaton(tmp_path / "b.npz", b)
    assert same(load_automaton(tmp_path / "b.npz", ABC), b)


def test_a_stored_failure_keeps_nothing_alive():
    """What is raised again and again must not hold the frames, and so the automata, of a caller."""
    cache = fg.AutomatonCache()
    loss = fg.EditDistance(fg.Alphabet("ab"))
    held = []

    def request():
        big = np.zeros(10)
        held.append(weakref.ref(big))
        with pytest.raises(fg.StateLimitError) as caught:
            cache.automaton(loss, "abababab", max_states=3)
        return str(caught.value)

    first, second = request(), request()
    gc.collect()
    assert first == second
    assert "max_states=3" in first
    assert [ref() for ref in held] == [None, None]
    assert cache.misses == 1


def test_losses_against_targets_are_kept_and_counted():
    cache, loss = fg.AutomatonCache(), fg.EditDistance(fg.Alphabet("ab"))
    first = cache.target_loss(loss, "ab")
    assert cache.target_loss(loss, "ab") is first
    assert cache.target_loss(loss, "ba") is not first
    assert (cache.misses, cache.hits) == (2, 1)
