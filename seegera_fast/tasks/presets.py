"""Named sets of hyper-parameters, read from ``presets.toml``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..support import arguments
from ..support.hints import nearest
from ..support.tables import read_tables
from .task import TASKS

PRESETS = Path(__file__).with_name("presets.toml")
VARIANTS = {"v1": "independent", "v2": "correlated", "v3": "correlated"}
COMMON = "common"
DEFAULT = "default"


def names(task: str) -> list[str]:
    """The presets of a task: the data sets, and "default" for any other graph."""
    check("task", task, TASKS)
    tables = {**(_tables(TASKS[task].like) if TASKS[task].like else {}), **_tables(task), DEFAULT: {}}
    return [name for name in tables if name != COMMON]


def load(task: str, name: str, variant: str = "v3") -> dict[str, Any]:
    """The fields of SeeGeraConfig, TrainingConfig and the task in which a preset differs from the defaults.

    Args:
        task: "link_prediction", "attribute_inference", "node_classification" or "embed".
        name: one of :func:`names`.
        variant: "v1" (independent), "v2" (correlated) or "v3" (correlated, with masking).

    Raises:
        TypeError: an argument is not a string.
        ValueError: an unknown task, name or variant; the message names the most similar ones.

    Example:
        >>> import seegera_fast as sf
        >>> fields = sf.tasks.presets.load("link_prediction", "cora")
    """
    check("name", name, names(task))
    if isinstance(variant, str) and variant in VARIANTS.values():
        raise ValueError(
            f"variant: got {variant!r}, which is a variant of a model; want of a task 'v1' (independent), 'v2' "
            "(correlated) or 'v3' (correlated, with masking)"
        )
    check("variant", variant, VARIANTS)
    common, preset = (_tables(task).get(table, {}) for table in (COMMON, name))
    like = TASKS[task].like
    merged = load(like, name, variant) if like else {"variant": VARIANTS[variant]}
    for table in (common, preset, preset.get(variant, {})):
        merged.update({field: value for field, value in table.items() if not isinstance(value, dict)})
    return merged


def _tables(task: str) -> dict[str, Any]:
    """The tables of a task's presets. A task without tables has the preset "default", with no fields."""
    return read_tables(PRESETS).get(task, {})


def check(argument: str, value: Any, known: Iterable[str]) -> None:
    """Checks for one of some known names; the message says which are similar."""
    arguments.text(argument, value)
    known = list(known)
    if value not in known:
        raise ValueError(f"{argument}: got {arguments.shown(value)}, which is not known; {nearest(value, known)}")
