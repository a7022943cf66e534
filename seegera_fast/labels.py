"""Checks and converts what each node has: a label (a number, a word, or a row of scores), a name, and features."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch

from .support.arguments import array, is_integer, shown
from .support.frames import column_names, is_frame, is_missing

UNKNOWN = -1
# So many names are in memory once more while their digest is computed.
_AT_ONCE = 1 << 16


def class_labels(labels: Any, num_nodes: int) -> tuple[torch.Tensor | None, tuple[str, ...] | None]:
    """Class labels int64 ``[n]``, and the names of the classes if the labels are words.

    Args:
        labels: integers, words, or a row of scores or a one-hot row per node; None: there are none.

    Returns:
        The labels, negative where unknown, and the names in sorted order: label ``k`` has the name ``classes[k]``. Both
        may be None.
    """
    if labels is None:
        return None, None
    found = _array("labels", labels)
    if found.ndim == 0:
        raise TypeError(f"labels: got {shown(labels)}, want one label per node: [{num_nodes}]")
    classes, shape = None, tuple(found.shape)
    if shape and shape[0] != num_nodes:
        raise ValueError(f"labels: got shape {shape}, want one label per node: [{num_nodes}]")
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim == 2 and found.shape[1] > 1 and found.dtype.kind in "biuf":
        found = _largest(found)
    if found.ndim == 1 and found.dtype.kind == "O":
        found, classes = _numbers_of_objects(found)
    if found.ndim != 1 or found.shape[0] != num_nodes:
        raise ValueError(f"labels: got shape {shape}, want one label per node: [{num_nodes}]")
    if found.dtype.kind not in "biuf":
        raise TypeError(f"labels: got values of type {found.dtype}, want integers or words")
    if found.dtype.kind == "f":
        found = np.where(np.isnan(found), UNKNOWN, found)
        if not (np.isfinite(found) & (found == np.round(found))).all():
            raise TypeError(f"labels: got values of type {found.dtype} that are not whole, want integers or words")
    if found.dtype.kind in "uf" and found.size and (found.min() < -(2.0**63) or found.max() >= 2.0**63):
        raise ValueError(f"labels: got numbers from {found.min()} to {found.max()}, want numbers of 64 bits")
    return torch.from_numpy(found.astype(np.int64)), classes


def node_names(nodes: Any, num_nodes: int) -> np.ndarray | None:
    """The names of the nodes: an array ``[n]`` of int64, or of strings as objects.

    Raises:
        TypeError: the names are neither all integers nor all strings.
        ValueError: not one name per node, an empty name, or two nodes of the same name.
    """
    if nodes is None:
        return None
    found = _array("nodes", nodes)
    if found.shape != (num_nodes,):
        raise ValueError(f"nodes: got shape {found.shape}, want one name per node: [{num_nodes}]")
    words = found.dtype.kind == "O" and all(isinstance(name, str) for name in found.tolist())
    if words:
        found = np.array([str(name) for name in found.tolist()], object)
        empty = np.flatnonzero(found == "")
        if empty.size:
            raise ValueError(f"nodes: got '' as the name of node {empty[0]}, want names that are not empty")
    elif found.dtype.kind == "O" and all(map(is_integer, found.tolist())):
        numbers = list(map(int, found.tolist()))
        wrong = next((number for number in numbers if not -(2**63) <= number < 2**63), None)
        if wrong is not None:
            raise ValueError(f"nodes: got the number {shown(wrong)}, want numbers of 64 bits")
        found = np.array(numbers, np.int64)
    if not words and found.dtype.kind not in "iu":
        raise TypeError(f"nodes: got {_kinds(found)}, want names that are all integers or all strings")
    if found.dtype.kind == "u" and found.max() >= 2**63:
        raise ValueError(f"nodes: got the number {found.max()}, want numbers of 64 bits")
    # Sorting many words takes long, and so does np.unique with many numbers.
    if len(set(found.tolist())) < num_nodes if words else (np.diff(np.sort(found)) == 0).any():
        different, counts = np.unique(found, return_counts=True)
        raise ValueError(f"nodes: got the name {shown(different[counts > 1].tolist()[0])} twice, want different names")
    return found if words else found.astype(np.int64)


def names_digest(names: np.ndarray) -> str:
    """SHA-256 of names as :func:`node_names` returns them, in hexadecimal."""
    digest = hashlib.sha256()
    for begin in range(0, len(names), _AT_ONCE):
        # JSON tells apart integers and strings, and where a string ends.
        digest.update(json.dumps(names[begin : begin + _AT_ONCE].tolist()).encode())
    return digest.hexdigest()


def check_features(shape: tuple[int, int], num_nodes: int) -> None:
    """Refuses features without a row for each node, or without columns."""
    if shape[0] != num_nodes:
        raise ValueError(f"features: got {shape[0]} rows, want one per node: the graph has {num_nodes} nodes")
    if shape[1] == 0:
        raise ValueError("features: got no columns, want at least one feature (None stands for the identity)")


def feature_names(names: Any, features: Any, num_features: int) -> np.ndarray | None:
    """The names of the features: strings ``[l]`` as objects.

    Args:
        names: None: those of the columns of ``features``, if that is a data frame whose columns have names.

    Raises:
        TypeError: the names are not all strings.
        ValueError: not one name per feature, or two features of the same name.
    """
    if names is None and is_frame(features):
        names = column_names(features)
    if names is None:
        return None
    if isinstance(names, str):
        raise TypeError(f"feature_names: got {shown(names)}, want a list of strings")
    found = _array("feature_names", names)
    if found.shape != (num_features,):
        raise ValueError(
            f"feature_names: got shape {found.shape}, want one name per column of the features: [{num_features}]"
        )
    if not all(isinstance(name, str) for name in found.tolist()):
        raise TypeError(f"feature_names: got {_kinds(found)}, want strings")
    different, counts = np.unique(found, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"feature_names: got {shown(different[counts > 1].tolist()[0])} twice, want different names")
    return np.array([str(name) for name in found.tolist()], object)


def _array(name: str, value: Any) -> np.ndarray:
    """An array; one of words, or of words and others, holds the objects, because NumPy would write all as words."""
    found = array(name, value)
    if found.dtype.kind not in "UST":
        return found
    return np.array(value.tolist() if isinstance(value, np.ndarray) else value, object)


def _numbers_of_objects(found: np.ndarray) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Numbers for words in their sorted order, and the words; or the numbers that the objects are, and None."""
    values = found.tolist()
    missing = [_is_missing(value) for value in values]
    known = [value for value, gone in zip(values, missing, strict=True) if not gone]
    number, classes = None, None
    if known and all(isinstance(value, str) for value in known):
        classes = tuple(sorted(map(str, {*known})))
        number = {word: place for place, word in enumerate(classes)}
    elif not all(isinstance(value, (int, float, np.integer, np.floating)) for value in known):
        raise TypeError(f"labels: got {_kinds(found)}, want integers or words")
    values = [UNKNOWN if gone else value for value, gone in zip(values, missing, strict=True)]
    return np.array(values if number is None else [number.get(value, UNKNOWN) for value in values]), classes


