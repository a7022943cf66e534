"""What users are used to in a terminal: ~, any name and any encoding, progress, streams that are closed or full."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import time
import types
import warnings
from pathlib import Path

import cases
import matplotlib
import numpy as np
import pytest

import seegera_fast as sf
from seegera_fast import datasets
from seegera_fast.command.main import main
from seegera_fast.experiments import matrix
from seegera_fast.support import fonts, hints, plots, progress, report, screen
from seegera_fast.training import TrainingConfig, train

RECORDS = Path(__file__).resolve().parents[1] / "docs" / "results" / "trials"
EDGES = "".join(f"{i} {k}\n" for i in range(10) for k in range(i + 1, 10) if (i < 5) == (k < 5) and (i + k) % 7)
# Nothing is held out but a tenth for the test, so that a few epochs of such a small graph are a run.
QUICK = ["--epochs", "2", "--split", "0,0.1", "--set", "embedding_dim=4", "--set", "hidden_dim=5"]
NAMES = ["$x_{$", "_first", "a\\frac%^_$$", "数据库", "עולם", "one\ntwo", "\x1b[31mred", "long " * 30, "\udcff"]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def plain_picture(monkeypatch):
    """Writes an empty file instead of the picture, which takes most of the time of a small run."""
    monkeypatch.setattr("seegera_fast.command.written.save_picture", lambda file, **content: None)


@pytest.fixture
def page_without_pictures(monkeypatch):
    for name in ("save_dots", "save_curves"):
        monkeypatch.setattr(f"seegera_fast.experiments.page.{name}", lambda file, panels, **options: None)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's home, with the edges of a graph in it; the working folder is another one."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "e.txt").write_text(EDGES)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path / "home"
    assert list((tmp_path / "work").iterdir()) == []


WITHOUT_PICTURE = "import seegera_fast.command.written as t; t.save_picture = lambda file, **content: None"


def in_process(*argv, code=WITHOUT_PICTURE, **options):
    """Runs the command in a process of its own. ``code`` is run before it."""
    program = f"import sys; {code}\nfrom seegera_fast.command.main import main; sys.exit(main())"
    options = {"capture_output": True, "timeout": 120, **options}
    options["env"] = {**os.environ, "OMP_NUM_THREADS": "1", **options.get("env", {})}
    return subprocess.run([sys.executable, "-c", program, *map(os.fspath, argv)], **options)


# --- paths -----------------------------------------------------------------------------------------------------------


def test_home_in_every_path_of_the_commands(run, home, plain_picture, page_without_pictures, monkeypatch):
    np.save(home / "f.npy", np.eye(10))
    np.save(home / "l.npy", np.arange(10) % 2)
    files = ["--edges=~/e.txt", "--features", "~/f.npy", "--labels=~/l.npy"]
    assert run("train", *files, *QUICK, "--out=~/new/run")[0] == 0
    assert run("embed", "~/new/run/model.safetensors", *files, "--out", "~/e.npy")[0] == 0
    assert np.array_equal(np.load(home / "e.npy"), np.load(home / "new" / "run" / "embedding.npy"))
    shutil.copytree(RECORDS, home / "r" / "trials")
    command = ["reproduce", "--budget", "0", "--out=~/r", "--page=~/page.md", "--root=~"]
    assert run(*command)[0] == 4
    assert (home / "r" / "results.json").is_file()
    assert (home / "page.md").is_file()
    assert run("sweep", "--budget", "0", "--out=~/s")[0] == 4
    assert (home / "s" / "sweep.json").is_file()
    seen = []
    monkeypatch.setattr("seegera_fast.datasets.registry._provide", lambda *given: seen.append(given[2]) or 1 / 0)
    for option in ("--root=~/sets", None):
        monkeypatch.setenv("SEEGERA_DATA", "~/sets")
        with pytest.raises(ZeroDivisionError):
            run("train", "--data", "cora", *filter(None, [option]), "--out=~/o")
    assert seen == [home / "sets" / "Planetoid" / "Cora" / "raw"] * 2


def test_home_in_every_path_of_python(home, monkeypatch):
    graph = cases.graph("random", "binary")
    model = sf.SeeGera(graph, embedding_dim=4, hidden_dim=5)
    model.save("~/m")
    assert sf.SeeGera.load(Path("~/m")).num_nodes == graph.num_nodes
    train(model, TrainingConfig(epochs=2), checkpoint=sf.Checkpoint("~/c", every=1), progress=False)
    assert {"m", "c"} < {path.name for path in home.iterdir()}
    with pytest.raises(FileNotFoundError, match=str(home / "sets")):
        datasets.load("cora", "~/sets", download=False)
    monkeypatch.setenv("SEEGERA_DATA", "~/more")
    with pytest.raises(FileNotFoundError, match=str(home / "more")):
        datasets.load("cora", download=False)


@pytest.mark.parametrize("command", [["train", "--data", "digits", "--out", ""], ["embed", "", "--data", "digits"]])
def test_an_empty_path_is_refused(run, command, home):
    """As of a variable of the shell that is not set."""
    status, printed, err = run(*command)
    assert (status, printed) == (2, "")
    assert "got '', want a path" in err
    with pytest.raises(ValueError, match="path: got '', want a path"):
        sf.Checkpoint("")


def test_what_a_link_leads_to_is_written(run, tmp_path, plain_picture):
    (tmp_path / "e.txt").write_text(EDGES)
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    (tmp_path / "e.npy").symlink_to(Path("disk") / "new.npy")
    assert run("train", "--edges", tmp_path / "e.txt", *QUICK, "--out", tmp_path / "out")[0] == 0
    model = tmp_path / "out" / "model.safetensors"
    assert run("embed", model, "--edges", tmp_path / "e.txt", "--out", tmp_path / "e.npy")[0] == 0
    assert (tmp_path / "e.npy").is_symlink()
    embeddings = [np.load(tmp_path / "disk" / name) for name in ("new.npy", "embedding.npy")]
    assert np.array_equal(*embeddings)
    assert not list((tmp_path / "disk").glob(".*"))


def test_blanks_and_ends_of_lines_in_paths(run, tmp_path, plain_picture):
    folder = tmp_path / "two  blanks\nand a line"
    folder.mkdir()
    (folder / "e\x1b[1m.txt").write_text(EDGES)
    status, printed, err = run("train", "--edges", folder / "e\x1b[1m.txt", *QUICK, "--out", folder / "o")
    assert status == 0
    assert "two  blanks and a line/o: results.json" in printed
    assert "\x1b" not in printed + err
    assert results_in(folder / "o")["data"]["files"]["edges"].endswith("two  blanks\nand a line/e\x1b[1m.txt")
    status, _, err = run("train", "--edges", folder / "none.txt", *QUICK, "--out", folder / "p")
    assert (status, err.count("\n")) == (2, 1)
    assert "two  blanks and a line/none.txt: No such file" in err


def results_in(folder):
    return json.loads((folder / "results.json").read_bytes())


def test_a_page_whose_name_has_blanks(run, tmp_path, page_without_pictures):
    shutil.copytree(RECORDS, tmp_path / "r" / "trials")
    page = tmp_path / os.fsdecode("a (b)\xff.md".encode("latin-1"))
    status, _, err = run("reproduce", "--budget", "0", "--out", tmp_path / "r", "--page", page)
    assert status == 4, err
    assert "](a%20%28b%29%FF/link-dots.png)" in page.read_text()


def test_a_working_folder_that_cannot_be_written(run, tmp_path, monkeypatch):
    (tmp_path / "e.txt").write_text(EDGES)
    monkeypatch.chdir("/proc")
    status, printed, err = run("train", "--edges", tmp_path / "e.txt", *QUICK)
    assert (status, printed) == (2, "")
    assert err.startswith("seegera-fast: error: the folder runs/e-link can't be written: ")


# --- names in pictures -----------------------------------------------------------------------------------------------


def picture(title="t", classes=None, labels=None, **settings):
    file = io.BytesIO()
    history = [{"epoch": 1, "loss": 2.0}]
    drawing = plots.draw_nodes(np.random.default_rng(0).standard_normal((len(NAMES), 3)))
    content = {"scores": "", "history": history, "titles": {}, "best_epoch": 1, "drawing": drawing}
    with matplotlib.rc_context(settings):
        plots.save_picture(file, title=title, labels=labels, classes=classes, **content)
    return file.getvalue()


@pytest.fixture
def texts(monkeypatch):
    """The texts of the last picture."""
    seen = []

    def families(given):
        seen[:] = list(given)
        return fonts.families(seen)

    monkeypatch.setattr(plots, "families", families)
    return seen


@pytest.mark.filterwarnings("ignore:no installed font has")
def test_names_are_drawn_letter_by_letter(texts):
    picture(f"on {NAMES[0]}", classes=NAMES, labels=np.arange(len(NAMES)))
    assert f"on {NAMES[0]}\n" in texts
    shown = [*NAMES[:5], "one two", "\\x1b[31mred", "long long long long l...", "\\xff"]
    assert set(shown) <= set(texts)


def test_a_picture_depends_on_no_settings_of_the_user():
    settings = {"text.usetex": True, "savefig.dpi": 40, "font.family": ["serif"], "axes.grid": True}
    assert picture("of $x$", **settings) == picture("of $x$")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a font with one Chinese letter, and fonts that can't be used; gives the family of the first."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    for number, point in enumerate([(100, 0), (100, 800), (900, 800), (900, 0)]):
        (pen.lineTo if number else pen.moveTo)(point)
    pen.closePath()
    glyphs = {".notdef": TTGlyphPen(None).glyph(), "letter": pen.glyph()}
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(list(glyphs))
    builder.setupCharacterMap({ord("中"): "letter"})
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Test Letters", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(tmp_path / "letters.ttf")
    (tmp_path / "damaged.ttf").write_bytes(b"none")
    manager = matplotlib.font_manager.fontManager
    known = [entry for entry in manager.ttflist if entry.name.startswith(("DejaVu", "Last Resort"))]
    monkeypatch.setattr(manager, "ttflist", known)
    for name in ("damaged", "absent"):
        entry = matplotlib.font_manager.FontEntry(fname=str(tmp_path / f"{name}.ttf"), name=name, style="normal")
        manager.ttflist.append(entry)
    manager.addfont(tmp_path / "letters.ttf")
    return "Test Letters"


def test_letters_are_drawn_in_a_font_that_has_them(installed):
    assert fonts.families(["a", "b\n"]) == ([fonts.FIRST], "")
    assert fonts.families(["中$文"]) == ([fonts.FIRST, installed], "文")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = picture("中")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert drawn != picture("文")


def test_letters_that_no_font_has_are_named_once(installed):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        picture("文字文字 中", classes=["字"] * len(NAMES), labels=np.arange(len(NAMES)))
    assert [str(each.message) for each in caught] == ["no installed font has 字文: the picture has boxes for them"]


def test_wide_letters_are_aligned():
    assert hints.columns("中a") == 3
    assert hints.shown_name("中" * 40, 9) == "中" * 3 + "..."
    lines = report.table([["中文", "1"], ["a", "22"]]).splitlines()
    assert lines == ["中文   1", "a     22"]


# --- encodings -------------------------------------------------------------------------------------------------------


class Bytes(io.TextIOWrapper):
    def __init__(self, encoding, errors="strict"):
        super().__init__(io.BytesIO(), encoding=encoding, errors=errors)

    @property
    def text(self):
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


@pytest.mark.parametrize(
    ("encoding", "errors", "shown"),
    [
        ("ascii", "strict", r"+/- 1.5x - caf\xe9 \u4e2d \xff"),
        ("ascii", "backslashreplace", r"+/- 1.5x - caf\xe9 \u4e2d \xff"),
        ("latin-1", "strict", r"± 1.5× - café \u4e2d \xff"),
        ("cp1252", "strict", r"± 1.5× – café \u4e2d \xff"),
        ("gb18030", "strict", r"± 1.5× – café 中 \xff"),
        ("utf-16", "strict", r"± 1.5× – café 中 \xff"),
        ("utf-8", "strict", r"± 1.5× – café 中 \xff"),
    ],
)
def test_every_stream_takes_every_letter(encoding, errors, shown):
    stream = Bytes(encoding, errors)
    print("± 1.5× – café 中 \udcff", end="", file=screen.Screen(stream, "it", optional=False))
    assert stream.text == shown


def test_bytes_of_file_names_come_out_as_they_are():
    stream = Bytes("ascii", "surrogateescape")
    print("± \udcc3\udca9", end="", file=screen.Screen(stream, "it", optional=False))
    stream.flush()
    assert stream.buffer.getvalue() == b"+/- \xc3\xa9"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_reproduce_prints_its_tables_in_every_encoding(tmp_path, monkeypatch, encoding):
    shutil.copytree(RECORDS, tmp_path / "r" / "trials")
    out, err = Bytes(encoding), Bytes(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["reproduce", "--budget", "0", "--out", str(tmp_path / "r")]) == 4
    assert ("95.50 +/- 0.71" if encoding == "ascii" else "95.50 ± 0.71") in out.text
    rows = [line for line in out.text.splitlines() if ": SeeGera" in line]
    # Columns stay aligned.
    assert len({len(row) for row in rows}) == 1
    assert "trials are left" in err.text
    assert "±" in (tmp_path / "r" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_run_with_any_name_in_any_encoding(tmp_path, monkeypatch, plain_picture, encoding):
    """A name with letters that the encoding lacks."""
    (tmp_path / "café中.txt").write_text(EDGES)
    out = Bytes(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", Bytes(encoding, "backslashreplace"))
    assert main(["train", "--edges", str(tmp_path / "café中.txt"), *QUICK, "--out", str(tmp_path / "café中")]) == 0
    assert "AUC" in out.text
    assert results_in(tmp_path / "café中")["data"]["name"] == "café中"
    assert results_in(tmp_path / "café中")["data"]["files"]["edges"].endswith("café中.txt")


@pytest.mark.slow
def test_a_run_with_any_name_in_the_locale_c(tmp_path):
    """A name with letters that the encoding lacks, and one that is no UTF-8 either, of files too."""
    names = {"café中".encode(): "café中", b"caf\xe9": "caf\\xe9"}
    given = []
    for name in names:
        path = os.fsencode(tmp_path) + b"/" + name
        with open(path + b".txt", "w") as file:
            file.write(EDGES)
        given += ["train", b"--edges", path + b".txt", *QUICK, "--out", path]
    # One process trains both, because its start takes most of the time.
    first = (
        "from seegera_fast.command.main import main; half = 1 + len(sys.argv) // 2; assert main(sys.argv[1:half]) == 0"
    )
    code = f"{WITHOUT_PICTURE}\n{first}\ndel sys.argv[1:half]"
    ended = in_process(*given, code=code, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert ended.returncode == 0, ended.stderr
    assert b"AUC" in ended.stdout
    for name, shown in names.items():
        results = results_in(tmp_path / os.fsdecode(name))
        assert results["data"]["name"] == shown
        assert results["data"]["files"]["edges"].endswith(f"/{shown}.txt")


def test_help_and_errors_in_ascii(monkeypatch):
    for argv, status in (["train", "--help"], 0), (["café\udcff"], 2), (["train", "--data", "café"], 2):
        out, err = Bytes("ascii"), Bytes("ascii")
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as end:
            main(argv)
        assert end.value.code == status
        assert out.text.startswith("usage: seegera-fast train") if status == 0 else r"caf\xe9" in err.text


def test_the_message_of_a_trial_arrives_in_every_encoding(tmp_path):
    """The data set's folder has a name that ASCII lacks, and the message names it."""
    root = tmp_path / "café"
    root.write_text("a file, where a folder should be")
    code = "import seegera_fast.experiments.matrix as m; m._missing = lambda names, root, progress: {}"
    command = ["reproduce", "--data", "cora", "--task", "link", "--variant", "v3", "--split", "paper", "--trials", "1"]
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = in_process(*command, "--root", root, "--out", tmp_path / "o", code=code, env=environment)
    assert ended.returncode == 3, ended.stderr
    assert rb"ended with an error: " in ended.stderr
    assert rb"/caf\xe9/Planetoid" in ended.stderr


