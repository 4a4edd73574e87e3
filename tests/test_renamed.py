"""Old names work for one release, with a warning."""

import importlib
import sys

import numpy as np
import pytest

import fstgrad as fg


@pytest.mark.parametrize(
    "old, new, name",
    [
        ("fstgrad.models", "fstgrad.training.sequence", "sequence"),
        ("fstgrad.grm.bases", "fstgrad.grm.families", "Poisson"),
    ],
)
def test_old_name_warns_and_works(old, new, name, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match="renamed"):
        module = importlib.import_module(old)
    current = importlib.import_module(new)
    assert getattr(module, name) is (current if name == "sequence" else getattr(current, name))


@pytest.mark.parametrize(
    "old, new, name",
    [
        ("curves", "curves", "write_curves"),
        ("kernels", "kernels", "templates"),
        ("lengths", "lengths", "LengthModel"),
        ("measures", "measures", "Evaluation"),
        ("sequence", "sequence", "SequenceModel"),
        ("shards", "shards", "shard_sums"),
        ("storage", "storage", "load"),
        ("templates", "templates", "Window"),
        ("templates", "template_features", "TemplateFeatures"),
        ("training", "trainer", "Trainer"),
    ],
)
def test_every_module_of_models_has_its_old_name(old, new, name, monkeypatch):
    for loaded in [module for module in sys.modules if module.startswith("fstgrad.models")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.warns(DeprecationWarning, match="fstgrad.models was renamed"):
        module = importlib.import_module(f"fstgrad.models.{old}")
    assert getattr(module, name) is getattr(
        importlib.import_module(f"fstgrad.training.{new}"), name
    )
    assert getattr(importlib.import_module("fstgrad.models"), old) is module


def test_old_names_of_attributes_and_arguments():
    b = fg.Hamming(fg.Alphabet("ab")).compile("ab")
    with pytest.warns(DeprecationWarning, match="target was renamed nextstate"):
        assert b.levels[0].target is b.levels[0].nextstate
    arcs = {"label": [0], "scores": [0.0], "alphabet": fg.Alphabet("ab"), "final": [1]}
    with pytest.warns(DeprecationWarning, match="target was renamed nextstate"):
        lattice = fg.Lattice.from_arcs([0], target=[1], **arcs)
    assert lattice.num_paths == 1
    with pytest.raises(AttributeError):
        _ = type(b.levels[0]).target


def test_old_names_of_results():
    r = fg.sampled_softmax_margin(
        np.zeros((2, 2)), "ab", fg.Hamming(fg.Alphabet("ab")), samples=10, rng=0
    )
    for old, new in (
        ("grad", "gradient"),
        ("grad_standard_error", "gradient_standard_error"),
    ):
        with pytest.warns(DeprecationWarning, match=f"{old} was renamed {new}"):
            assert getattr(r, old) is getattr(r, new)
    with pytest.warns(DeprecationWarning, match="max_bytes was renamed max_memory"):
        assert fg.AutomatonCache(max_bytes=5).max_memory == 5


def test_old_names_of_pair_transducers():
    import fstgrad.costs

    for old, new in (("Aligner", "PairTransducer"), ("aligner_of", "pair_transducer")):
        with pytest.warns(DeprecationWarning, match=f"{old} was renamed {new}"):
            assert getattr(fstgrad.costs, old) is getattr(fstgrad.costs, new)
    with pytest.raises(AttributeError, match="nothing"):
        _ = fstgrad.costs.nothing
    fit = fg.fit_costs(fg.EditDistance(fg.Alphabet("ab")), [("a", "a")] * 2, held_out=0.0)
    with pytest.warns(DeprecationWarning, match="aligner was renamed pair_transducer"):
        assert fit.aligner is fit.pair_transducer
    _, slope, _ = found = fstgrad.costs.CostGradient(("a -> b",), np.ones(1), np.zeros(1))
    with pytest.warns(DeprecationWarning, match="grad was renamed gradient"):
        assert found.grad is found.gradient is slope


def test_old_names_in_training_and_costs():
    from fstgrad.costs import Schedule
    from fstgrad.training.align import Aligner
    from fstgrad.training.templates import Window

    with pytest.warns(DeprecationWarning, match="max_iterations was renamed max_iter"):
        schedule = Schedule(max_iterations=7, restarts=2)
    assert schedule == Schedule(7, restarts=2)
    with pytest.warns(DeprecationWarning, match="max_iterations was renamed max_iter"):
        assert schedule.max_iterations == schedule.max_iter == 7
    with pytest.warns(DeprecationWarning, match="iterations was renamed max_iter"):
        aligner = Aligner(iterations=7)
    with pytest.warns(DeprecationWarning, match="iterations was renamed max_iter"):
        assert aligner.iterations == aligner.max_iter == 7
    pairs = [("ab", "xy")]
    features = fg.TemplateFeatures.from_pairs(fg.Alphabet("xy"), 2, Window(0, 1), pairs)
    with pytest.warns(DeprecationWarning, match="gram_places was renamed gram_support"):
        np.testing.assert_array_equal(features.gram_places, features.gram_support)
    given = fg.EditDistance(fg.Alphabet("ab")), [("ab", 1, ["aa", "bb"])]
    with pytest.warns(DeprecationWarning, match="max_iterations was renamed max_iter"):
        old = fg.fit_ranking(*given, max_iterations=2)
    np.testing.assert_array_equal(old.cost, fg.fit_ranking(*given, max_iter=2).cost)


def test_old_name_of_the_reference_engine():
    from fstgrad import reference

    with pytest.warns(DeprecationWarning, match="with_merged_futures was renamed merge_equiv"):
        assert reference.with_merged_futures is reference.merge_equivalent_states
    with pytest.raises(AttributeError, match="nothing"):
        _ = reference.nothing


def test_old_names_of_options():
    model = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
    with pytest.warns(DeprecationWarning, match="max_bytes was renamed max_memory"):
        assert model.infer("exact", max_bytes=10**6).log_partition == pytest.approx(np.log(4))
    with pytest.raises(fg.FstgradError, match="has no option 'max_bytes'; it has max_iter"):
        model.infer("bp", max_bytes=10**6)


def test_old_names_of_methods_of_random_fields():
    from fstgrad.mrf.sampling.marginals import draw, sample_marginals

    model = fg.PairwiseMRF(np.zeros((2, 2)), np.eye(2), [(0, 1)])
    for old in ("mean_field", "max_product", "swendsen_wang"):
        new = old.replace("_", "-")
        with pytest.warns(DeprecationWarning, match=f"{old} was renamed {new}"):
            assert model.infer(old).method == new
        assert model.infer(new).method == new
    for old in ("max_product", "graph_cut"):
        new = old.replace("_", "-")
        with pytest.warns(DeprecationWarning, match=f"{old} was renamed {new}"):
            assert model.decode(old).method == new
    with pytest.warns(DeprecationWarning, match="mean_field was renamed mean-field"):
        assert model.nll([0, 0], "mean_field")[0] == model.nll([0, 0], "mean-field")[0]
    with pytest.warns(DeprecationWarning, match="graph_cut was renamed graph-cut"):
        model.nll([0, 1], "hinge", decoder="graph_cut")
    chains = (
        lambda name: draw(model, 2, sampler=name, rng=0),
        lambda name: model.nll([0, 1], "cd", sampler=name, rng=0)[1].node,
        lambda name: sample_marginals(model, sampler=name, samples=40, rng=0).node,
    )
    for call in chains:
        with pytest.warns(DeprecationWarning, match="swendsen_wang was renamed swendsen-wang"):
            found = call("swendsen_wang")
        np.testing.assert_array_equal(found, call("swendsen-wang"))


def test_old_names_of_methods_on_the_command_line(tmp_path, capsys):
    from fstgrad.cli.main import main
    from fstgrad.mrf import uai

    uai.write_model(tmp_path / "m.uai", fg.PairwiseMRF(np.zeros((2, 2)), np.eye(2), [(0, 1)]))
    outputs = []
    for name in ("graph_cut", "graph-cut"):
        with pytest.raises(SystemExit) as stop:
            main(["mrf", "map", str(tmp_path / "m.uai"), "--method", name])
        assert not stop.value.code
        outputs.append(capsys.readouterr())
    assert outputs[0].out == outputs[1].out
    assert outputs[0].err == "--method graph_cut was renamed graph-cut\n" + outputs[1].err
    with pytest.raises(SystemExit) as stop:
        main(["mrf", "partition", str(tmp_path / "m.uai"), "--method", "graph_cut"])
    assert stop.value.code == 2
    assert "_" not in capsys.readouterr().err.partition("one of")[2]


def test_old_names_of_methods_in_pytorch():
    torch = pytest.importorskip("torch")
    import fstgrad.torch as fgt

    graph = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
    given = torch.zeros(2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    gold = torch.tensor([0, 1])
    new = fgt.MRFLoss(graph=graph, method="mean-field")(*given, gold)
    with pytest.warns(DeprecationWarning, match="mean_field was renamed mean-field"):
        assert fgt.MRFLoss(graph=graph, method="mean_field")(*given, gold) == new


def test_old_names_of_arguments_of_families():
    base = fg.grm.families.Poisson()
    for call, options in (
        (base.log_partition, {"method": "bounds"}),
        (base.gradient_bounds, {}),
        (base.hessian_bounds, {}),
    ):
        with pytest.warns(DeprecationWarning, match="tol was renamed tolerance"):
            found = call([0.5, -0.1], tol=1e-3, **options)
        np.testing.assert_array_equal(found, call([0.5, -0.1], tolerance=1e-3, **options))
