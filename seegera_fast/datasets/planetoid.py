"""Planetoid's citation graphs (Yang, Cohen and Salakhutdinov 2016): eight files per data set."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..support.hints import quoted
from ..tables.text import TextFile
from .arrays import RawGraph, undirected
from .unpickle import read_pickle

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
VALID_NODES = 500


def read_planetoid(folder: Path, key: str) -> RawGraph:
    """Reads ``ind.<key>.x`` and its seven companions.

    The first nodes are the rows of ``allx``. Row i of ``tx`` is the node whose number is entry i of ``test.index``. A
    number that is missing there (15 isolated nodes of CiteSeer) is a node with a zero feature row and the label -1.

    The public split: the first ``len(y)`` nodes are for training, the next 500 (or as many as ``allx`` has) for
    validation, the nodes of ``test.index`` for testing.

    Raises:
        OSError: a file is missing.
        ValueError: a file is refused or corrupt, or does not fit the others; the message names the file.
    """
    paths = {part: folder / f"ind.{key}.{part}" for part in PARTS}
    x, tx, allx = (_matrix(paths[part]) for part in ("x", "tx", "allx"))
    y, ty, ally = (_one_hot(paths[part]) for part in ("y", "ty", "ally"))
    for features, classes, part in ((x, y, "x"), (tx, ty, "tx"), (allx, ally, "allx")):
        if features.shape[0] != classes.shape[0]:
            raise ValueError(f"{paths[part]}: {features.shape[0]} rows, but {classes.shape[0]} rows of labels")
        if features.shape[1] != allx.shape[1]:
            raise ValueError(f"{paths[part]}: {features.shape[1]} columns, but allx has {allx.shape[1]}")
        if classes.shape[1] != ally.shape[1]:
            raise ValueError(f"{paths[part]}: labels of {classes.shape[1]} classes, but ally has {ally.shape[1]}")
    if x.shape[0] > allx.shape[0]:
        raise ValueError(f"{paths['x']}: {x.shape[0]} rows, more than the {allx.shape[0]} of allx")
    if (x != allx[: x.shape[0]]).nnz:
        raise ValueError(f"{paths['x']}: the rows are not the first ones of {paths['allx']}, want files of one edition")
    if not np.array_equal(y, ally[: y.shape[0]]):
        raise ValueError(f"{paths['y']}: the rows are not the first ones of {paths['ally']}, want files of one edition")
    known = allx.shape[0]
    graph = read_pickle(paths["graph"])
    if not isinstance(graph, dict):
        raise ValueError(f"{paths['graph']}: holds {type(graph).__name__}, want a dictionary of neighbour lists")
    # Every node is a key of the graph's dictionary, so the file's size limits the node numbers.
    num_nodes = max(len(graph), known + tx.shape[0])
    test = _test_index(paths["test.index"], known, num_nodes)
    if test.size != tx.shape[0]:
        raise ValueError(f"{paths['test.index']}: {test.size} node numbers, but tx has {tx.shape[0]} rows")

    placement = scipy.sparse.csr_matrix(
        (np.ones(test.size, tx.dtype), (test - known, np.arange(test.size))), shape=(num_nodes - known, test.size)
    )
    features = scipy.sparse.vstack([allx, placement @ tx], format="csr")
    labels = np.full(num_nodes, -1, dtype=np.int64)
    labels[:known] = _classes(ally, paths["ally"])
    labels[test] = _classes(ty, paths["ty"])
    node = np.arange(num_nodes)
    masks = {
        "train": node < x.shape[0],
        "valid": (node >= x.shape[0]) & (node < min(x.shape[0] + VALID_NODES, known)),
        "test": np.isin(node, test),
    }
    return RawGraph(_adjacency(graph, num_nodes, paths["graph"]), features, labels, masks)


def _matrix(path: Path) -> scipy.sparse.csr_matrix:
    matrix = read_pickle(path)
    if not scipy.sparse.issparse(matrix):
        raise ValueError(f"{path}: holds {type(matrix).__name__}, want a SciPy CSR matrix")
    return matrix


def _one_hot(path: Path) -> np.ndarray:
    array = read_pickle(path)
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{path}: want a NumPy array with one row of class indicators per node")
    return array


def _classes(one_hot: np.ndarray, path: Path) -> np.ndarray:
    """The class of each row of a one-hot matrix; -1 for a row of zeros."""
    wrong = np.flatnonzero(~np.isin(one_hot, (0, 1)).all(axis=1) | ((one_hot != 0).sum(axis=1) > 1))
    if wrong.size:
        raise ValueError(f"{path}: row {wrong[0]} is no class, want rows of zeros with at most one 1")
    return np.where((one_hot != 0).any(axis=1), one_hot.argmax(axis=1), -1)


def _test_index(path: Path, low: int, high: int) -> np.ndarray:
    want = f"one node number from {low} to {high - 1}"
    numbers, file = [], TextFile(path, want)
    for block in file.blocks():
        for number, (line, field) in enumerate(zip(block.lines, block.column(0), strict=True)):
            # At most 10 digits, because Python refuses to convert very many.
            digits = block.width == 1 and field.isascii() and field.isdigit() and len(field) <= 10
            if not digits or not low <= int(field) < high:
                raise file.wrong(line, block.record(number), want)
            numbers.append(int(field))
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"{path}: a node number is listed twice")
    return np.array(numbers, dtype=np.int64)


def _adjacency(graph: dict[Any, Any], num_nodes: int, path: Path) -> scipy.sparse.csr_matrix:
    if not all(type(neighbours) is list for neighbours in graph.values()):
        raise ValueError(f"{path}: want a list of neighbours for each node")
    degrees = [len(neighbours) for neighbours in graph.values()]
    # A pickle may name one list many times. A node number takes a byte at least.
    size = path.stat().st_size
    if sum(degrees) > size:
        raise ValueError(f"{path}: got {sum(degrees)} neighbours in a file of {size} bytes, want a list for each node")
    for number in chain(graph, chain.from_iterable(graph.values())):
        if type(number) is not int or not 0 <= number < num_nodes:
            raise ValueError(f"{path}: got node {quoted(number)}, want integers from 0 to {num_nodes - 1}")
    row = np.repeat(np.fromiter(graph, np.int64, len(graph)), degrees)
    col = np.fromiter(chain.from_iterable(graph.values()), np.int64, row.size)
    return undirected(
        scipy.sparse.coo_matrix((np.ones(row.size, np.float32), (row, col)), shape=(num_nodes, num_nodes))
    )
