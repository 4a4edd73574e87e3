"""`fstgrad mrf`: what the commands print, write and refuse."""

import re

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.cli.main import main
from fstgrad.mrf import images, uai
from fstgrad.mrf.sampling.marginals import draw
from tests.mrf.models import masked_model, random_grid

pytest.importorskip("PIL", reason="images need Pillow")


@pytest.fixture
def run(capsys):
    """Run `fstgrad mrf ...`: (exit code, standard output, standard error)."""

    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main(["mrf", *map(str, args)])
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def model():
    return masked_model("square with a chord")


@pytest.fixture
def path(tmp_path, model):
    uai.write_model(tmp_path / "m.uai", model)
    return tmp_path / "m.uai"


def test_partition(run, path, model):
    log_z = model.log_partition()
    expected = f"PR\n{log_z / np.log(10):.12g}\nln Z = {log_z:.12g} (exact)\n"
    assert run("partition", path) == (0, expected, "")
    assert run("partition", path, "--max-gib", 1)[1] == expected
    code, out, err = run("partition", path, "--method", "trw", "--tol", "1e-9", "--max-iter", 5000)
    assert (code, err) == (0, "")
    assert out.endswith("(upper bound)\n")


def test_not_converging_is_said_and_is_no_failure(run, path):
    code, out, err = run("partition", path, "--method", "bp", "--max-iter", 1)
    assert code == 0
    assert out.endswith("(bethe)\n")
    assert err.startswith("bp did not converge in 1 iterations")
    # the bound holds for any messages
    assert "(upper bound)" in run("partition", path, "--method", "trw", "--max-iter", 1)[1]


def test_marginals_with_evidence(run, path, model, tmp_path):
    (tmp_path / "m.evid").write_text("1 2 0\n")
    given = model.condition({2: 0})
    expected = uai.format_marginals(given.marginals().node, model.labels_per_node)
    evidence = ("--evidence", tmp_path / "m.evid")
    assert run("marginals", path, *evidence) == (0, expected, "")
    _, out, err = run("marginals", path, *evidence, "--method", "gibbs", "--seed", 3)
    assert "R-hat 1.0" in err
    numbers = [np.array(text.split()[1:], float) for text in (out, expected)]
    np.testing.assert_allclose(*numbers, atol=0.05)
    assert run("marginals", path, *evidence, "--method", "gibbs", "--seed", 3)[1] == out


@pytest.mark.parametrize("method", ["exact", "max-product", "icm"])
def test_map(run, path, model, method):
    code, out, err = run("map", path, "--method", method)
    assert (code, out) == (0, uai.format_mode(model.mode()))
    assert err.startswith(f"score {model.score(model.mode()):.12g} nats")


