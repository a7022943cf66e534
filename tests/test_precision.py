"""Tests of the precision of products: which one PyTorch's settings ask for, what a processor has, and who says so."""

import json
import os
import subprocess
import sys
import warnings

import cases
import pytest
import torch
from tolerances import PRODUCTS, assert_norm_close

import seegera_fast as sf
from seegera_fast import backends, precision
from seegera_fast.command.main import main

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def settings():
    """PyTorch's settings are as they were after each test."""
    own = [library.matmul.fp32_precision for library in (torch.backends.mkldnn, torch.backends.cuda)]
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision = own


@pytest.mark.parametrize("name", precision.PRECISIONS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_setting_of_all_products(name, device):
    torch.set_float32_matmul_precision(name)
    assert precision.asked(device) == name


@pytest.mark.parametrize(("own", "name"), [("ieee", "highest"), ("tf32", "high"), ("bf16", "medium")])
def test_the_setting_of_a_library(own, name):
    torch.backends.mkldnn.matmul.fp32_precision = own
    assert precision.asked("cpu") == name
    assert precision.asked("cuda") == "highest"
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert precision.asked("cuda") == "high"


def test_autocast_comes_first():
    torch.set_float32_matmul_precision("highest")
    with torch.autocast("cpu", torch.bfloat16), precision.of_autocast("cpu"):
        assert precision.asked("cpu") == "medium"
        assert precision.asked("cuda") == "highest"
    assert precision.asked("cpu") == "highest"


def test_a_run_in_autocast_knows_its_precision(monkeypatch):
    """What a checkpoint and a report say is what the operations do, also before the first of them."""
    monkeypatch.setitem(precision._CPU, "none", ("medium",))
    monkeypatch.setattr(backends, "bfloat16_products", lambda: None)
    device = torch.device("cpu")
    assert precision.in_use(device) == "highest"
    with torch.autocast("cpu", torch.bfloat16):
        assert precision.asked("cpu") == precision.in_use(device) == "medium"
    with sf.use_backend("reference"), torch.autocast("cpu", torch.bfloat16):
        assert precision.in_use(device) == "medium"
    assert precision.in_use(device) == "highest"


def test_what_is_not_fast_is_float32(monkeypatch):
    for offered, fast in (("none", ()), ("kernel", ("medium",)), ("mkl", ("high", "medium")), (None, ())):
        monkeypatch.setattr(backends, "bfloat16_products", lambda offered=offered: offered)
        assert precision.fast("cpu", CPU) == fast
        for index, name in enumerate(precision.PRECISIONS):
            torch.set_float32_matmul_precision(name)
            assert precision.current(backends.CPU, CPU) == (index if name in fast else precision.HIGHEST)


def test_a_precision_that_is_not_fast_is_said_once(monkeypatch):
    monkeypatch.setattr(backends, "bfloat16_products", lambda: "none")
    monkeypatch.setattr(precision, "_told", set())
    torch.set_float32_matmul_precision("medium")
    if backends.CPU.missing is not None:
        pytest.skip("the CPU kernels are not there")
    with pytest.warns(UserWarning, match='precision "medium": products on cpu are computed as "highest"'):
        sf.tasks.embed(
            cases.graph("random", "binary").to(dtype=torch.float32), epochs=1, embedding_dim=4, progress=False
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.tasks.embed(
            cases.graph("random", "binary").to(dtype=torch.float32), epochs=1, embedding_dim=4, progress=False
        )


SCRIPT = """
import sys
import torch
import seegera_fast as sf
from seegera_fast import backends, precision
given = torch.load(sys.argv[1], weights_only=False)
found = {}
for name in precision.PRECISIONS:
    torch.set_float32_matmul_precision(name)
    z = given["z"].requires_grad_()
    value = sf.ops.link_likelihood(z, given["graph"].adjacency, pos_weight=3.0)
    weight = given["weight"].requires_grad_()
    layer = sf.ops.gcn(given["graph"].propagation, z, weight, dropout=0.2, seed=1, activation="none")
    gradients = torch.autograd.grad((value.sum(), layer), (z, weight), (torch.tensor(1.0), given["upstream"]))
    found[name] = (value.detach(), layer.detach(), *gradients)
torch.save({"way": backends.bfloat16_products(), "found": found}, sys.argv[2])
"""


@pytest.mark.skipif(backends.instruction_set() is None, reason="the CPU kernels are not there")
@pytest.mark.parametrize("way", ["none", "kernel", "mkl", "no such way"])
def test_ways_to_multiply_bfloat16(way, tmp_path):
    """Each way gives the reference's numbers; one that is not there falls back to the best that is."""
    graph = cases.large_graph()
    graph = graph.to(dtype=torch.float32)
    n = graph.num_nodes
    given = {
        "graph": graph,
        "z": 0.3 * cases.normal(n, 2, 37, seed=1).float(),
        "weight": cases.normal(37, 53, seed=2).float(),
        "upstream": cases.normal(n, 2, 53, seed=3).float(),
    }
    torch.save(given, tmp_path / "given.pt")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "given.pt"), str(tmp_path / "out.pt")]
    subprocess.run(command, check=True, env={**os.environ, "SEEGERA_BFLOAT16": way})
    told = torch.load(tmp_path / "out.pt")
    assert told["way"] in ({way} if way == "none" else {"none", "kernel", "mkl"})
    wide = graph.to(dtype=torch.float64)
    z, weight = (given[name].double().requires_grad_() for name in ("z", "weight"))
    value = sf.reference.link_likelihood(z, wide.adjacency, pos_weight=3.0)
    layer = sf.reference.gcn(wide.propagation, z, weight, dropout=0.2, seed=1, activation="none")
    upstream = (torch.tensor(1.0, dtype=torch.float64), given["upstream"].double())
    expected = (value, layer, *torch.autograd.grad((value.sum(), layer), (z, weight), upstream))
    for name in PRODUCTS:
        for number, (got, want) in enumerate(zip(told["found"][name], expected, strict=True)):
            assert_norm_close(got, want.detach(), name, name=f"result {number} by {told['way']}")
    same = [torch.equal(told["found"]["medium"][1], told["found"][name][1]) for name in ("highest", "high")]
    assert same == {"none": [True, True], "kernel": [False, False], "mkl": [False, False]}[told["way"]]


