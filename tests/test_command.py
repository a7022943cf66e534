"""The command line: options that are refused, exit statuses, help, and what info says."""

import json
import os
import subprocess
import sys

import pytest
import torch
from command import refused
from disk import files_in

import seegera_fast as sf
from seegera_fast.command.table_options import in_options

BAD_OPTIONS = [
    (["trian"], ["'trian'", "the nearest: train"]),
    ([], ["COMMAND"]),
    (["--versoin"], ["--versoin", "--version"]),
    (["train"], ["--data", "--edges", "required"]),
    (["train", "--dta", "digits"], ["--dta", "the nearest: --data"]),
    (["train", "--epoch=3", "--data", "digits"], ["--epoch", "the nearest: --epochs"]),
    (["embed", "m", "--edgs", "e"], ["--edgs", "the nearest: --edges"]),
    (["info", "--jsn"], ["--jsn", "the nearest: --json"]),
    (["train", "--data", "coar"], ["--data", "'coar'", "the nearest: cora"]),
    (["train", "--data", "digits", "--edges", "e.txt"], ["--edges", "not allowed with"]),
    (["train", "--data", "digits", "--features", "f.npy"], ["--features goes with --edges"]),
    (["train", "--edges", "e.txt", "--root", "r"], ["--root goes with --data"]),
    (["train", "--data", "digits", "--task", "nod"], ["--task", "'nod'", "the nearest: node"]),
    (["train", "--data", "digits", "--variant", "v4"], ["--variant", "'v4'", "v1, v2, v3"]),
    (["train", "--data", "digits", "--preset", "pubmeed"], ["preset", "'pubmeed'", "the nearest: pubmed"]),
    (["train", "--data", "digits", "--split", "papr"], ["--split", "'papr'", "the nearest: paper"]),
    (["train", "--data", "digits", "--split", "0.5"], ["'0.5'; want one of paper, released, two shares such as 0.1,"]),
    (["train", "--data", "digits", "--split", "0.6,0.6"], ["valid", "0.6", "below 1"]),
    (["train", "--data", "digits", "--task", "embed", "--split", "paper"], ["--split", "'embed'", "nothing out"]),
    (["train", "--data", "digits", "--task", "embed", "--split", "0.1,0.1"], ["--split", "'embed'", "nothing out"]),
    (["train", "--data", "digits", "--seed", "-1"], ["--seed", "'-1'", "from 0"]),
    (["train", "--data", "digits", "--epochs", "many"], ["--epochs", "'many'"]),
    (["train", "--data", "digits", "--checkpoint-every", "0"], ["--checkpoint-every", "'0'", "1 or more"]),
    (["train", "--data", "digits", "--set", "checkpoint=c"], ["--set", "checkpoint", "--checkpoint-every"]),
    (["train", "--data", "digits", "--epochs", "0"], ["epochs", "0", "1 to"]),
    (["train", "--data", "digits", "--device", "gpu"], ["--device", "'gpu'", "cuda"]),
    (["train", "--data", "digits", "--device", "cuda:99"], ["--device", "'cuda:99'", "NVIDIA GPUs"]),
    (["train", "--data", "digits", "--backend", "cpuu"], ["--backend", "the nearest: cpu"]),
    (["train", "--data", "digits", "--set", "embeding_dim=3"], ["'embeding_dim'", "the nearest: embedding_dim"]),
    (["train", "--data", "digits", "--set", "lr=1"], ["'lr'", "the nearest: learning_rate"]),
    (["train", "--data", "digits", "--set", f"embedding_dim={10**20}"], ["embedding_dim", f"{10**20}", f"{2**31 - 1}"]),
    (["train", "--data", "digits", "--set", "encoder=gnc"], ["encoder", "'gnc'", "'gcn'"]),
    (["train", "--data", "digits", "--set", "dropout=high"], ["dropout", "'high'", "number"]),
    (["train", "--data", "digits", "--set", "dropout"], ["--set", "'dropout'", "FIELD=VALUE"]),
    (["train", "--data", "digits", "--set", "epochs=3"], ["--set", "epochs", "--epochs"]),
    (["train", "--edges", "absent.txt"], ["absent.txt", "No such file"]),
    (["train", "--data", "cora", "--root", "file"], ["file"]),
]


@pytest.mark.parametrize(("argv", "parts"), BAD_OPTIONS, ids=lambda value: " ".join(value[:6]))
def test_bad_options_are_refused(run, tmp_path, monkeypatch, argv, parts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    refused(run(*argv), *parts)
    assert files_in(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("want it as in encoding='latin-1'", "want it as in --encoding 'latin-1'"),
        ("as in separator=';', or separator=' '", "as in --separator semicolon, or --separator blank"),
        ("ignored; weighted=True keeps them, names=False", "ignored; --weighted keeps them, --no-names"),
        ("public=False says so", "--split 0.1,0.1 says so"),
        ("got nodes=5 and a label=", "got nodes=5 and a --label"),
    ],
)
def test_messages_name_options(said, shown):
    assert in_options(said) == shown


def test_debug_shows_the_traceback(run, tmp_path):
    status, _, err = run("train", "--edges", tmp_path / "absent.txt", "--out", tmp_path / "out", "--debug")
    assert status == 2
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("seegera-fast: error: ")


def test_unavailable_backend_is_refused_with_the_reason(run, own, tmp_path, monkeypatch):
    monkeypatch.setattr(sf.backends.CUDA, "missing", "a reason")
    refused(run("train", *own, "--backend", "cuda", "--out", tmp_path / "out"), "'cuda'", "a reason")


def test_info(run):
    status, out, err = run("info")
    assert (status, err) == (0, "")
    assert sf.__version__ in out
    assert torch.__version__ in out
    for name, backend in sf.backends.info().items():
        (line,) = [line for line in out.splitlines() if line.startswith(f"{name} ")]
        assert (backend["reason"] or "available") in line

    status, out, _ = run("info", "--json")
    assert status == 0
    content = json.loads(out)
    assert content["versions"]["torch"] == torch.__version__
    assert content["machine"]["threads"] == torch.get_num_threads()
    assert content["machine"]["instruction_set"] == sf.backends.instruction_set()
    assert content["backends"] == sf.backends.info()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_module_version_and_closed_pipe(unbuffered):
    command = [sys.executable, "-m", "seegera_fast"]
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"seegera-fast {sf.__version__}\n"
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    closed = subprocess.run([*command, "info"], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writer)
    assert (closed.returncode, closed.stderr) == (141, "")


@pytest.mark.parametrize("command", [[], ["train"], ["embed"], ["reproduce"], ["sweep"], ["info"]])
def test_help(run, command):
    status, out, err = run(*command, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(" ".join(["usage: seegera-fast", *command]))
