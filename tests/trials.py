"""Settings, trials and records for the tests of experiments, and a worker that runs a trial in this process."""

from __future__ import annotations

import functools
import json

import numpy as np

from seegera_fast import Graph
from seegera_fast.experiments.protocols import TASKS
from seegera_fast.experiments.trials import Record, Setting, Trial, run_trial
from seegera_fast.experiments.worker import STOPPED

SMALL = {"embedding_dim": 6, "hidden_dim": 7, "epochs": 3, "warmup_epochs": 2}
QUICK = {**SMALL, "classifier_epochs": 5}


@functools.cache
def communities(name: str) -> Graph:
    """Two communities, with the name of a data set, so that its preset and the paper's figures are used."""
    rng = np.random.default_rng(2)
    block = np.arange(40) % 2
    same = block[:, None] == block[None, :]
    upper = np.triu(rng.random(same.shape) < np.where(same, 0.5, 0.05), 1)
    features = rng.random((40, 15)) < np.where(np.arange(15)[None, :] % 2 == block[:, None], 0.7, 0.1)
    return Graph(upper + upper.T, features.astype(float), block, name=name)


def load(name, root=None, progress=True):
    """In place of ``datasets.load``: every data set is a small graph, except pubmed, which is missing."""
    if name == "pubmed":
        raise FileNotFoundError("pubmed: files missing in a folder")
    return communities(name)


class Here:
    """A fake Worker, which runs the trial at once, in this process."""

    started: list[Trial] = []  # noqa: RUF012
    measured: list[Trial] = []  # noqa: RUF012

    def __init__(self, trial, conditions, threads, *, pace=False):
        if pace:
            self.measured.append(trial)
            self.outcome = 0, json.dumps([9.0, 3.0, 2.0, 3.5])
            return
        self.started.append(trial)
        try:
            finished = run_trial(trial, conditions.folder, conditions.root, conditions.device)
            self.outcome = (0 if finished else STOPPED), ""
        except Exception as error:
            self.outcome = 1, str(error)

    def ended(self):
        return True

    def stop(self):
        pass

    def end(self):
        return self.outcome


def setting(task="link", data="cora", method="v3", split="paper", precision="highest", **fields):
    return Setting(task, data, method, split, tuple(sorted(fields.items())), precision)


def record(score, *, seed=0, failure=None, **keys):
    where = setting(**keys)
    scores = {each.name: score for each in TASKS[where.task].scores}
    history = {"epoch": [1, 2, 3], "loss": [1.0, 0.5, 0.33333], "valid_auc": [None, 0.5, 0.5]}
    content = {
        "setting": {},
        "failure": failure,
        "machine": {
            "gpu": None,
            "processor": "A Processor",
            "instruction_set": "avx2",
            "threads": 2,
            "system": "Linux x86_64",
            "backends": ["cpu"],
        },
        "versions": dict.fromkeys(("seegera-fast", "torch", "numpy", "scipy", "scikit-learn"), "1"),
    }
    if failure is None:
        content.update(scores=scores, seconds=10.0 + seed, epochs=3, peak_memory_bytes=2**20 * seed, history=history)
    return Record(Trial(where, seed), content)
