""".github/workflows: what the files refer to is there, their shell is shell, and nothing is published by accident."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
JOBS = RELEASE["jobs"]
# GitHub's own actions, and that of the package index.
TRUSTED = ("actions/", "pypa/gh-action-pypi-publish@")
TAG_CHECK = next(step["run"] for step in JOBS["sdist"]["steps"] if "if" in step)


def steps(job):
    return JOBS[job].get("steps", [])


def commands():
    """Job -> the text of its shell commands, in which an expression is replaced by a word."""
    return {job: [re.sub(r"\$\{\{.*?\}\}", "x", step["run"]) for step in steps(job) if "run" in step] for job in JOBS}


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_a_workflow_names_no_host(file):
    assert not re.search(r"https?://|\b[\w-]+\.(io|com|org|dev)\b", file.read_text())


def test_each_step_runs_a_command_or_an_action_that_is_pinned():
    for job in JOBS:
        assert "runs-on" in JOBS[job]
        for step in steps(job):
            assert ("run" in step) != ("uses" in step), (job, step)
            if "uses" in step:
                assert step["uses"].startswith(TRUSTED)
                assert re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+)", step["uses"])


def test_the_shell_of_each_step_can_be_read():
    for job, texts in commands().items():
        for text in texts:
            # As GitHub runs it.
            result = subprocess.run(["bash", "-e", "-n", "-c", text], capture_output=True, text=True)
            assert result.returncode == 0, (job, result.stderr)


def test_the_programs_and_targets_of_the_steps_are_there():
    makefile = (ROOT / "Makefile").read_text()
    texts = "\n".join(text for texts in commands().values() for text in texts)
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    texts += "\n" + table["repair-wheel-command"]
    named = re.findall(r"\btools/[\w.]+", texts)
    assert set(named) == {"tools/install_torch.py", "tools/smoke.py", "tools/make_wheel.py"}
    assert all((ROOT / name).is_file() for name in named)
    targets = re.findall(r"^make (\S+)", texts, re.MULTILINE)
    assert targets == ["site"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_jobs_wait_for_jobs_that_there_are():
    for job in JOBS:
        needs = JOBS[job].get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(JOBS)
    # Each artifact that is used has been made by a job that was waited for.
    made = {
        step["with"]["name"]: job for job in JOBS for step in steps(job) if "upload-artifact" in step.get("uses", "")
    }
    assert made == {"sdist": "sdist", "wheel": "wheel"}


def test_only_a_tag_publishes_and_only_after_all_else():
    # "on" is true in YAML.
    assert RELEASE[True] == {"push": {"tags": ["v*"]}, "workflow_dispatch": None}
    assert RELEASE["permissions"] == {"contents": "read"}
    allowed = {job: JOBS[job]["permissions"] for job in JOBS if "permissions" in JOBS[job]}
    assert allowed == {"publish": {"id-token": "write"}, "publish-site": {"pages": "write", "id-token": "write"}}
    assert all(JOBS[job]["if"] == "github.ref_type == 'tag'" for job in allowed)
    assert set(JOBS["publish"]["needs"]) == set(JOBS) - set(allowed)
    assert JOBS["publish-site"]["needs"] == "publish"
    # By the name of the workflow, without a password.
    assert "secrets" not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_each_python_of_the_matrix_is_tried(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import matrix

    assert JOBS["try"]["strategy"]["matrix"]["python"] == list(matrix.PYTHONS)


@pytest.mark.parametrize(
    ("tag", "section", "refused"),
    [
        ("v1.2.3", "1.2.3 - 2030-01-01", None),
        ("v1.2.4", "1.2.3", "got the tag v1.2.4, want v1.2.3"),
        ("1.2.3", "1.2.3", "got the tag 1.2.3, want v1.2.3"),
        ("v1.2.3", "Unreleased", "CHANGELOG.md has no section 1.2.3"),
    ],
)
def test_a_tag_is_that_of_the_version(tag, section, refused, tmp_path):
    package = tmp_path / "seegera_fast"
    package.mkdir()
    version = (ROOT / "seegera_fast" / "version.py").read_text()
    (package / "version.py").write_text(re.sub(r'"[^"]+"$', '"1.2.3"', version, flags=re.MULTILINE))
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {section}\n")
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    command = ["bash", "-e", "-c", TAG_CHECK]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (result.returncode != 0) == (refused is not None)
    assert refused is None or refused in result.stdout


def test_cibuildwheel_builds_one_wheel_in_the_container_of_manylinux():
    """That it takes the table is tried where it is installed."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert table["manylinux-x86_64-image"] == "manylinux_2_28"
    # What setup.py needs is there before the build, which is not isolated; nothing that torch depends on is.
    assert "pip install --no-deps torch" in table["before-build"]
    assert table["build-frontend"] == {"name": "pip", "args": ["--no-build-isolation"]}
    assert shlex.split(table["repair-wheel-command"])[1].endswith("tools/make_wheel.py")
    program = shutil.which("cibuildwheel")
    if program is not None:
        command = [program, "--platform", "linux", "--print-build-identifiers"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert result.stdout.split() == ["cp310-manylinux_x86_64"], result.stderr
