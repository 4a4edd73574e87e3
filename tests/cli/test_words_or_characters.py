"""`--loss wer` counts words and `--loss cer` characters, whatever the default of a column is."""

import json

import pytest

PAIR = "the cat\tthe dog\n"


@pytest.mark.parametrize("loss, expected", [("wer", 1 / 2), ("cer", 3 / 7)])
def test_rates_of_sentences(run, loss, expected):
    assert float(run("loss", "--loss", loss, "-", stdin=PAIR)[1]) == expected


def test_a_rate_of_an_empty_reference(run):
    code, out, _ = run("loss", "--loss", "wer", "-", stdin="the cat\t\n\tthe\n\t\n")
    assert (code, out) == (0, "2.0\n1.0\n0.0\n")


@pytest.mark.parametrize("command", ["loss", "risk", "grad"])
@pytest.mark.parametrize("loss, tokens, other", [("wer", "chars", "cer"), ("cer", "words", "wer")])
def test_other_tokens_are_refused(run, command, loss, tokens, other):
    code, _, err = run(command, "--loss", loss, "--tokens-y", tokens, "-", stdin=PAIR)
    assert code == 2
    assert f"leave --tokens-y {tokens} out, or use --loss {other}" in err


def test_an_alphabet_of_characters_has_no_words(run, tmp_path):
    letters = tmp_path / "letters"
    letters.write_text("\n".join("acdeghot"), encoding="utf-8")
    code, _, err = run("loss", "--loss", "wer", "--alphabet", letters, "-", stdin=PAIR)
    assert code == 1
    assert "the word 'the'" in err
    assert "make the alphabet from words: give --alphabet with one word per line" in err


def test_a_model_of_characters_has_no_word_error_rate(run, tmp_path):
    model = tmp_path / "model.npz"
    assert run("train", "--epochs", "1", "-o", model, "-", stdin=PAIR)[0] == 0
    code, _, err = run("evaluate", "--loss", "wer", model, "-", stdin=PAIR)
    assert code == 2
    assert "--loss wer does not count chars, which the model writes; use --loss cer" in err
    assert json.loads(run("evaluate", "--loss", "cer", model, "-", stdin=PAIR)[1])["pairs"] == 1


def test_an_empty_reference_is_evaluated(run, tmp_path):
    model = tmp_path / "model.npz"
    assert run("train", "--loss", "wer", "--epochs", "1", "-o", model, "-", stdin=PAIR)[0] == 0
    code, out, _ = run("evaluate", model, "-", stdin="the cat\t\nthe cat\tthe dog\n")
    found = json.loads(out)
    written = run("predict", model, "-", stdin="the cat\n")[1].split("\t")[1].split()
    edits = len(written) + sum(word not in ("the", "dog") for word in written)
    assert (code, found["error_rate"]) == (0, edits / 2)


def test_words_are_not_compared_with_characters(run):
    code, out, err = run("loss", "--tokens-x", "words", "-", stdin=PAIR)
    assert (code, out) == (2, "")
    assert "--tokens-x words and --tokens-y chars compare words such as 'cat'" in err
    both = ("--tokens-x", "words", "--tokens-y", "words")
    assert run("loss", *both, "-", stdin=PAIR)[:2] == (0, "1.0\n")
    assert run("loss", "--tokens-x", "words", "-", stdin="a b\tab\n")[:2] == (0, "0.0\n")


@pytest.mark.filterwarnings("always::fstgrad.UnusedArcsWarning")
def test_symbols_that_characters_spell_are_told(run, tmp_path):
    rules, alphabet = tmp_path / "x.rules", tmp_path / "alphabet"
    rules.write_text("alphabet = ch c h a t x\nch -> x 0.25\n")
    alphabet.write_text("\n".join(["ch", *"chatx"]) + "\n")
    code, out, err = run("loss", "--loss", rules, "-", stdin="chat\txat\n")
    assert (code, out) == (0, "2.0\n")
    assert "rules with the symbols 'ch' do not apply to strings of characters" in err
    code, _, err = run("loss", "--loss", rules, "--alphabet", alphabet, "-", stdin="chat\txat\n")
    assert "texts are split into characters, and never have the symbol 'ch' of the alphabet" in err
    words = ("--tokens-x", "words", "--tokens-y", "words")
    code, out, err = run("loss", "--loss", rules, *words, "-", stdin="ch a t\tx a t\n")
    assert (code, out) == (0, "0.25\n")
    assert "'ch'" not in err


@pytest.mark.parametrize("tokens", ["chars", "words"])
def test_letters_in_two_unicode_forms_are_told(run, tokens):
    options = ("--tokens-x", tokens, "--tokens-y", tokens, "-")
    err = run("loss", *options, stdin="caf\u00e9\tcafe\u0301\n")[2]
    symbol = "\u00e9" if tokens == "chars" else "caf\u00e9"
    assert f"the data has {symbol!r} in the Unicode forms NFC and NFD" in err
    assert "Unicode" not in run("loss", *options, stdin="caf\u00e9\tcafe\n")[2]