# --- progress --------------------------------------------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch):
    """A line is due at once."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def small_training(epochs=4, **options):
    model = sf.SeeGera(cases.graph("random", "binary"), embedding_dim=4, hidden_dim=5)
    return train(model, TrainingConfig(epochs=epochs), **options)


def test_a_log_gets_a_line_now_and_then(often, monkeypatch, capsys):
    clock = itertools.count(0.0, 40.0)
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    small_training()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("epoch 1 of 4, loss ")
    assert all(" so far, about " in line and line.endswith(" left") for line in lines[:3])
    assert lines[3].startswith("epoch 4 of 4, ")
    assert " left" not in lines[3]


def test_lines_become_rare(monkeypatch, capsys):
    """In ten hours of steps of one second."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with progress.Steps(36000, "epoch", show=True) as steps:
        for second in range(1, 36001):
            now[0] = float(second)
            steps.advance(loss=1.5)
            if second == 119:
                early = capsys.readouterr().err.splitlines()
    lines = [*early, *capsys.readouterr().err.splitlines()]
    assert [line.partition(",")[0] for line in early] == [f"epoch {n} of 36000" for n in (30, 60, 90)]
    assert early[0] == "epoch 30 of 36000, loss 1.5, 30 s so far, about 35970 s (599.5 min) left"
    assert 100 < len(lines) < 200


