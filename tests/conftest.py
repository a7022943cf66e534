"""Explains failed assertions of the helper modules too, says which tests share a process, and has shared fixtures."""

import importlib.util
import os
import random
import warnings

import interpreter
import pytest

try:
    import hypothesis
except ImportError:
    # The tests of the kernels need no hypothesis. bench/device.sh runs them where it may not be installed.
    hypothesis = None

# Profiles of the property tests. `make test` takes a few examples of each property, `make check` many, `make fuzz` very
# many. The seed of the examples is printed; --hypothesis-seed=NUMBER repeats a run, and a failure prints the line that
# repeats it alone.
PROPERTIES = {"deadline": None, "print_blob": True, "database": None}
if hypothesis is not None:
    for profile, examples in (("quick", 25), ("long", 100), ("fuzz", 3500)):
        hypothesis.settings.register_profile(profile, max_examples=examples, **PROPERTIES)
    hypothesis.settings.load_profile("quick")

pytest.register_assert_rewrite(
    "cases",
    "command",
    "contract",
    "matrices",
    "ranks",
    "short_runs",
    "slow",
    "tolerances",
    "trained_models",
    "wrong_kinds",
)

if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None:
    interpreter.replace_language_once()

# Files whose tests share something that takes long to make: a build, or a process that others are forked from.
TOGETHER = (
    "test_packaging.py",
    "test_cuda_on_cpu.py",
    "test_distributed.py",
    "test_processes.py",
    "test_templates.py",
    "test_triton_blocks.py",
    "test_triton_common.py",
    "test_triton_sparse_matmul.py",
)


def pytest_configure(config):
    """Chooses the seed of the property tests: a new one for each long run, but one for all runs of CI."""
    if hypothesis is not None and config.getoption("--hypothesis-seed") is None:
        new = config.getoption("--hypothesis-profile") not in (None, "quick") and not os.environ.get("CI")
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32) if new else 0)


def pytest_report_header(config):
    return f"properties: --hypothesis-seed={config.getoption('--hypothesis-seed', None)}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Runs each of these files in one process. The mark xdist_group of pytest-xdist 3.8 does nothing under pytest 9."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            name = nodeid.partition("::")[0].rpartition("/")[2]
            return name if name in TOGETHER else nodeid

    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config, items):
    """Long tests come first, so that at the end no process is still busy with a long test while the others wait."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def run(capsys):
    """Runs the command in this process; gives exit status, stdout and stderr."""

    from seegera_fast.command.main import main

    def call(*argv):
        try:
            status = main([str(text) for text in argv])
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def one_thread():
    """One thread, because on such small graphs several threads would only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain_picture(monkeypatch):
    """Writes only the title instead of the picture, which takes most of the time of a small run."""
    monkeypatch.setattr(
        "seegera_fast.command.written.save_picture", lambda file, **content: file.write(content["title"].encode())
    )


@pytest.fixture
def own(tmp_path):
    """Options that name a small graph's files."""
    from command import write_groups

    return write_groups(tmp_path)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Options that name a small graph's tables."""
    from friends import write_friends

    return write_friends(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="session")
def trained(files, tmp_path_factory):
    """The folder of a run on that graph."""
    from friends import SMALL

    from seegera_fast.command.main import main

    out = tmp_path_factory.mktemp("run") / "out"
    more = ["--epochs", 30, "--seed", 3, "--set", "learning_rate=0.01", "--out", out, *SMALL]
    assert main([str(text) for text in ("train", *files, *more)]) == 0
    return out


@pytest.fixture
def somewhere(monkeypatch, tmp_path):
    """The command writes into the working folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def path(tmp_path):
    """A model's file."""
    from small_model import WIDTHS, graph

    import seegera_fast as sf

    sf.SeeGera(graph(), **WIDTHS).save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def quiet():
    """No warning may pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # NumPy's, of its matrix class.
        warnings.filterwarnings("ignore", message="Sparse (CSR|CSC|BSR) tensor support is in beta")
        yield


@pytest.fixture
def strict():
    """A warning that is not expected is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Sparse (CSR|CSC) tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        # The graphs here are small, and many of them fall into parts.
        warnings.filterwarnings("ignore", message="the probabilities are not calibrated")
        warnings.filterwarnings("ignore", message="sides: the graph falls into")
        yield


@pytest.fixture
def write(tmp_path):
    """Writes a file, and gives its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def table(write):
    """Makes a graph from contents of files. Warnings are errors."""
    from seegera_fast import Graph

    def table(edges, features=None, labels=None, **options):
        files = {"edges.csv": edges, "features.csv": features, "labels.csv": labels}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return Graph.from_table(
                *(None if content is None else write(name, content) for name, content in files.items()), **options
            )

    return table


@pytest.fixture
def small_data(monkeypatch):
    """Every data set is a small graph, except pubmed, which is missing."""
    from trials import load

    monkeypatch.setattr("seegera_fast.datasets.load", load)


@pytest.fixture
def here(small_data, monkeypatch):
    """Trials run in this process; gives the list of those that were started."""
    from trials import Here

    monkeypatch.setattr(Here, "started", [])
    monkeypatch.setattr(Here, "measured", [])
    monkeypatch.setattr("seegera_fast.experiments.matrix.Worker", Here)
    return Here.started
