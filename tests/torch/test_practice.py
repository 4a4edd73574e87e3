"""What a training program does to a loss, each a row for every objective of `cases`."""

import multiprocessing
import pickle

import pytest

torch = pytest.importorskip("torch")
from torch.utils.checkpoint import checkpoint  # noqa: E402

import fstgrad as fg  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402
from tests.helpers.selection import in_turn  # noqa: E402
from tests.torch import cases  # noqa: E402

EVERY = pytest.mark.parametrize("name", cases.MODULES)
SOME = pytest.mark.parametrize("name", cases.EACH_OPERATOR)
# these take Python objects for each item, whose calls a compiled graph steps aside for
PARTIAL = ("Lattice", "lattice", "MRF", "mrf", "Transducer")
WHOLE = [name for name in cases.EACH_OPERATOR if not name.startswith(PARTIAL)]


def close(found, expected, tolerance=1e-10):
    assert found[0] == pytest.approx(expected[0], rel=tolerance, abs=tolerance)
    for own, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(own.double(), other.double(), rtol=0, atol=tolerance)


def test_every_function_and_module_has_a_row():
    """Of functions that have a module, the module's; predictions are not differentiable."""
    public = {name: getattr(fgt, name) for name in fgt.__all__}
    rows = {name.split()[0] for name in cases.MODULES}
    inside = {m.function.__name__ for m in public.values() if hasattr(m, "function")}
    assert {"softmax_margin", "lattice_risk", "mrf_nll"} <= inside - rows
    predictions = {n for n, c in public.items() if hasattr(c, "decode")} - {"CRF"}
    assert rows <= public.keys()
    others = {"Estimate", "Sampling", "use_device_paths", "CTCAlignment", "ctc_align"}
    makers = {"function_of", "module_of"}  # their rows are in tests/objectives
    assert public.keys() - rows - inside == predictions | others | makers


@EVERY
def test_gradcheck(name):
    assert torch.autograd.gradcheck(
        lambda *s: cases.value(name, s), cases.scores_of(name), fast_mode=True
    )


# PyTorch looks at tensors that enter a compiled function in a way that it warns of
NO_LEAVES = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@NO_LEAVES
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@SOME
def test_compile(name):
    torch._dynamo.reset()
    module, call = cases.MODULES[name][1](), cases.MODULES[name][2]
    whole = not name.startswith(PARTIAL)

    def network(*scores):  # the objective between other operations of a graph
        return 2 * call(module, *(torch.tanh(s) for s in scores))

    compiled = torch.compile(network, fullgraph=whole, backend="aot_eager")
    for seed in (0, 1):
        scores = cases.scores_of(name, seed=seed)
        found, expected = compiled(*scores), network(*scores)
        assert found.item() == pytest.approx(expected.item(), abs=1e-12)
        slopes = torch.autograd.grad(found, scores), torch.autograd.grad(expected, scores)
        torch.testing.assert_close(*slopes, rtol=0, atol=1e-12)


@NO_LEAVES
@pytest.mark.parametrize("name", WHOLE[::2])
def test_a_compiled_loss_behind_a_plain_network(name):
    """Its inputs are no leaves of the graph."""
    torch._dynamo.reset()
    module, call = cases.MODULES[name][1](), cases.MODULES[name][2]
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    scores = cases.scores_of(name)
    found = call(compiled, *(1.0 * tensor for tensor in scores))
    close((found.item(), torch.autograd.grad(found, scores)), cases.gradients(name, scores))


@NO_LEAVES
def test_lists_break_a_compiled_graph_and_no_more():
    torch._dynamo.reset()
    gold = ["abc", "cb"]
    (scores,), module = cases.scores_of("RiskLoss"), cases.MODULES["RiskLoss"][1]()
    found = torch.compile(lambda s: 2 * module(s.exp(), gold), backend="aot_eager")(scores)
    assert found.item() == pytest.approx(2 * module(scores.exp(), gold).item(), abs=1e-12)


@pytest.mark.parametrize(
    ("name", "dtype"), in_turn(cases.MODULES, [torch.float32, torch.bfloat16, torch.float16])
)
def test_narrow_scores(name, dtype):
    narrow = cases.scores_of(name, dtype)
    found = cases.value(name, narrow)
    assert found.dtype == torch.float32
    slopes = torch.autograd.grad(found, narrow)
    assert all(slope.dtype == dtype for slope in slopes)
    wide = [tensor.detach().double().requires_grad_() for tensor in narrow]
    rounding = 2 * torch.finfo(dtype).eps
    close((found.item(), slopes), cases.gradients(name, wide), rounding)


