"""The documents say what the code does: their code runs, links lead somewhere, every public name has an entry."""

import doctest
import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import seegera_fast as sf
from seegera_fast import ops
from seegera_fast.command.main import _parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "api").glob("*.md")),
]
# The files that CONTRIBUTING.md shows in full are run by test_templates.py, in a copy of the tree.
RUN = [page for page in PAGES if page.name != "CONTRIBUTING.md"]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What a document trains for a minute is trained for a moment here.
SHORTER = {"epochs=50": "epochs=2"}

# Names whose docstrings show how they are used.
SHOWN = [
    sf.Graph,
    sf.Graph.from_edge_index,
    sf.Graph.from_table,
    sf.Graph.from_pyg,
    sf.Graph.from_networkx,
    sf.SparseMatrix.from_any,
    sf.SparseMatrix.from_edge_index,
    sf.SeeGera,
    sf.SeeGeraConfig,
    sf.Checkpoint,
    sf.datasets.load,
    sf.use_backend,
    sf.backends.info,
    sf.tasks.link_prediction,
    sf.tasks.attribute_inference,
    sf.tasks.node_classification,
    sf.tasks.split_links,
    sf.tasks.LinkSplit.from_pyg,
    sf.tasks.split_features,
    sf.tasks.split_nodes,
    *(getattr(ops, name) for name in ops.__all__),
]
PACKAGE = Path(sf.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language: the number of the line before each, and its text."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in FENCE.finditer(text) if match[1] == language]
    return [(text.count("\n", 0, match.start()) + 1, match[2]) for match in found]


@pytest.mark.parametrize("page", [page for page in RUN if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """In order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for line, code in blocks(page, "python"):
            for long, short in SHORTER.items():
                code = code.replace(long, short)
            exec(compile("\n" * line + code, str(page), "exec"), namespace)


def commands(page: Path) -> list[tuple[int, str]]:
    return [
        (line + offset, command)
        for line, code in blocks(page, "sh")
        for offset, command in enumerate(code.splitlines(), start=1)
        if command and not command.startswith("#")
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_are_understood(page):
    """The command's own parser takes the options; a target is in the Makefile; a script is there."""
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    parser = _parser()[0]
    for line, command in commands(page):
        program, *arguments = shlex.split(command, comments=True)
        where = f"{page.name}:{line}: {command}"
        if program == "torchrun":
            module = arguments.index("-m") + 1
            assert arguments[module] == "seegera_fast", where
            program, arguments = "seegera-fast", arguments[module + 1 :]
        if program == "seegera-fast":
            try:
                parser.parse_args(arguments)
            except SystemExit as refusal:
                pytest.fail(f"{where}: refused: {refusal}")
        elif program == "make":
            assert {word for word in arguments if "=" not in word} <= {*targets}, where
        elif program == "pip":
            assert arguments[0] == "install", where
        else:
            assert program in ("sh", "python", ".venv/bin/python"), where
            script = next(word for word in arguments if word.endswith((".py", ".sh")))
            assert (ROOT / script).is_file(), where


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_say_what_they_are(page):
    """python and sh are run or parsed above; what is neither is text."""
    text = page.read_text(encoding="utf-8")
    allowed = {"python", "sh", "text"} | ({"cpp", "diff"} if page.name == "CONTRIBUTING.md" else set())
    assert {match[1] for match in FENCE.finditer(text)} <= allowed
    assert not re.search(r"\n\n    \S", re.sub(r"^ *([-*]|\d+\.) .*(\n\n? +.*)*", "", FENCE.sub("", text), flags=re.M))


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("thing", SHOWN, ids=lambda thing: thing.__qualname__)
def test_docstrings_have_examples(thing):
    assert ">>> " in inspect.getdoc(thing)


def test_public_names_are_in_the_contents_of_the_api():
    """`make site` fails where a link of the contents has no entry."""
    names = {f"sf.{name}" for name in sf.__all__}
    for module in (sf.datasets, sf.tasks, sf.ops):
        names |= {f"{module.__name__.replace('seegera_fast', 'sf')}.{name}" for name in module.__all__}
    contents = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    linked = dict(re.findall(r"\[`(sf\.[\w.]+)`\]\((\S+)\)", contents))
    assert names == names & linked.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (page.parent / target).exists(), target


def test_the_check_of_the_site_finds_what_is_broken(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    faults = importlib.import_module("check_site").faults
    assert faults(tmp_path) == [f"{tmp_path}: no pages"]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "index.html").write_text('<p id="here"><code>[a][b]</code> <a href="#here">x</a></p>')
    index = tmp_path / "index.html"
    index.write_text('<a href="sub/#here">x</a> <a href="sub/index.html">x</a> <a href="https://example.org">x</a>')
    assert faults(tmp_path) == []
    index.write_text(
        '<a href="gone.html">x</a> <a href="sub/#gone">x</a> <img src="https://example.org/a.png"> <p>[a][b]</p>'
    )
    assert faults(tmp_path) == [
        "index.html: [a][b]: a reference to nothing",
        "index.html: fetches https://example.org/a.png",
        "index.html: gone.html: there is no such file",
        "index.html: sub/#gone: there is no such anchor",
    ]


def test_the_comparison_with_pyg_compares_the_same_loss():
    """In a process of its own, with the modules of bench."""
    code = """
import against_pyg
import seegera_fast as sf

graph = sf.datasets.load("digits")
edge_index = against_pyg.edge_index_of(graph)
calls = {form: against_pyg.call(form, edge_index, graph.num_nodes, 8) for form in against_pyg.FORMS}
against_pyg.check_equal(calls)
for value, gradient in (call() for call in calls.values()):
    print(float(value), tuple(gradient.shape))
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "bench", capture_output=True, text=True, check=True)
    lines = found.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.endswith(" (1797, 8)") for line in lines)


def test_every_environment_variable_is_in_a_table():
    table = (ROOT / "docs" / "installing.md").read_text().partition("## Environment variables")[2]
    sources = [ROOT / "setup.py", ROOT / "tools" / "install_torch.py", *PACKAGE.rglob("*.py")]
    sources += (ROOT / "kernels").rglob("*.cpp")
    read = re.compile(r'''(?:environ\.get\(|environ\[|getenv\(|switch\(|ROOT_VARIABLE = )"(\w+)"''')
    found = {name for source in sources for name in read.findall(source.read_text())}
    assert {"SEEGERA_DATA", "SEEGERA_ISA", "SEEGERA_NATIVE", "CXX", "TERM"} <= found
    assert [name for name in sorted(found) if f"`{name}`" not in table] == []


def test_the_tables_of_habits_are_those_of_the_tests():
    path = ROOT / "tools" / "habits.py"
    spec = importlib.util.spec_from_file_location("habits", path)
    habits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(habits)
    text = habits.PAGE.read_text(encoding="utf-8")
    assert habits.page(text) == text, "a table is not that of the tests: run python tools/habits.py"
