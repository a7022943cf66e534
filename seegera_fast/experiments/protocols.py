"""The paper's experiments: tasks with their scores and splits, and the methods that are compared."""

from __future__ import annotations

from typing import Any, NamedTuple


class Task(NamedTuple):
    """A task as the command line knows it.

    Attributes:
        function: its name in ``seegera_fast.tasks``.
        title: in words.
        scores: names of its scores.
        splits: shares of the parts, by the name of the split: "paper" (the paper's text) and, where it has other ones,
            "released" (the authors' program).
    """

    function: str
    title: str
    scores: tuple[str, ...]
    splits: dict[str, dict[str, float]]


TASKS = {
    "link": Task(
        "link_prediction",
        "link prediction",
        ("auc", "ap"),
        {"paper": {"valid": 0.2, "test": 0.1}, "released": {"valid": 0.05, "test": 0.1}},
    ),
    "attribute": Task(
        "attribute_inference",
        "attribute inference",
        ("mse",),
        {"paper": {"valid": 0.1, "test": 0.2}, "released": {"valid": 0.05, "test": 0.1}},
    ),
    "node": Task("node_classification", "node classification", ("accuracy",), {"paper": {}}),
}


class Method(NamedTuple):
    """What is compared: a variant of the model, and fields that differ from the data set's preset.

    Attributes:
        title: as tables name it.
        variant: whose preset is taken: "v1", "v2" or "v3".
        fields: override it.
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
# The paper's own.
OWN_METHODS = tuple(name for name in METHODS if name not in BASELINES)