@pytest.mark.parametrize(
    ("name", "dtype"), in_turn(cases.EACH_OPERATOR, [torch.bfloat16, torch.float16])
)
def test_autocast(name, dtype):
    """The scores come from a linear layer, which autocast runs in half precision."""
    shapes = cases.MODULES[name][0]
    torch.manual_seed(0)
    layers = [torch.nn.Linear(5, shape[-1]) for shape in shapes]
    inputs = [torch.randn(*shape[:-1], 5) for shape in shapes]
    with torch.autocast("cpu", dtype=dtype):
        scores = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
        assert all(tensor.dtype == dtype for tensor in scores)
        found = cases.value(name, scores)
    assert found.dtype == torch.float32
    found.backward()
    assert all(layer.weight.grad.isfinite().all() for layer in layers)
    assert any(layer.weight.grad.any() for layer in layers)
    wide = [tensor.detach().double() for tensor in scores]
    assert found.item() == pytest.approx(cases.value(name, wide).item(), rel=1e-5, abs=1e-5)


@EVERY
def test_strides(name):
    """Transposed storage, and a batch whose items are one tensor expanded."""
    scores = cases.scores_of(name)
    expected = cases.gradients(name, scores)
    turned = [s.detach().transpose(0, -1).contiguous().transpose(0, -1) for s in scores]
    assert not all(tensor.is_contiguous() for tensor in turned)
    close(cases.gradients(name, [tensor.requires_grad_() for tensor in turned]), expected)
    ones = [s.detach()[:1].requires_grad_() for s in scores]
    shared = [one.expand_as(s) for one, s in zip(ones, scores, strict=True)]
    found = cases.value(name, shared)
    copies = [tensor.detach().clone().requires_grad_() for tensor in shared]
    value, slopes = cases.gradients(name, copies)
    summed = [slope.sum(dim=0, keepdim=True) for slope in slopes]
    close((found.item(), torch.autograd.grad(found, ones)), (value, summed))


@EVERY
def test_pickle_and_no_state(name):
    module = cases.MODULES[name][1]()
    copy = pickle.loads(pickle.dumps(module))
    scores = cases.scores_of(name)
    close(cases.gradients(name, scores, copy), cases.gradients(name, scores, module))
    assert list(module.state_dict()) == [name for name, _ in module.named_parameters()]


@pytest.mark.parametrize(
    ("name", "use_reentrant"), in_turn(cases.MODULES, [False, True], cases.EACH_OPERATOR[:1])
)
def test_checkpoint(name, use_reentrant):
    scores = cases.scores_of(name)
    found = checkpoint(lambda *s: cases.value(name, s), *scores, use_reentrant=use_reentrant)
    slopes = []
    if use_reentrant:  # supports .backward() alone
        found.backward()
        slopes = [tensor.grad for tensor in scores]
    else:
        slopes = torch.autograd.grad(found, scores)
    close((found.item(), slopes), cases.gradients(name, cases.scores_of(name)))


@pytest.mark.slow
@NO_LEAVES
@pytest.mark.parametrize("name", WHOLE[1::2])
def test_compiled_checkpoint_of_half_precision(name):
    """All three at once; every row of `cases` has padding of -100 where it has gold."""
    torch._dynamo.reset()

    def network(*scores):
        return cases.value(name, [torch.tanh(s) for s in scores])

    compiled = torch.compile(
        lambda *s: checkpoint(network, *s, use_reentrant=False), backend="aot_eager"
    )
    scores, others = (cases.scores_of(name, torch.bfloat16) for _ in range(2))
    found, expected = compiled(*scores), network(*others)
    slopes = torch.autograd.grad(expected, others)
    assert found.dtype == torch.float32
    close((found.item(), torch.autograd.grad(found, scores)), (expected.item(), slopes), 1e-6)