def test_a_compiled_model_keeps_its_precision():
    graph = cases.graph("random", "binary").to(dtype=torch.float32)
    model = sf.SeeGera(graph, sf.SeeGeraConfig(embedding_dim=4, hidden_dim=4), seed=0)
    seed = torch.tensor([3])
    torch.compiler.reset()
    with precision.at("medium"):
        want = model(seed=seed).loss
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(seed=seed).loss, want)


def test_the_command_line(tmp_path, capsys):
    """--precision holds for the run, is in its results, and is over afterwards."""
    arguments = ["--data", "digits", "--epochs", "1", "--set", "embedding_dim=8", "--set", "hidden_dim=8", "--quiet"]
    assert main(["train", *arguments, "--precision", "medium", "--out", str(tmp_path / "run")]) == 0
    machine = json.loads((tmp_path / "run" / "results.json").read_text())["machine"]
    torch.set_float32_matmul_precision("medium")
    assert machine["precision"] == precision.in_use(torch.device(machine["device"]))
    assert machine["fast_precisions"][0] == "highest"
    torch.set_float32_matmul_precision("highest")
    assert precision.asked("cpu") == "highest"
    capsys.readouterr()
    assert main(["info"]) == 0
    assert "fast precisions" in capsys.readouterr().out


def test_an_unknown_precision_names_the_known_ones(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--data", "digits", "--precision", "hihg"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--precision: got 'hihg', want one of highest, high, medium" in said


def test_half_precision_on_a_cpu_says_what_to_use_instead():
    given = torch.ones(3, 1, 4, dtype=torch.bfloat16), torch.ones(4, 2, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r'hidden: got torch.bfloat16 .*set_float32_matmul_precision\("medium"\)'):
        sf.ops.gcn(None, *given)
