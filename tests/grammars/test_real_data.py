"""Each grammar on real data: words, sequences and tunes that it was not written from."""

import datetime
import io
import pathlib
import tokenize
import unicodedata
from collections import Counter

import fstgrad as fg
from fstgrad.costs.ranking import Questions, losses_of, nearest_words, ranks
from fstgrad.costs.transducer import pair_transducer
from fstgrad.grammars import Grammar


def mean_rank(loss, asked):
    transducer = pair_transducer(loss)
    questions = Questions.encode(loss.alphabet, asked)
    return ranks(
        questions, losses_of(transducer, questions.pairs, transducer.cost, "tropical")
    ).mean()


def questions(pairs, dictionary, count=20):
    found = []
    for (x, y), near in zip(
        pairs, nearest_words([x for x, _ in pairs], dictionary, count), strict=True
    ):
        found.append((x, 0, [y, *(dictionary[k] for k in near if dictionary[k] != y)]))
    return found


def alphabet_of(asked):
    return fg.Alphabet(sorted({s for x, _, c in asked for word in (x, *c) for s in word}))


def rows(path):
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def words_of_ud(path):
    lines = rows(path)
    return sorted({line[1] for line in lines if len(line) > 3 and line[1].isalpha()})


def test_keyboards_explain_errors_typed_on_them(shared_data):
    """Misspellings of the English web, typed on QWERTY: one consonant for another is often near.

    (One vowel for another is an error of spelling, and on Dvorak all vowels are neighbours.)
    """
    slips = Counter()
    for x, y in rows(shared_data / "spelling" / "pairs.tsv"):
        changed = [(a, b) for a, b in zip(x, y, strict=False) if a != b]
        if len(x) == len(y) and len(changed) == 1 and not set(changed[0]) & set("aeiouy"):
            slips.update(changed)
    consonants = "bcdfghjklmnpqrstvwxz"
    slips = {p: n for p, n in slips.items() if p[0] in consonants and p[1] in consonants}
    near = {}
    for name in ("keyboard", "qwertz", "azerty", "dvorak"):
        loss = Grammar.load(name).loss(fg.Alphabet(consonants))
        near[name] = sum(n for (a, b), n in slips.items() if loss([a], [b]) < 1)
    assert near["dvorak"] < near["azerty"] <= near["keyboard"]
    assert near["qwertz"] <= near["keyboard"]


def test_ipa_knows_the_sounds_of_dictionaries(shared_data):
    """Dutch and Hungarian transcriptions; of two pronunciations the near one is near."""
    folder = shared_data / "g2p_sigmorphon2021"
    for language in ("dut", "hun"):
        sounds = Counter(
            sound for _, text in rows(folder / f"{language}_dev.tsv") for sound in text.split()
        )
        for name, step in (("ipa", 0.25), ("articulation", 0.125)):
            loss = Grammar.load(name).loss(fg.Alphabet(sorted(sounds)))
            common = [s for s, _ in sounds.most_common(15)]
            known = [s for s in sounds if min(loss([s], [t]) for t in common if t != s) < 1]
            assert sum(sounds[s] for s in known) > 0.99 * sum(sounds.values())
            assert loss(["t"], ["d"]) == step < loss(["t"], ["m"])


def test_names_rank_homophones_before_other_near_words(shared_data):
    spoken = {}
    for word, phones in rows(shared_data / "g2p_cmudict" / "cmudict20k.tsv"):
        if word.isalpha() and len(word) > 3:
            spoken.setdefault(phones, []).append(word)
    pairs = [(same[0], same[1]) for same in spoken.values() if len(same) > 1][:60]
    dictionary = sorted({w for same in spoken.values() for w in same})[::4]
    asked = questions(pairs, sorted({*dictionary, *(y for _, y in pairs)}))
    abc = alphabet_of(asked)
    assert mean_rank(Grammar.load("names").loss(abc), asked) < mean_rank(
        fg.EditDistance(abc), asked
    )


def test_german_words_may_be_written_out(shared_data):
    words = words_of_ud(shared_data / "ud" / "UD_German-PUD" / "de_pud-ud-test.conllu")
    special = [w for w in words if set(w) & set("äöüÄÖÜß")]
    german = Grammar.load("german")
    written = str.maketrans(
        {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}
    )
    loss = german.loss()
    special = [w for w in special if all(s in loss.alphabet for s in w)][:80]
    assert len(special) > 50
    assert all(loss(w.translate(written), w) == 0 for w in special)
    plain = "".join
    bare = [plain(c for c in unicodedata.normalize("NFKD", w) if not unicodedata.combining(c))
            for w in special]  # fmt: skip
    asked = questions(list(zip(bare, special, strict=True)), words)
    asked = [q for q in asked if all(s in loss.alphabet for w in (q[0], *q[2]) for s in w)]
    assert mean_rank(loss, asked) < 1.1


def test_french_before_and_after_1990():
    """Words of the list of 1990 in both spellings, against other words of the list."""
    both = [("aout", "août"), ("ile", "île"), ("boite", "boîte"), ("maitre", "maître"),
            ("nénufar", "nénuphar"), ("connaitre", "connaître"), ("cout", "coût"),
            ("flute", "flûte"), ("gout", "goût"), ("chaine", "chaîne"), ("entrainer", "entraîner"),
            ("allègement", "allégement"), ("règlementer", "réglementer")]  # fmt: skip
    french = Grammar.load("french")
    asked = questions(both, sorted(y for _, y in both))
    assert mean_rank(french.loss(), asked) == 1.0
    assert all(french(new, old) <= 0.25 for new, old in both)