@pytest.mark.parametrize(
    ("name", "guard"), in_turn(cases.MODULES, [torch.no_grad, torch.inference_mode])
)
def test_evaluation(name, guard):
    """What is computed without gradients, and is trained on with the same module afterwards."""
    module, scores = cases.MODULES[name][1](), cases.scores_of(name)
    value = cases.value(name, scores, module).item()
    with guard():
        plain = cases.value(name, [tensor.clone() for tensor in scores], module)
    assert plain.item() == value
    assert not plain.requires_grad
    close(cases.gradients(name, scores, module), cases.gradients(name, cases.scores_of(name)))


@SOME
def test_upstream_and_accumulation(name):
    """Two backward passes add up, scaled as a loss scaler does."""
    scores = cases.scores_of(name)
    (1024.0 * cases.value(name, scores)).backward()
    (1024.0 * cases.value(name, scores)).backward()
    _, slopes = cases.gradients(name, cases.scores_of(name))
    for tensor, slope in zip(scores, slopes, strict=True):
        torch.testing.assert_close(tensor.grad / 2048.0, slope, rtol=0, atol=1e-10)


@EVERY
def test_torch_func_works_or_says_why_not(name):
    scores = [tensor.detach() for tensor in cases.scores_of(name)]

    def gradient():
        return torch.func.grad(lambda *s: cases.value(name, s))(*scores)

    if name.startswith(("NBest", "SpanningTree", "spanning_tree")):  # plain PyTorch at its outside
        slopes = cases.gradients(name, cases.scores_of(name))[1]
        torch.testing.assert_close(gradient(), slopes[0], rtol=0, atol=1e-12)
        return
    with pytest.raises(fg.NotSupportedError, match=r"torch\.autograd"):
        gradient()


def every_value():
    """The value of every row, as lists, in a process of its own."""
    torch.set_num_threads(1)
    return {name: cases.gradients(name, cases.scores_of(name))[0] for name in cases.MODULES}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # threads are alive: that is it
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers(start):
    """Processes started either way, after the kernels and their threads have run in this one."""
    expected = every_value()
    with multiprocessing.get_context(start).Pool(1) as pool:
        assert pool.apply(every_value) == expected


def trained(rank, port, results):
    """One of two processes: the gradients of linear layers under DistributedDataParallel."""
    import torch.distributed

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    found = {}
    for name, (shapes, make, call) in cases.MODULES.items():
        torch.manual_seed(0)
        heads = torch.nn.ModuleList(torch.nn.Linear(5, shape[-1]) for shape in shapes)
        model = torch.nn.parallel.DistributedDataParallel(Network(heads, make(), call))
        torch.manual_seed(1 + rank)
        model([torch.randn(*shape[:-1], 5) for shape in shapes]).backward()
        found[name] = [p.grad.tolist() for p in model.parameters()]
    results[rank] = found
    del model  # DDP may wait forever for its own threads if it outlives the group
    torch.distributed.destroy_process_group()


class Network(torch.nn.Module):
    """Linear layers and an objective of their outputs."""

    def __init__(self, heads, objective, call):
        super().__init__()
        self.heads, self.objective, self.call = heads, objective, call

    def forward(self, inputs):
        """Return the objective."""
        scores = [head(x) for head, x in zip(self.heads, inputs, strict=True)]
        return self.call(self.objective, *scores)


@pytest.mark.slow
def test_distributed_data_parallel(free_port):
    """Both processes hold the mean of the gradients of their batches."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.dict()
        processes = [
            context.Process(target=trained, args=(rank, free_port, results)) for rank in range(2)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(300)
            assert process.exitcode == 0
        first, second = results[0], results[1]
    for name, (shapes, make, call) in cases.MODULES.items():
        assert first[name] == second[name]
        slopes = []
        for rank in range(2):
            torch.manual_seed(0)
            heads = torch.nn.ModuleList(torch.nn.Linear(5, shape[-1]) for shape in shapes)
            torch.manual_seed(1 + rank)
            model = Network(heads, make(), call)
            model([torch.randn(*shape[:-1], 5) for shape in shapes]).backward()
            slopes.append([p.grad.clone() for p in model.parameters()])
            model.zero_grad()  # a module of the cases may be one for all calls
        for found, one, other in zip(first[name], *slopes, strict=True):
            mean = (one + other) / 2
            found = torch.tensor(found, dtype=mean.dtype)
            torch.testing.assert_close(found, mean, rtol=0, atol=1e-6)


@pytest.fixture
def free_port():
    """A port that nobody listens at."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