@pytest.mark.parametrize("method", ["exact", "chromatic"])
def test_sample(run, path, model, method):
    code, out, _ = run("sample", path, "-n", 20, "--method", method, "--seed", 1)
    assert code == 0
    draws = [[int(word) for word in line.split()] for line in out.splitlines()]
    assert len(draws) == 20
    assert all(model.score(y) > -np.inf for y in draws)
    assert run("sample", path, "-n", 20, "--method", method, "--seed", 1)[1] == out


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["partition", "missing.uai"], 2, "'missing.uai' does not exist"),
        (["partition", "m.uai", "--method", "guess"], 2, "'guess' is not one of 'exact', 'bp'"),
        (["partition", "m.uai", "--method", "bp", "--samples", "9"], 1, "has no option --samples"),
        (["partition", "m.uai", "--max-gib", "1e-9"], 1, "raise --max-gib"),
        (["marginals", "bad.uai"], 1, "line 1: the file starts with 'GRAPH'"),
        (["marginals", "m.uai", "--evidence", "clash.evid"], 1, "as 0 and as 1"),
        (["map", "m.uai", "--method", "graph-cut"], 1, "graph-cut needs two labels"),
        (["sample", "m.uai", "-n", "0"], 2, "'--draws'"),
        (["denoise", "bad.uai", "--output", "x.png"], 1, "is not an image"),
        (["denoise", "bad.uai", "--output", "none/x.png"], 2, "does not exist; create it first"),
    ],
)
def test_failures_are_one_line(run, path, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.uai").write_text("GRAPH\n")
    (tmp_path / "clash.evid").write_text("2 0 0 0 1")
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


def noisy_disc(seed=0):
    rows, columns = np.indices((24, 30))
    clean = ((rows - 12) ** 2 + (columns - 15) ** 2 < 64).astype(float)
    return clean, np.clip(
        0.2 + 0.6 * clean + 0.25 * np.random.default_rng(seed).normal(size=clean.shape), 0, 1
    )


@pytest.mark.parametrize("method", ["bp", "graph-cut", "icm", "chromatic", "trw"])
def test_denoise(run, tmp_path, method):
    clean, noisy = noisy_disc()
    images.write_image(tmp_path / "in.png", noisy)
    panels = () if method in ("graph-cut", "icm") else ("--marginals", tmp_path / "p.png")
    code, out, _ = run(
        "denoise", tmp_path / "in.png", "--method", method, "--output", tmp_path / "out.png",
        "--coupling", 1.5, *panels,
    )  # fmt: skip
    assert code == 0
    assert "2 levels" in out
    restored = images.read_image(tmp_path / "out.png") > 0.5
    before = np.mean((noisy > 0.5) != clean)
    assert np.mean(restored != clean) < before / 3
    if panels:
        assert images.read_image(tmp_path / "p.png").shape == clean.shape


def test_denoise_refuses_marginals_of_a_labeling(run, tmp_path):
    images.write_image(tmp_path / "in.png", noisy_disc()[1])
    arguments = [
        "--method",
        "icm",
        "--output",
        tmp_path / "o.png",
        "--marginals",
        tmp_path / "p.png",
    ]
    code, _, err = run("denoise", tmp_path / "in.png", *arguments)
    assert (code, "--marginals needs a method that computes marginals" in err) == (2, True)


def test_segmentation_levels():
    image = np.repeat([[0.1, 0.5, 0.9]], 4, axis=0)
    model, means, *_ = images.segmentation(image, 3, coupling=0.0)
    np.testing.assert_allclose(means, [0.1, 0.5, 0.9])
    assert model.mode().reshape(4, 3).tolist() == [[0, 1, 2]] * 4
    np.testing.assert_allclose(np.exp(model.scores.node).sum(axis=1), 1.0, atol=1e-14)
    even = np.array([[0.0, 1.0], [2.0, 3.0]])  # k-means starts where it has not to move
    np.testing.assert_allclose(images.segmentation(even, 4)[1], even.ravel(), atol=1e-14)
    with pytest.raises(fg.InvalidInputError, match="3 different values and labels is 4"):
        images.segmentation(image, 4)


def test_panels():
    node = random_grid(2, 3, 3).marginals().node
    panels = images.marginal_panels(node, 2, 3)
    assert panels.shape == (2, 3 * 3 + 2)
    np.testing.assert_array_equal(panels[:, 4:7], node[:, 1].reshape(2, 3))


def test_one_chain_is_not_said_to_disagree(run, tmp_path):
    uai.write_model(tmp_path / "s.uai", random_grid(2, 2, 2))
    _, _, err = run(
        "marginals", tmp_path / "s.uai", "--method", "gibbs", "--chains", 1, "--seed", 0
    )
    assert "one chain has no R-hat; give --chains 2 or more" in err
    assert "disagree" not in err


@pytest.mark.parametrize("jitter", [0, 2])
@pytest.mark.parametrize("gray", [(0, 255), (20, 220), (20, 130, 220)])
def test_denoise_an_image_with_flipped_levels(run, tmp_path, gray, jitter):
    """Flips of single pixels go for any gray values, also when these vary a little."""
    rng = np.random.default_rng(1)
    clean = np.repeat(np.arange(len(gray)), 60 // len(gray))[None] * np.ones((40, 1), dtype=int)
    flipped = rng.random(clean.shape) < 0.08
    labels = (clean + flipped * rng.integers(1, len(gray), clean.shape)) % len(gray)
    noisy = np.array(gray)[labels] + rng.integers(-jitter, jitter + 1, clean.shape)
    images.write_image(tmp_path / "in.png", noisy / 255)
    code, out, err = run(
        "denoise", tmp_path / "in.png", "--levels", len(gray), "--output", tmp_path / "out.png"
    )
    assert (code, err) == (0, "")
    assert 0.06 < float(re.search(r"noise (\S+) \(estimated\)", out)[1]) < 0.12
    restored = images.read_image(tmp_path / "out.png") * 255
    assert np.mean(abs(restored - np.array(gray)[clean]) > 3) < flipped.mean() / 3


def test_a_level_that_k_means_mixes_with_others_is_told(run, tmp_path):
    """Of three levels, few pixels have the brightest; few pixels change."""
    rng = np.random.default_rng(5)
    clean = np.repeat([20, 90, 150], 20)[None] * np.ones((60, 1), dtype=int)
    clean[10:16, 50:56] = 230  # 1 percent
    noisy = rng.normal(clean, 10)
    images.write_image(tmp_path / "in.png", noisy.clip(0, 255) / 255)
    code, out, err = run("denoise", tmp_path / "in.png", "--levels", 3, "-o", tmp_path / "o.png")
    assert (code, float(re.search(r"(\S+)% of", out)[1]) < 20) == (0, True)
    assert re.match(r"(0\.9|1\.0)\d% of the pixels are far from all levels", err)


def test_a_level_that_k_means_splits_is_told(run, tmp_path):
    """A rare level between two others gets no mean, and a frequent one gets two."""
    rng = np.random.default_rng(5)
    clean = np.repeat([40, 120, 200], 20)[None] * np.ones((60, 1), dtype=int)
    clean[10:15, 5:10] = 80
    images.write_image(tmp_path / "in.png", rng.normal(clean, 12).clip(0, 255) / 255)
    for levels, is_split in ((4, True), (3, False)):
        err = run("denoise", tmp_path / "in.png", "--levels", levels, "-o", tmp_path / "o.png")[2]
        assert ("two levels are as near as the halves of one" in err) == is_split


def test_gray_levels_that_few_pixels_have_can_be_given(run, tmp_path):
    noisy = np.random.default_rng(3).normal(20, 12, size=(40, 60))
    noisy[10:14, 10:14] += 200
    images.write_image(tmp_path / "in.png", noisy.clip(0, 255) / 255)
    said = run("denoise", tmp_path / "in.png", "-o", tmp_path / "o.png")[2]
    assert "give them with --level" in said
    gray = ("--level", "220", "--level", "20")
    code, out, err = run("denoise", tmp_path / "in.png", *gray, "--output", tmp_path / "o.png")
    assert (code, "2 levels (20, 220), noise" in out) == (0, True)
    assert "--level" not in err
    restored = images.read_image(tmp_path / "o.png") * 255
    expected = np.where(noisy > 120, 220, 20)
    np.testing.assert_allclose(restored, expected, atol=0.5)
    for wrong, message in ((gray[:2], "two or more"), ((*gray, "--levels", "2"), "beside --level")):
        code, _, err = run("denoise", tmp_path / "in.png", *wrong, "--output", tmp_path / "o.png")
        assert (code, message in err) == (2, True)
    with pytest.raises(fg.InvalidInputError, match="means has a level twice"):
        images.segmentation(noisy, 2, means=[0.0, 0.0])


def test_denoise_says_that_nothing_changed(run, tmp_path):
    images.write_image(tmp_path / "in.png", noisy_disc()[0])
    code, out, err = run("denoise", tmp_path / "in.png", "--output", tmp_path / "o.png")
    assert (code, "0.0%" in out) == (0, True)
    assert err.startswith("no pixel changed its level: none differs enough from its neighbours; if")
    assert err.endswith("the image is noisy, try a larger --coupling or --noise\n")
    code, _, err = run("denoise", tmp_path / "in.png", "--noise", 0.5, "-o", tmp_path / "o.png")
    assert (code, "noise is 0.5 and must be below 0.5" in err) == (1, True)


@pytest.mark.parametrize("method", ["bp", "expansion"])
def test_denoise_colours_with_contrast_and_a_figure(run, tmp_path, method):
    clean, _ = noisy_disc()
    colours = np.array([[0.9, 0.2, 0.1], [0.1, 0.3, 0.8]])[clean.astype(int)]
    noisy = np.clip(colours + 0.2 * np.random.default_rng(0).normal(size=colours.shape), 0, 1)
    images.write_image(tmp_path / "in.png", noisy)
    code, out, _ = run(
        "denoise", tmp_path / "in.png", "--output", tmp_path / "out.png", "--method", method,
        "--contrast", 0.5, "--plot", tmp_path / "f.png",
    )  # fmt: skip
    assert (code, "2 levels" in out) == (0, True)
    restored = images.read_image(tmp_path / "out.png", colour=True)
    assert restored.shape == (24, 30, 3)
    wrong = np.mean((restored[..., 2] > 0.5) != clean)
    assert wrong < 0.02
    panels = 3 if method == "bp" else 2
    assert images.read_image(tmp_path / "f.png", colour=True).shape == (24, 32 * panels - 2, 3)


def test_partition_between_bounds_and_by_annealing(run, path, model, tmp_path):
    log_z = model.log_partition()
    out = run("partition", path, "--method", "bounds")[1]
    assert out.endswith(f"({log_z:.12g} to {log_z:.12g})\n")
    smooth = random_grid(2, 2, 2)
    uai.write_model(tmp_path / "s.uai", smooth)
    out = run("partition", tmp_path / "s.uai", "--method", "ais")[1]
    assert "(standard error" in out
    for method, said in [("bp", "exact if the graph has no loops"), ("trw", "approximations")]:
        assert said in run("marginals", path, "--method", method)[2]
    assert run("marginals", path)[2] == ""


@pytest.mark.slow
def test_annealing_takes_a_seed_and_prints_the_error_of_marginals(run, tmp_path):
    uai.write_model(tmp_path / "s.uai", random_grid(2, 2, 2))
    said = run("marginals", tmp_path / "s.uai", "--method", "ais")[2]
    assert "largest standard error of a marginal 0." in said
    seeded = [
        run("partition", tmp_path / "s.uai", "--method", "ais", "--seed", 3)[1:] for _ in "ab"
    ]
    assert seeded[0] == seeded[1]
    assert seeded[0][1] == ""


def test_chains_that_disagree_are_said_to_beside_the_result(run, tmp_path):
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n\n4\n1 1e-30 1e-30 1\n")
    options = ("--method", "gibbs", "--chains", 4, "--samples", 40, "--seed", 0)
    code, out, err = run("marginals", tmp_path / "m.uai", *options)
    assert (code, out.count("\n")) == (0, 2)
    assert "the chains disagree; use more --samples or --burn-in" in err


def equal_variables(path, pairs):
    """Write a model of variables that are equal along `pairs`; the first one is 0 with 0.3."""
    count = max(map(max, pairs)) + 1
    scopes = "".join(f"2 {a} {b}\n" for a, b in pairs)
    tables = "4\n1 0 0 1\n" * len(pairs)
    path.write_text(
        f"MARKOV\n{count}\n{'2 ' * count}\n{len(pairs) + 1}\n1 0\n{scopes}2\n0.3 0.7\n{tables}"
    )
    return path


STUCK = ("gibbs", "chromatic", "metropolis", "swendsen-wang", "tempered")
HARD = "hard zeros may keep a chain from some labelings, however long it is; use --method "


@pytest.mark.parametrize("seed", [0, 1, 6])
@pytest.mark.parametrize("method", STUCK)
def test_hard_zeros_that_hold_chains_are_named_with_methods_that_help(run, tmp_path, method, seed):
    """Also where all chains start in the same part and agree; more draws would help none."""
    path = equal_variables(tmp_path / "m.uai", [(0, 1), (1, 2), (2, 3)])
    draws = ("--seed", seed, "--samples", 40, "--chains", 2)
    err = run("marginals", path, "--method", method, *draws)[2]
    assert err.endswith(HARD + "blocked or exact\n")
    assert "--samples" not in err
    code, out, err = run("sample", path, "--method", method, "--seed", seed)
    assert (code, len(set(out.splitlines())), err) == (0, 1, HARD + "blocked or exact\n")


def test_methods_that_are_named_beside_hard_zeros_help(run, tmp_path):
    path = equal_variables(tmp_path / "m.uai", [(0, 1), (1, 2), (2, 3)])
    for method, seed in (("blocked", ("--seed", 0)), ("exact", ())):
        _, out, err = run("marginals", path, "--method", method, *seed)
        assert "hard zeros" not in err
        assert [float(p) for p in out.split()[3::3]] == pytest.approx([0.3] * 4, abs=0.03)
        _, out, err = run("sample", path, "--method", method, "--seed", 0, "-n", 50)
        assert (set(out.splitlines()), err) == ({"0 0 0 0", "1 1 1 1"}, "")


def test_blocks_are_not_advised_on_loops(run, tmp_path):
    path = equal_variables(tmp_path / "m.uai", [(0, 1), (1, 2), (2, 3), (0, 3)])
    for method in ("gibbs", "blocked"):
        _, out, err = run("sample", path, "--method", method, "--seed", 0)
        assert (len(set(out.splitlines())), err) == (1, HARD + "exact\n")
    uai.write_model(tmp_path / "s.uai", random_grid(2, 2, 2))
    assert run("sample", tmp_path / "s.uai", "--method", "gibbs", "--seed", 0)[2] == ""


def test_draws_of_a_chain_begin_after_100_sweeps(run, path, model):
    drawn = draw(model, 20, burn_in=100, thin=10, rng=5)
    np.testing.assert_array_equal(draw(model, 20, rng=5), drawn)
    assert run("sample", path, "-n", 20, "--method", "chromatic", "--seed", 5)[1] == "".join(
        " ".join(map(str, labels)) + "\n" for labels in drawn.tolist()
    )


def test_denoise_says_which_levels_are_lost(run, tmp_path):
    pixels = np.full((20, 20), 40)
    pixels[:, 10:] = 120
    pixels[5, 5] = 230
    images.write_image(tmp_path / "in.png", pixels / 255)
    levels = [word for gray in (40, 120, 230) for word in ("--level", gray)]
    given = ("denoise", tmp_path / "in.png", *levels, "--noise", 0.2, "-o", tmp_path / "o.png")
    said = run(*given, "--coupling", 3)[2]
    assert "1 level (230) without a pixel; a smaller --coupling keeps more of them" in said
    assert images.read_image(tmp_path / "o.png").max() * 255 < 121
    assert "without a pixel" not in run(*given, "--coupling", 0.01)[2]
