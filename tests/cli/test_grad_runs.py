"""`fstgrad grad` over many rows: processes, continued runs, interruptions, methods."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fstgrad.cli.main import main


@pytest.fixture
def run(capsys):
    """Run `fstgrad grad`: (exit code, standard output, standard error)."""

    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main(["grad", *map(str, args)])
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


def rows(count):
    rng = np.random.default_rng(5)
    return [f"x{i}\t{''.join(rng.choice(list('abcd'), size=6))}" for i in range(count)]


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(rows(50)) + "\n")
    return path


def arrays(path):
    with np.load(path) as archive:
        return {name: archive[name].tobytes() for name in archive.files}


def without_times(text):
    return [{k: v for k, v in json.loads(s).items() if k != "seconds"} for s in text.splitlines()]


def test_processes_change_nothing(run, pairs, tmp_path):
    options = ("--objective", "raml", "--output")
    code, out, _ = run(pairs, *options, tmp_path / "1.npz")
    assert code == 0
    code, out2, _ = run(pairs, *options, tmp_path / "2.npz", "--jobs", 2)
    assert code == 0
    assert without_times(out) == without_times(out2)
    assert arrays(tmp_path / "1.npz") == arrays(tmp_path / "2.npz")


def test_a_stopped_run_continues_to_the_same_gradient(run, pairs, tmp_path):
    options = ("--random-weights", 1, "--alphabet", tmp_path / "abc")
    (tmp_path / "abc").write_text("a\nb\nc\nd\n")
    run(pairs, *options, "--output", tmp_path / "whole.npz", "--journal", tmp_path / "whole.jsonl")

    good = pairs.read_text()
    lines = good.splitlines()
    pairs.write_text("\n".join([*lines[:37], "bad", *lines[38:]]) + "\n")
    journal = tmp_path / "part.jsonl"
    code, _, err = run(pairs, *options, "--journal", journal)
    assert code == 1
    assert "pairs.tsv:38" in err
    assert len(journal.read_text().splitlines()) == 37
    pairs.write_text(good)
    with journal.open("a") as file:
        file.write('{"line": 38, "y": "cut o')
    code, out, err = run(pairs, *options, "--journal", journal, "--output", tmp_path / "part.npz")
    assert (code, out) == (0, "")
    assert "over 50 pairs" in err
    whole = (tmp_path / "whole.jsonl").read_text()
    assert without_times(journal.read_text()) == without_times(whole)
    assert arrays(tmp_path / "part.npz") == arrays(tmp_path / "whole.npz")
    before = journal.read_text()
    run(pairs, *options, "--journal", journal, "--output", tmp_path / "again.npz")
    assert journal.read_text() == before
    assert arrays(tmp_path / "again.npz") == arrays(tmp_path / "whole.npz")


def test_a_run_with_other_options_or_rows_is_not_continued(run, pairs, tmp_path):
    journal = tmp_path / "r.jsonl"
    assert run(pairs, "--journal", journal)[0] == 0
    before = journal.read_text()
    code, _, err = run(pairs, "--journal", journal, "--loss", "hamming")
    assert code == 1
    assert "other options" in err
    text = pairs.read_text()
    pairs.write_text("y" + text)
    code, _, err = run(pairs, "--journal", journal)
    assert code == 1
    assert "the first 50 rows are not those" in err
    assert journal.read_text() == before
    pairs.write_text(text)
    (tmp_path / "r.jsonl.npz").unlink()
    code, _, err = run(pairs, "--journal", journal)
    assert code == 1
    assert "no checkpoint" in err
    (tmp_path / "r.jsonl.npz").write_text("damaged")
    assert "not a checkpoint" in run(pairs, "--journal", journal)[2]


def test_added_rows_are_added(run, pairs, tmp_path):
    journal = tmp_path / "r.jsonl"
    assert run(pairs, "--journal", journal)[0] == 0
    with pairs.open("a") as file:
        file.write("\n".join(rows(60)[50:]) + "\n")
    code, _, err = run(pairs, "--journal", journal, "--output", tmp_path / "1.npz")
    assert (code, "over 60 pairs" in err) == (0, True)
    run(pairs, "--output", tmp_path / "2.npz")
    with np.load(tmp_path / "1.npz") as one, np.load(tmp_path / "2.npz") as two:
        np.testing.assert_allclose(one["gradient"], two["gradient"], rtol=1e-13, atol=1e-15)


def test_skipped_rows_are_counted_once(run, pairs, tmp_path):
    lines = pairs.read_text().splitlines()
    pairs.write_text("\n".join(["bad", *lines]) + "\n")
    journal = tmp_path / "r.jsonl"
    for _ in range(2):
        code, _, err = run(pairs, "--journal", journal, "--skip-errors")
        assert code == 0
        assert "skipped 1 of 51 rows" in err


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interruption_leaves_whole_lines(tmp_path, jobs):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("\n".join(rows(3000)) + "\n")
    journal = tmp_path / "r.jsonl"
    # a test that runs in the background of a shell inherits an ignored SIGINT
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from fstgrad.cli.main import main; main()"
    command = [sys.executable, "-c", code, "grad"]
    command += [str(pairs), "--journal", str(journal), "--jobs", str(jobs)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    for _ in range(2400):
        if journal.exists() and journal.stat().st_size:
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert err.strip() == "fstgrad: interrupted; what was written so far is complete"
    numbers = [json.loads(line)["line"] for line in journal.read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 0 < len(numbers) < 3000
    sums = tmp_path / "r.jsonl.npz"
    if sums.exists():  # it may not be written yet
        with np.load(sums) as checkpoint:
            assert checkpoint["counts"][2] <= len(numbers)


def test_methods(run, pairs):
    code, out, err = run(pairs, "--method", "auto", "--max-states", 60, "--cap", 2)
    assert code == 0
    chosen = {line["method"] for line in map(json.loads, out.splitlines())}
    assert "capped" in chosen
    assert "auto chose" in " ".join(err.split())
    assert "exact exceeds 60 states" in err
    code, out, err = run(pairs, "--method", "sampled", "--samples", 100)
    lines = [json.loads(line) for line in out.splitlines()]
    assert all(line["standard_error"] >= 0 for line in lines)
    assert all(1 <= line["effective_samples"] <= 100 for line in lines)
    assert "100 samples per pair" in err
    assert "+-" in err
    code, _, err = run(pairs, "--method", "capped")
    assert code == 1
    assert "cap" in err


def test_a_cap_that_is_raised(run, pairs, tmp_path):
    exact = [json.loads(line) for line in run(pairs)[1].splitlines()]
    options = ("--cap", "auto", "--tolerance", 0.5)
    journal = tmp_path / "r.jsonl"
    code, _, err = run(pairs, *options, "--journal", journal)
    assert code == 0
    assert "within 0.5 nats (caps stopped by tolerance for 50)" in " ".join(err.split())
    assert "under the uncapped loss, up to" in " ".join(err.split())
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line, true in zip(lines, exact, strict=True):
        assert (line["method"], line["reason"]) == ("capped", "tolerance")
        assert line["cap"] == round(line["cap"]) >= 1
        assert line["lower"] == line["objective"] <= true["objective"] + 1e-10
        assert true["objective"] <= line["upper"] + 1e-10
        assert line["upper"] - line["lower"] <= 0.5
    again = run(pairs, *options, "--journal", journal)[2]
    assert "under the uncapped loss, up to" in " ".join(again.split())
    assert run(pairs, "--cap", "auto", "--tolerance", 0.4, "--journal", journal)[0] == 1

    out = run(pairs, *options, "--max-states", 20)[1]
    assert {json.loads(line)["reason"] for line in out.splitlines()} == {"state limit"}
    pairs.write_text("x\tabca\nx\tabcabcababca\nx\tabcabcababcacabbacab\n")
    options = ("--tolerance", 3, "--max-states", 400, "--random-weights", 0)
    code, out, err = run(pairs, "--method", "auto", "--cap", "auto", *options)
    assert (code, "auto chose exact for 1, capped for 1" in " ".join(err.split())) == (0, True)
    chosen = [json.loads(line) for line in out.splitlines()]
    assert [line["method"] for line in chosen] == ["exact", "capped", "sampled"]
    assert all(("reason" in line) == (line["method"] != "exact") for line in chosen)
    assert chosen[2]["lower"] <= chosen[2]["objective"] <= chosen[2]["upper"]
    assert "cap" not in exact[0]
    assert run(pairs, "--cap", "much")[0] == 2


def test_compiled_losses_are_kept_in_a_folder(run, pairs, tmp_path):
    first = run(pairs, "--cache", tmp_path / "kept")[1]
    kept = sorted((tmp_path / "kept").iterdir())
    assert len(kept) == len(set(row.split("\t")[1] for row in rows(50)))
    assert without_times(run(pairs, "--cache", tmp_path / "kept")[1]) == without_times(first)
    assert sorted((tmp_path / "kept").iterdir()) == kept


@pytest.mark.parametrize("objective", ["hinge", "raml", "direct"])
def test_values_that_are_no_number_are_null(run, pairs, objective):
    found = [json.loads(line) for line in run(pairs, "--objective", objective)[1].splitlines()]
    assert len(found) == 50
    assert {line["log_z"] is None for line in found} == {objective != "raml"}


def test_proposal_and_seconds(run, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("x\tabcabcab\n")
    sampled = ["--method", "sampled", "--samples", 50]
    for proposal in ("plain", "band"):
        (line,) = run(path, *sampled, "--proposal", proposal)[1].splitlines()
        assert json.loads(line)["proposal"].startswith(proposal)
    line = json.loads(run(path, "--method", "auto", "--max-states", 20, "--seconds", 0.2)[1])
    assert line["method"] == "sampled"
    assert line["lower"] < line["objective"] < line["upper"]
    for options, said in (
        (["--proposal", "band"], "--proposal has no effect"),
        (["--seconds", 1], "--seconds has no effect"),
        ([*sampled, "--seconds", 1], "--seconds has no effect"),
        (["--method", "auto", "--seconds", 0], "--seconds"),
        (["--temperature", 2], "--temperature has no effect"),
        (["--objective", "raml", "--epsilon", 2], "--epsilon has no effect"),
        (["--objective", "hinge", "--loss", "none"], "give --loss"),
    ):
        code, out, err = run(path, *options)
        assert (code, out) == (2, "")
        assert said in err
    code, _, err = run(path, "--objective", "hinge", "--method", "sampled")
    assert code == 1
    assert "exactly" in err


def test_the_seconds_of_a_run_are_told(run, pairs):
    began = time.perf_counter()
    said = "".join(run(pairs)[1:])
    seconds = float(re.search(r"over\s+50\s+pairs\s+in\s+([\d.]+)\s+s;", said)[1])
    assert 0.0 <= seconds <= time.perf_counter() - began + 0.05
