"""Published distances, alignment scores and n-gram matches, as far as these losses express them."""

import json
from collections import Counter

import numpy as np
import pytest

import fstgrad as fg


def rows(folder, name):
    return json.loads((folder / "reference_values" / name).read_text(encoding="utf-8"))


def test_levenshtein(shared_data):
    checked = Counter()
    for row in rows(shared_data, "edit_distances.json"):
        a, b = [str(symbol) for symbol in row["a"]], [str(symbol) for symbol in row["b"]]
        abc = fg.Alphabet(sorted({*a, *b, "x"}))
        if row["kind"] == "levenshtein":
            insert, delete, substitute = row["weights_ins_del_sub"] or (1, 1, 1)
        elif row["kind"] == "indel":
            insert, delete, substitute = 1, 1, 2
        else:
            continue  # transpositions and lcs are losses of their own
        for factored in (False, True):
            loss = fg.EditDistance(abc, insert, delete, substitute, factored=factored)
            assert loss(a, b) == row["value"], row
        checked[row["kind"]] += 1
    assert checked == {"levenshtein": 29, "indel": 3}


def test_linear_gap_alignments(shared_data):
    checked = 0
    for row in rows(shared_data, "alignment_scores.json"):
        linear = row["gap_first"] == row["gap_extend"] and row["matrix"] is None
        if not linear or row["mode"] == "semi":
            continue
        abc = fg.Alphabet(sorted(set(row["seq_a"]) | set(row["seq_b"])))
        gap = row["gap_first"]
        if row["mode"] == "local":
            loss = fg.SmithWaterman(abc, -row["match"], -row["mismatch"], gap, gap)
        else:
            confusion = np.full((len(abc), len(abc)), -float(row["mismatch"]))
            np.fill_diagonal(confusion, -float(row["match"]))
            loss = fg.EditDistance(abc, gap, gap, confusion=confusion)
        assert -loss(row["seq_a"], row["seq_b"]) == row["score"], row["id"]
        checked += 1
    assert checked == 3


def test_ngram_matches_without_repetition(shared_data):
    """Clipped counts are products of counts where every n-gram occurs once on either side."""
    checked = 0
    for row in rows(shared_data, "ngram_bleu.json"):
        if row["kind"] not in ("modified_precision", "ngram_clipped_matches"):
            continue
        if len(row["ref"]) > 1:
            continue  # several references are clipped together
        hyp, ref = row["hyp"].split(), row["ref"][0].split()
        orders = row.get("orders") or [row["n"]]
        matches = row.get("matches") or [row["clipped_matches"]]
        abc = fg.Alphabet.from_sequences([hyp, ref])
        for order, match in zip(orders, matches, strict=True):
            grams = [
                Counter(tuple(s[i : i + order]) for i in range(len(s) - order + 1))
                for s in (hyp, ref)
            ]
            if all(grams[0][u] * grams[1][u] <= 1 for u in grams[0]):
                assert -fg.NGram(abc, order, log=False)(hyp, ref) == match
                checked += 1
    assert checked == 3


def test_smith_waterman_of_the_delannoy_kind():
    """Alignments worked by hand: match -2, anything else 1."""
    loss = fg.SmithWaterman(fg.Alphabet("acgt"))
    assert loss("acgt", "acgt") == 4 * -2
    assert loss("acgt", "acct") == 3 * -2 + 1  # one substitution inside
    assert loss("acgt", "act") == 3 * -2 + 1  # one deletion inside
    assert loss("gggacgg", "ttac") == 2 * -2
    assert loss("aaa", "ccc") == 0
    assert loss("a", "a") == pytest.approx(-2)