def test_unicode_forms_of_spanish_words(shared_data):
    words = words_of_ud(shared_data / "ud" / "UD_Spanish-PUD" / "es_pud-ud-test.conllu")
    words = [w for w in words if any(unicodedata.normalize("NFD", c) != c for c in w)][:60]
    abc = fg.Alphabet(sorted({c for w in words for c in w + w.upper() + bare(w)}))
    loss = Grammar.load("unicode_forms").loss(abc)
    for word in words:
        accents = sum(unicodedata.normalize("NFD", c) != c for c in word)
        assert loss(bare(word), word) == 0.25 * accents
        assert loss(word.upper(), word) == 0.125 * sum(c != c.upper() for c in word)


def bare(word):
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


def test_measures_of_a_year():
    """All days of a year in three forms cost nothing, and no other day does."""
    loss = Grammar.load("measures").loss()
    first = datetime.date(2024, 1, 1)
    days = [first + datetime.timedelta(days=37 * k) for k in range(10)]
    for day in days:
        forms = [f"{day:%d.%m.%Y}", f"{day.day} {day:%b} {day.year}", f"{day.day}/{day.month}/2024"]
        for form in forms:
            others = [f"{other:%d-%m-%Y}" for other in days]
            assert [loss(form, other) == 0 for other in others] == [other == day for other in days]


def test_fraktur_explains_errors_of_old_prints(shared_data):
    """Polish prints of the 17th century, partly in black letter: ſ, f and s are confused there."""
    found = Counter()
    for _, _, ocr, gold in rows(shared_data / "ocr_icdar2019" / "PL1.tsv"):
        found.update((a, b) for a, b in zip(ocr, gold, strict=True) if a != b and (a + b).isalpha())
    fraktur, ocr = Grammar.load("fraktur"), Grammar.load("ocr")
    abc = fraktur.alphabet
    known = {p: n for p, n in found.items() if p[0] in abc and p[1] in abc and min(p) >= "a"}
    shares = []
    for loss in (fraktur.loss(), ocr.loss(abc)):
        cheap = sum(n for (a, b), n in known.items() if loss([a], [b]) < 1)
        shares.append(cheap / sum(known.values()))
    assert shares[0] > shares[1]


def test_codons_of_insulin(shared_data):
    """The signal peptide of human insulin and its gene (INS, NM_000207)."""
    gene = "atggccctgtggatgcgcctcctgcccctgctggcgctgctggccctctggggacctgacccagccgcagcc"
    proteins = (shared_data / "protein_homologs" / "insulin.faa").read_text().split(">")[1:]
    human = next(p for p in proteins if "MALWMRLLPLLALLALWGPDPAAA" in p.replace("\n", ""))
    start = human.replace("\n", "").index("MALWMRLLP")
    protein = human.replace("\n", "")[start : start + 24]
    codons = Grammar.load("codons")
    assert codons(protein, gene) == 0
    assert codons(protein, gene[:30] + "a" + gene[30:]) == 2.0
    assert 0.5 <= codons(protein, gene[:31] + "g" + gene[32:]) <= 1.0


def test_smiles_of_drugs():
    aspirin, salicylic, caffeine = (
        "CC(=O)Oc1ccccc1C(=O)O",
        "Oc1ccccc1C(=O)O",
        "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    )
    loss = Grammar.load("smiles").loss()
    assert loss(list(aspirin), list(salicylic)) < loss(list(aspirin), list(caffeine))
    kekule = "CC(=O)OC1=CC=CC=C1C(=O)O"
    assert loss(list(kekule), list(aspirin)) == 3 * 0.5 + 6 * 0.25


def test_tokens_of_our_own_programs():
    """A program with other names is close to its original, and another program is not."""
    folder = pathlib.Path(__file__).parent.parent.parent / "grammars"
    damerau, melody = ((folder / f"{name}.py").read_text() for name in ("damerau", "melody"))
    renamed = damerau
    for name, other in (("_transpositions", "_swaps"), ("alphabet", "abc"), ("single", "one_edit")):
        assert name in damerau
        renamed = renamed.replace(name, other)
    programs = [program(text) for text in (damerau, renamed, melody)]
    abc = fg.Alphabet(sorted({token for tokens in programs for token in tokens}))
    loss = Grammar.load("code_tokens").loss(abc)
    assert 0 < loss(programs[0], programs[1]) < 0.25 * loss(programs[0], programs[2])


def program(text):
    kept = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type in kept]


def test_tunes():
    twinkle = ["0", "+7", "0", "+2", "0", "-2", "-2", "0", "-1", "0", "-2", "0", "-2"]
    baa = ["0", "+7", "0", "+2", "+2", "+1", "-3", "-2", "-2", "0", "-1", "0", "-2", "0", "-2"]
    frere = ["+2", "+2", "-4", "0", "+2", "+2", "-4", "+4", "+1", "+2", "-3", "+1", "+2"]
    loss = Grammar.load("melody").loss()
    assert loss(twinkle, baa) < loss(twinkle, frere)


def test_morphology_finds_the_lemma(shared_data):
    """Danish and Hungarian forms against lemmas."""
    for language in ("dan", "hun"):
        data = rows(shared_data / "inflection_sigmorphon2023" / f"{language}.dev.tsv")
        pairs = [(form, lemma) for lemma, _, form in data if form.isalpha() and lemma.isalpha()]
        lemmas = sorted({lemma for _, lemma in pairs})
        chosen = [p for p in pairs if p[0] != p[1] and len(p[0]) > 3][::12]
        asked = questions(chosen, lemmas)
        abc = alphabet_of(asked)
        own = mean_rank(Grammar.load("morphology").loss(abc), asked)
        assert own < 1.5
        assert own <= mean_rank(fg.EditDistance(abc), asked) + 1e-9
