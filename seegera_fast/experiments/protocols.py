"""The paper's experiments: their tasks and scores, and the methods that they compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ..support.tables import read_tables
from ..tasks.task import TASKS as BY_NAME

PAPER = Path(__file__).with_name("paper.toml")
# Keys of the tasks. Those with figures in the paper come first, in the paper's order.
PAPER_TASKS = tuple(read_tables(PAPER))
_BY_KEY = {task.key: task for task in BY_NAME.values()}
EVERY_TASK = {key: _BY_KEY[key] for key in dict.fromkeys([*PAPER_TASKS, *_BY_KEY])}
# The tasks that can be compared, because they have scores.
TASKS = {key: task for key, task in EVERY_TASK.items() if task.scores}
# The arguments of the tasks' functions that describe a split.
SPLIT_ARGUMENTS = tuple(dict.fromkeys(name for task in TASKS.values() for name in (*task.shares, *task.random)))
SCORES = {score.name: score for task in TASKS.values() for score in task.scores}


class Method(NamedTuple):
    """A method that is compared with others: a variant of the model, and fields that differ from its preset.

    Attributes:
        title: its name in tables.
        variant: "v1", "v2" or "v3"; the preset is that of this variant.
        fields: the fields that override the preset.
    """

    title: str
    variant: str
    fields: dict[str, Any]


LINKS_ONLY = {"feature_side": False}
METHODS = {
    "v1": Method("SeeGera-v1", "v1", {}),
    "v2": Method("SeeGera-v2", "v2", {}),
    "v3": Method("SeeGera-v3", "v3", {}),
    # The independent feature embeddings stay in the bound, with their prior and mixture, but no decoder reads them.
    "nf": Method("SeeGera_nf", "v1", {"feature_embeddings": False}),
    "sigvae": Method("SIG-VAE", "v2", LINKS_ONLY),
    "vgae": Method("VGAE", "v2", {**LINKS_ONLY, "noise_dim": 0, "num_mixture_samples": 0}),
}
BASELINES = ("sigvae", "vgae")
# The methods that the paper introduces.
OWN_METHODS = tuple(name for name in METHODS if name not in BASELINES)