def test_a_resumed_run_counts_its_own_epochs_for_the_time_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with progress.Steps(100, "epoch", show=True, done=90) as steps:
        now[0] = 50.0
        steps.advance(5)
    assert capsys.readouterr().err == "epoch 95 of 100, 50 s so far, about 50 s left\n"


def test_no_progress_is_shown_unless_asked_for(often, capsys, monkeypatch):
    small_training(progress=False)
    with progress.phase("reading", show=False):
        time.sleep(0.1)
    with progress.Steps(3, "epoch", show=False) as steps:
        steps.advance()
        steps.wait("a")
        steps.note("a")
    assert capsys.readouterr() == ("", "")
    # As in a process without a console.
    monkeypatch.setattr(sys, "stderr", None)
    small_training()
    with progress.phase("reading", show=True):
        pass


def test_phases_show_that_they_are_at_work(often, monkeypatch):
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.phase("reading a.txt", show=True):
            end = time.monotonic() + 60
            while "reading a.txt: 0" not in stream.getvalue() and time.monotonic() < end:
                time.sleep(0.01)
        shown = stream.getvalue()
        assert "reading a.txt: 0" in shown
        assert ("\r" in shown) == stream.isatty()


def test_every_long_phase_of_a_run_is_named(run, tmp_path, monkeypatch, plain_picture):
    named = []

    @contextlib.contextmanager
    def phase(name, *, show):
        named.append((name, show))
        yield

    for module in ("command.options", "tasks.common", "datasets.registry"):
        monkeypatch.setattr(f"seegera_fast.{module}.phase", phase)
    (tmp_path / "e.txt").write_text(EDGES)
    for quiet in ([], ["--quiet"]):
        assert run("train", "--edges", tmp_path / "e.txt", *QUICK, "--out", tmp_path / "o", *quiet)[0] == 0
    assert named == [
        (name, show) for show in (True, False) for name in ("reading e.txt", "splitting the graph", "scoring")
    ]
    named.clear()
    datasets.load("digits")
    assert named == [("reading digits", True)]


