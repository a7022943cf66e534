"""The commands reproduce and sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trials import SMALL

from seegera_fast import backends
from seegera_fast.experiments.protocols import TASKS
from seegera_fast.experiments.trials import read_records

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = [text for name, value in SMALL.items() if name != "epochs" for text in ("--set", f"{name}={value}")]
OPTIONS += ["--epochs", "3"]


def test_reproduce_writes_tables_and_a_page(run, here, tmp_path):
    out, page = tmp_path / "out", tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    command = ["reproduce", "--data", "cora", "--variant", "v3", "--trials", 2, "--out", out, "--page", page, *OPTIONS]
    status, printed, err = run(*command)
    assert status == 0
    assert len(here) == 10
    assert "link, cora, released split: SeeGera-v3 (" in printed
    assert "95.50 ± 0.71" in printed
    assert f"{here[0].name}: AUC " in err
    assert sorted(path.name for path in out.iterdir()) == ["results.json", "results.md", "trials"]
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert len(rows) == 4 + 2 + 1
    assert rows[0]["setting"]["fields"] == SMALL
    assert rows[0]["paper"] == [95.5, 0.71]
    assert rows[0]["difference"] == pytest.approx(rows[0]["mean"] - 95.5)
    text = page.read_text()
    for part in ("# Results", "10 trials", "## Attribute inference", "Not the paper's protocol", "torch "):
        assert part in text
    pictures = sorted(path.name for path in (page.parent / "results").iterdir())
    assert pictures == sorted(f"{task}-{kind}.png" for task in TASKS for kind in ("curves", "dots"))
    for name in pictures:
        assert f"](results/{name})" in text
        assert (page.parent / "results" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

    (page.parent / "results" / "notes.md").write_text("What was noticed.\n")
    status, again, err = run(*command, "--quiet")
    assert (status, err) == (0, "")
    assert again == printed
    assert len(here) == 10
    noticed = "\n\n## What to make of it\n\nWhat was noticed.\n"
    assert page.read_text() == text.rstrip("\n") + noticed

    (page.parent / "results" / "more.md").write_text("## More\n")
    (page.parent / "results" / "results.md").write_text("# What reproduce wrote there itself\n")
    assert run(*command, "--quiet")[::2] == (0, "")
    whole = text.rstrip("\n") + "\n\n## More" + noticed
    assert page.read_text() == whole

    page.unlink()
    again = run("reproduce", "--no-run", "--out", out, "--page", page)
    assert again[::2] == (0, "")
    assert page.read_text() == whole
    assert len(here) == 10


def test_no_run_needs_trials(run, here, tmp_path):
    status, _, err = run("reproduce", "--no-run", "--out", tmp_path / "out")
    assert status == 2
    assert f"--no-run: got --out {tmp_path / 'out'}, want a folder of reproduce" in err
    assert list(tmp_path.iterdir()) == []


def test_reproduce_exit_status_and_lines(run, here, tmp_path):
    base = ["reproduce", "--task", "link", "--split", "paper", "--variant", "v2", "--trials", 1, "--quiet", *OPTIONS]
    out = ["--out", tmp_path / "out"]
    status, printed, err = run(*base, *out, "--data", "cora", "pubmed")
    assert status == 2
    assert "link, cora, paper split: SeeGera-v2 (" in printed
    assert err == "seegera-fast: pubmed is left out: pubmed: files missing in a folder\n"

    status, _, err = run(*base, *out, "--data", "cora", "--set", "learning_rate=1e30")
    assert status == 3
    assert "learning_rate=1e+30" in err
    assert "became NaN or infinite and is in no mean" in err

    status, _, err = run(*base, *out, "--data", "cs", "--budget", "0")
    assert status == 4
    assert "1 trials are left (link-cs-v2-paper-" in err
    assert err.endswith("; the same command goes on\n")


def test_baselines_alone_and_beside_variants(run, here, tmp_path):
    base = ["reproduce", "--data", "cora", "--trials", 1, "--split", "paper", "--out", tmp_path / "out", *OPTIONS]
    assert run(*base, "--baseline", "vgae", "sigvae")[0] == 0
    assert {trial.setting.method for trial in here} == {"vgae", "sigvae"}
    assert {trial.setting.task for trial in here} == {"link", "node"}
    here.clear()
    assert run(*base, "--task", "link", "--baseline", "vgae", "--variant", "nf")[0] == 0
    assert [trial.setting.method for trial in here] == ["nf"]


def test_sweep_draws_a_heat_map(run, here, tmp_path):
    out = tmp_path / "out"
    grid = ["--structure-rates", 0, 0.4, "--feature-rates", 0, 0.2, 0.5]
    command = ["sweep", "--data", "cora", "--trials", 1, "--out", out, *grid, *OPTIONS]
    status, printed, _ = run(*command)
    assert status == 0
    assert len(here) == 6
    assert "structure_masking_rate=0.4" in printed
    rows = json.loads((out / "sweep.json").read_text())["rows"]
    names = ("structure_masking_rate", "feature_masking_rate")
    cells = {tuple(row["setting"]["fields"][name] for name in names) for row in rows}
    assert cells == {(first, second) for first in (0, 0.4) for second in (0, 0.2, 0.5)}
    assert (out / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for record in read_records(out / "trials"):
        rates = dict(record.trial.setting.fields)
        assert {name: record.content["configuration"][name] for name in names} == {name: rates[name] for name in names}
    status, _, err = run(*command, "--set", "feature_masking_rate=0.1")
    assert status == 2
    assert "feature_masking_rate has an option of its own: --feature-rates" in err
    for field, text in (
        ("seed=3", "seed has an option of its own: --trials"),
        ("preset=cora", "preset has an option of its own: --data"),
        ("variant=independent", "variant: got 'independent', want none: the method is v3"),
    ):
        status, _, err = run(*command, "--set", field)
        assert status == 2
        assert text in err


def test_a_record_that_is_none_is_named_before_anything_runs(run, here, tmp_path):
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "other.json").write_text("{}")
    status, _, err = run("reproduce", "--task", "link", "--data", "cora", "--trials", 1, "--out", tmp_path, *OPTIONS)
    assert status == 2
    assert "other.json: is not the record of a trial" in err
    assert here == []


BAD_OPTIONS = [
    (["reproduce", "--dta", "cora"], ["--dta", "the nearest: --data"]),
    (["reproduce", "--data", "coar"], ["--data", "'coar'", "the nearest: cora"]),
    (["reproduce", "--task", "links"], ["--task", "'links'", "the nearest: link"]),
    (["reproduce", "--variant", "v4"], ["--variant", "'v4'"]),
    (["reproduce", "--baseline", "gae"], ["--baseline", "'gae'", "vgae"]),
    (["reproduce", "--trials", "0"], ["--trials", "'0'", "1 or more"]),
    (["reproduce", "--budget", "-1"], ["--budget", "'-1'", "minutes"]),
    (["reproduce", "--budget", "nan"], ["--budget", "'nan'", "minutes"]),
    (["reproduce", "--set", "embeding_dim=3"], ["'embeding_dim'", "the nearest: embedding_dim"]),
    (["reproduce", "--set", "seed=3"], ["--set", "seed"]),
    (["reproduce", "--task", "node", "--set", "classifier_dropout=2"], ["classifier_dropout", "[0, 1)"]),
    (["reproduce", "--task", "node", "--set", "normalize_features=1"], ["normalize_features", "True or False"]),
    (["reproduce", "--task", "attribute", "--set", "feature_side=False"], ["feature_side", "want True"]),
    (["reproduce", "--page", "results"], ["--page", "results", "docs/results.md"]),
    (["sweep", "--structure-rates", "1"], ["--structure-rates", "'1'", "[0, 1)"]),
    (["sweep", "--task", "all"], ["--task", "'all'", "link, attribute, node"]),
]


@pytest.mark.parametrize(("argv", "parts"), BAD_OPTIONS, ids=lambda value: " ".join(value[:4]))
def test_bad_options_are_refused(run, here, tmp_path, monkeypatch, argv, parts):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert all(part in err for part in parts)
    assert here == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["reproduce", "sweep"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_first_epoch(run, here, tmp_path, command):
    (tmp_path / "file").write_text("mine")
    status, _, err = run(command, "--data", "cora", "--out", tmp_path / "file")
    assert status == 2
    assert "can't be written" in err
    assert here == []
    assert Path(tmp_path / "file").read_text() == "mine"


def test_an_unavailable_backend_is_refused(run, here, tmp_path, monkeypatch):
    monkeypatch.setattr(backends.CUDA, "missing", "a reason")
    status, _, err = run("reproduce", "--data", "cora", "--backend", "cuda", "--out", tmp_path / "out")
    assert (status, "a reason" in err, here) == (2, True, [])
