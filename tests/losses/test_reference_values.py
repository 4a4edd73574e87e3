"""Published distances, alignment scores and n-gram matches, as far as these losses express them."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses import transducers


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


def test_common_subsequences_and_transpositions(shared_data):
    """lcs_distance is max(|a|, |b|) - LCS, and osa the optimal string alignment."""
    checked = Counter()
    for row in rows(shared_data, "edit_distances.json"):
        a, b = row["a"], row["b"]
        abc = fg.Alphabet(sorted({*map(str, [*a, *b, "x"])}))
        if row["kind"] == "lcs_distance":
            missed = fg.LongestCommonSubsequence(abc)(a, b)
            assert max(len(a), len(b)) - (len(b) - missed) == row["value"], row
        elif row["kind"] == "osa":
            assert fg.OptimalStringAlignment(abc)(a, b) == row["value"], row
        else:
            continue
        checked[row["kind"]] += 1
    assert checked == {"lcs_distance": 2, "osa": 2}


def alignment_loss(shared_data, row):
    """The loss of one published alignment: EMBOSS, parasail, Biopython, scikit-bio."""
    abc = fg.Alphabet(sorted(set(row["seq_a"]) | set(row["seq_b"])))
    if row["matrix"] is None:
        matrix = np.full((len(abc), len(abc)), float(row["mismatch"]))
        np.fill_diagonal(matrix, float(row["match"]))
    else:
        matrix = shared_data / "protein_homologs" / f"matrix_{row['matrix']}.txt"
    gaps = {"gap_open": row["gap_first"], "gap_extend": row["gap_extend"]}
    if row["mode"] == "local":
        return fg.SmithWaterman(abc, matrix=matrix, **gaps)
    return fg.GlobalAlignment(
        abc, matrix, **gaps, free_ends="both" if row["mode"] == "semi" else "none"
    )


def test_alignment_scores(shared_data):
    """Global, local and semi-global, with BLOSUM62, PAM70, NUC.4.4 or match and mismatch."""
    checked = Counter()
    for row in rows(shared_data, "alignment_scores.json"):
        loss = alignment_loss(shared_data, row)
        score = pytest.approx(row["score"], abs=1e-12)
        assert -loss(row["seq_a"], row["seq_b"]) == score, row["id"]
        checked[row["mode"]] += 1
    assert checked == {"global": 7, "semi": 5, "local": 5}


def test_gotoh_tables(shared_data):
    """The tables of Altschul and Erickson (1986, Figure 2): each cell is an alignment of prefixes.

    Their gap of k letters costs open + k extend, so its first letter costs open + extend.  The cell
    (i, j) of the main table is the best score of all alignments of the two prefixes.
    """
    table = json.loads((shared_data / "reference_values" / "gotoh_tables.json").read_text())
    a, b = table["seq_a"], table["seq_b"]
    abc = fg.Alphabet(sorted({*a, *b}))
    matrix = np.full((len(abc), len(abc)), float(table["mismatch"]))
    np.fill_diagonal(matrix, float(table["match"]))
    first = table["gap_open"] + table["gap_extend"]
    loss = fg.GlobalAlignment(abc, matrix, first, table["gap_extend"])
    assert -loss(a, b) == table["score"]
    main = [[-loss(a[:i], b[:j]) for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    np.testing.assert_array_equal(main, table["main"])

    # The other two: alignments that end in an insertion, and those that end in a deletion, which
    # are the insertions of the pair the other way round.
    fst = transducers.alignment_transducer(
        abc, -matrix, gap_open=first, gap_extend=table["gap_extend"], arc_type="log64"
    )
    inserting = openfst.from_arrays(
        dataclasses.replace(openfst.to_arrays(fst), final=np.array([np.inf, np.inf, 0.0]))
    )
    ending = fg.TransducerLoss(inserting, abc)
    inside = range(1, len(a) + 1), range(1, len(b) + 1)
    insertions = [[-ending(a[:i], b[:j]) for j in inside[1]] for i in inside[0]]
    deletions = [[-ending(b[:j], a[:i]) for j in inside[1]] for i in inside[0]]
    np.testing.assert_array_equal(insertions, table["ins_from_1_1"])
    np.testing.assert_array_equal(deletions, table["del_from_1_1"])


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