@pytest.mark.parametrize(("term", "bar"), [("xterm", True), ("dumb", False)])
def test_a_bar_at_a_terminal_that_has_a_cursor(often, monkeypatch, term, bar):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", Terminal())
    small_training()
    assert ("\r" in sys.stderr.getvalue()) == bar
    assert ("4/4" if bar else "epoch 4 of 4") in sys.stderr.getvalue()


def test_a_notebook_without_widgets_gets_a_bar_of_text(monkeypatch, capsys):
    from tqdm import notebook

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(notebook, "IProgress", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_training()
    assert "4/4" in capsys.readouterr().err


def test_a_notebook_with_widgets_gets_its_bar(monkeypatch, capsys):
    from tqdm import notebook

    made = []

    class Bar:
        def __init__(self, **options):
            made.append(options)

        def __getattr__(self, name):
            return lambda *given, **options: made.append(name)

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(notebook, "IProgress", object)
    monkeypatch.setattr(notebook, "tqdm", Bar)
    small_training()
    assert made[0]["total"] == 4
    assert made.count("update") == 4
    assert made[-1] == "close"
    assert capsys.readouterr().err == ""


def test_trials_in_a_log(often, run, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda name, root=None, progress=True: None)

    class Crashing:
        def __init__(self, trial, conditions, threads, *, pace=False):
            self.looks = iter([False, True])

        def ended(self):
            return next(self.looks)

        def end(self):
            return 1, "no memory"

    monkeypatch.setattr(matrix, "Worker", Crashing)
    monkeypatch.setattr(matrix, "POLL_SECONDS", 0.01)
    command = ["reproduce", "--task", "link", "--data", "cora", "--variant", "v3", "--split", "paper", "--trials", "2"]
    _, _, err = run(*command, "--out", tmp_path / "o")
    # Its epochs can't be measured, so that nothing is said of how long it will take.
    assert "trial 0 of 2, running some epochs of link, cora, paper split: SeeGera-v3 to measure them\n" in err
    assert "missing" not in err
    assert "trial 0 of 2, running link-cora-v3-paper-seed0\n" in err
    assert "link-cora-v3-paper-seed0: error: no memory\n" in err
    assert "\r" not in err
    assert "running" not in run(*command, "--out", tmp_path / "o", "--quiet")[2]


def test_a_real_terminal(tmp_path):
    """A narrow one."""
    (tmp_path / "e.txt").write_text(EDGES)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    command = ["train", "--edges", str(tmp_path / "e.txt"), *QUICK, "--out", str(tmp_path / "o")]
    process = subprocess.Popen(
        [sys.executable, "-m", "seegera_fast", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(theirs)
    shown = b""
    # The end of the process is an error of read.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait(60) == 0
    text = shown.decode()
    assert "2/2" in text
    bars = [line for line in text.replace("\n", "\r").split("\r") if "| 2/2" in line]
    assert bars
    assert all(len(line) <= 40 for line in bars)


# --- --resume with other numbers of epochs ---------------------------------------------------------------------------

TASK_OPTIONS = {
    "link": ["--split", "0.1,0.1"],
    "attribute": ["--split", "0.1,0.1"],
    "node": ["--split", "0.3,0.2", "--set", "classifier_epochs=5"],
}


@pytest.mark.parametrize("task", TASK_OPTIONS)
def test_resume_with_more_epochs_gives_the_files_of_one_long_run(run, tmp_path, plain_picture, task):
    (tmp_path / "e.txt").write_text(EDGES)
    np.save(tmp_path / "f.npy", np.random.default_rng(0).integers(0, 2, (10, 6)).astype(float))
    np.save(tmp_path / "l.npy", np.arange(10) // 5)
    files = [text for name in ("edges", "features", "labels") for text in (f"--{name}", tmp_path / f"{name[0]}.npy")]
    files[1] = tmp_path / "e.txt"
    fields = ["embedding_dim=4", "hidden_dim=5", "evaluate_every=2", "dropout=0.2"]
    options = [*TASK_OPTIONS[task], *(text for field in fields for text in ("--set", field))]
    command = ["train", "--task", task, *files, *options]

    def content(folder):
        results = results_in(folder)
        history = [{key: value for key, value in record.items() if key != "seconds"} for record in results["history"]]
        kept = ("scores", "epochs", "best_epoch", "configuration", "interrupted")
        parts = [(folder / name).read_bytes() for name in ("model.safetensors", "embedding.npy")]
        return [history, *(results[key] for key in kept), *parts]

    assert run(*command, "--epochs", 7, "--out", tmp_path / "long")[0] == 0
    assert run(*command, "--epochs", 3, "--out", tmp_path / "short")[0] == 0
    status, _, err = run(*command, "--epochs", 7, "--out", tmp_path / "short", "--resume")
    assert status == 0
    assert f"going on from {tmp_path / 'short' / 'checkpoint.safetensors'}" in err
    assert content(tmp_path / "short") == content(tmp_path / "long")
    # A run that has ended has nothing left to train.
    assert run(*command, "--epochs", 7, "--out", tmp_path / "short", "--resume")[0] == 0
    assert content(tmp_path / "short") == content(tmp_path / "long")
    status, _, err = run(*command, "--epochs", 5, "--out", tmp_path / "short", "--resume")
    assert status == 2
    assert "epoch: got 7, want 5, the last epoch of this run" in err
    assert content(tmp_path / "short") == content(tmp_path / "long")


# --- streams that are closed, full or gone ---------------------------------------------------------------------------


class Full(io.StringIO):
    """A file on a full disk: the error comes when it is written, or later."""

    def __init__(self, when):
        super().__init__()
        self.when = when

    def write(self, text):
        return self.fail("write") or len(text)

    def flush(self):
        self.fail("flush")

    def fail(self, now):
        if now == self.when:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("when", ["write", "flush"])
def test_messages_that_cannot_be_written_do_not_end_the_work(tmp_path, monkeypatch, capsys, plain_picture, when):
    (tmp_path / "e.txt").write_text(EDGES)
    monkeypatch.setattr(sys, "stderr", Full(when))
    assert main(["train", "--edges", str(tmp_path / "e.txt"), *QUICK, "--out", str(tmp_path / "o")]) == 0
    assert "AUC" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["info"], ["--help"], ["train", "--help"], ["--version"]], ids=" ".join)
@pytest.mark.parametrize("when", ["write", "flush"])
def test_output_that_cannot_be_written_is_an_error(monkeypatch, capsys, argv, when):
    monkeypatch.setattr(sys, "stdout", Full(when))
    assert main(argv) == 6
    assert capsys.readouterr().err == (
        "seegera-fast: error: standard output can't be written: No space left on device\n"
    )


@pytest.mark.slow
def test_closed_streams_and_a_full_one(tmp_path):
    """Files that are opened while 0, 1 or 2 are closed would get these numbers."""
    (tmp_path / "e.txt").write_text(EDGES)
    names = ["checkpoint.safetensors", "embedding.npy", "links.csv", "model.safetensors", "picture.png", "report.html"]
    names.append("results.json")
    for name, streams, status in (("closed", "<&- >&- 2>&-", 0), ("full", ">/dev/full 2>/dev/full", 6)):
        command = ["train", "--edges", tmp_path / "e.txt", *QUICK, "--out", tmp_path / name]
        program = f"{WITHOUT_PICTURE}; from seegera_fast.command.main import main; import sys; sys.exit(main())"
        shell = ["sh", "-c", f'exec "$0" "$@" {streams}', sys.executable, "-c", program, *map(str, command)]
        ended = subprocess.run(shell, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120)
        assert ended.returncode == status
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == names
        assert results_in(tmp_path / name)["epochs"] == 2


# --- the rest of a terminal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["1", "40", "400", "many"])
def test_help_in_terminals_of_any_width(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for command in ([], ["train"], ["reproduce"]):
        status, printed, err = run(*command, "--help")
        assert (status, err) == (0, "")
        assert printed.startswith("usage: seegera-fast")
        assert "\x1b" not in printed


def test_without_a_command_they_are_named(run):
    status, printed, err = run()
    assert (status, printed) == (2, "")
    assert err == (
        "seegera-fast: error: COMMAND is missing; want one of train, import, embed, links, complete, reproduce, sweep, "
        "info; seegera-fast --help explains them\n"
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--epochs=-3", "epochs: got -3, want 1 to"),
        ("--split=-0.1,0.2", "valid: got -0.1, want a number in [0, 1)"),
        ("--seed=-1", "--seed: got '-1'"),
        ("--set=learning_rate=-1", "learning_rate: got -1"),
    ],
)
def test_negative_values_reach_their_checks(run, tmp_path, option, words):
    (tmp_path / "e.txt").write_text(EDGES)
    status, printed, err = run("train", "--edges", tmp_path / "e.txt", option, "--out", tmp_path / "o")
    assert (status, printed) == (2, "")
    assert words in err.splitlines()[-1]