def _is_missing(value: Any) -> bool:
    """Whether a value among words stands for none: None, NaN, pandas' NA, or no letters."""
    return is_missing(value) or (isinstance(value, str) and value == "")


def _kinds(found: np.ndarray) -> str:
    if found.dtype.kind != "O":
        return f"values of type {found.dtype}"
    return f"values of type {', '.join(sorted({type(value).__name__ for value in found.ravel().tolist()})[:4])}"


def _largest(scores: np.ndarray) -> np.ndarray:
    """The column of the largest score in each row. A row of zeros or of NaN has no label.

    Raises:
        ValueError: a row has several largest scores, as that of a node in several classes has, or NaN among others.
    """
    gaps = np.isnan(scores) if scores.dtype.kind == "f" else np.zeros_like(scores, bool)
    known = scores.any(axis=1) & ~gaps.all(axis=1)
    some = np.flatnonzero(known & gaps.any(axis=1))
    if some.size:
        raise ValueError(f"labels: got NaN among the scores of node {some[0]}, want finite scores, or all NaN: unknown")
    several = np.flatnonzero(known & ((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1))
    if several.size:
        columns = np.flatnonzero(scores[several[0]] == scores[several[0]].max())
        raise ValueError(
            f"labels: got several classes for node {several[0]} (columns {columns[0]} and {columns[1]}), want one "
            "class per node, or labels=None"
        )
    return np.where(known, scores.argmax(axis=1), UNKNOWN)
