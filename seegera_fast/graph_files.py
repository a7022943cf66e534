"""A graph in a folder of ``.npy`` files: the methods that :class:`seegera_fast.Graph` has for it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from .entries import MOST_ROWS
from .sparse_matrix import LAYOUTS, SparseMatrix
from .support import arguments
from .support.array_folder import ArrayFolder, FolderWriter, Kind, written_folder
from .support.json_fields import Fields
from .support.kept import lasting
from .support.pieces import spans

Made = TypeVar("Made", bound="GraphFiles")

KIND = Kind("graph.json", "seegera-fast graph", 1, "Graph.save")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Vectors that a graph may have: name -> NumPy's type, and what there is one of.
TENSORS = {
    "labels": (np.int64, "nodes"),
    "edge_times": (np.float64, "edges"),
    "node_numbers": (np.int64, "nodes"),
    "parts": (np.int64, "nodes"),
}
# So many entries are checked at once.
ENTRIES = 2**21


class GraphFiles:
    """Writes an object's arrays to a folder, and maps them from there."""

    # The folder that the arrays are mapped from; None: they are in memory.
    folder: ArrayFolder | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A pickle or a deep copy holds the arrays themselves.
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "folder"}

    def save(self: Any, folder: Any) -> None:
        """Writes the graph to a folder of plain ``.npy`` files and a ``graph.json`` with sizes and checksums.

        The folder is written under another name and then renamed: it is complete or not there. A folder that holds a
        graph, and nothing else, is replaced; a graph that was opened from it stays as it is.

        Raises:
            TypeError: ``folder`` is not a path.
            ValueError: at the path is something else than such a folder; or a file that the graph is mapped from was
                changed.
            OSError: it can't be written, such as on a full disk.

        Example:
            >>> import tempfile, torch
            >>> import seegera_fast as sf
            >>> graph = sf.Graph.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     graph.save(f"{folder}/path")
            ...     sf.Graph.open(f"{folder}/path")
            Graph('graph': 3 nodes, 2 edges, 3 features, torch.float32, cpu)
        """
        self.require_unchanged()
        with written_folder(Path(arguments.path("folder", folder)), KIND) as writer:
            _write_matrix(writer, "", self.adjacency)
            if self.weights is not None:
                writer.array("weights", _numpy(self.weights))
            write_nodes(writer, self, self.adjacency.nnz)

    @classmethod
    @lasting
    def open(cls: type[Made], folder: Any, *, verify: bool | None = None) -> Made:
        """Opens a graph that :meth:`save` or ``seegera-fast import`` has written. Its arrays are mapped into memory.

        Only what is used is read from the disk, and memory that is short can be taken back for other things. But names
        that are words are read at once, into memory. The graph has all methods of one in memory; what they compute from
        the whole graph, such as ``propagation``, is in memory. Writing to a tensor does not change the file.

        Args:
            folder: the folder.
            verify: True: all files are read and held against their checksums, and their numbers against what a graph
                may hold. False: only their sizes and types are checked. None: files are read if one is not the very
                file that was written, by its inode and time, as in a copy of the folder.

        Raises:
            TypeError: an argument is of a wrong kind.
            FileNotFoundError: there is no such folder.
            OSError: it can't be read.
            ValueError: it is no such folder, or a file is missing, damaged or cut short; the message names the file.
        """
        path = Path(arguments.path("folder", folder))
        if verify is not None:
            verify = arguments.flag("verify", verify)
        found = ArrayFolder(path, KIND)
        read = verify or (verify is None and not found.as_written())
        if read:
            # Before anything is made of them, so that the message names the file that was changed.
            found.verify()
        graph = _graph_of(cls, found)
        if read:
            _check(graph, found)
        return graph

    def require_unchanged(self) -> None:
        """Checks that the files that the graph is mapped from are still as they were when they were opened.

        Raises:
            ValueError: a file was changed; the message names it.
        """
        if self.folder is not None:
            self.folder.require_unchanged()


def write_nodes(writer: FolderWriter, graph: Any, entries: int) -> None:
    """Writes all of a graph but its adjacency and weights, which have been written, and the JSON of the folder.

    Args:
        entries: the number of entries of the adjacency that was written.
    """
    _write_matrix(writer, "features_", graph.features)
    for name in TENSORS:
        if getattr(graph, name, None) is not None:
            writer.array(name, _numpy(getattr(graph, name)))
    if graph.masks:
        with writer.open("masks", np.bool_, (graph.num_nodes,)) as file:
            for mask in graph.masks.values():
                file.write(_numpy(mask)[None])
    if graph.sides is not None:
        writer.array("sides", graph.sides)
    for name in ("nodes", "feature_names", "classes"):
        names = getattr(graph, name)
        if isinstance(names, np.ndarray) and names.dtype.kind == "i":
            writer.array(name, names)
        elif names is not None:
            writer.words(name, names if isinstance(names, tuple) else names.tolist())
    facts = {
        "name": graph.name,
        "dtype": str(graph.dtype).removeprefix("torch."),
        "nodes": graph.num_nodes,
        "features": graph.num_features,
        "entries": entries,
        "feature_entries": graph.features.nnz,
        "classes": None if graph.classes is None else len(graph.classes),
        "masks": list(graph.masks),
        "unlabelled": graph.unlabelled,
        "data_set": graph.data_set,
        "layout": graph.features.layout,
    }
    writer.finish(KIND, facts)


def _write_matrix(writer: FolderWriter, name: str, matrix: SparseMatrix) -> None:
    for part in ("rowptr", "col", "values"):
        writer.array(f"{name}{part}", _numpy(getattr(matrix, part)))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _graph_of(cls: type[Made], found: ArrayFolder) -> Made:
    """The graph of a folder, whose files have been found to be of the sizes that are stated."""
    facts = found.facts
    dtype = np.dtype(facts.text("dtype", DTYPES))
    sizes = {
        "nodes": facts.whole("nodes", 1, MOST_ROWS),
        "features": facts.whole("features", 1, MOST_ROWS),
        "entries": facts.whole("entries"),
        "feature_entries": facts.whole("feature_entries"),
    }
    sizes["edges"] = sizes["entries"] // 2
    if sizes["entries"] % 2:
        raise facts.wrong("entries", "an even number")
    nodes = sizes["nodes"]

    def tensor(name: str, kind: Any, count: int) -> torch.Tensor:
        return torch.from_numpy(found.array(name, kind, (count,)))

    def matrix(name: str, columns: int, entries: int, hollow: bool) -> SparseMatrix:
        rowptr, col = tensor(f"{name}rowptr", np.int64, nodes + 1), tensor(f"{name}col", np.int64, entries)
        if int(rowptr[0]) != 0 or int(rowptr[-1]) != entries:
            raise ValueError(
                f"{found.place(f'{name}rowptr')}: got numbers from {int(rowptr[0])} to {int(rowptr[-1])}, want 0 to "
                f"{entries}"
            )
        values = tensor(f"{name}values", dtype, entries)
        return SparseMatrix(rowptr, col, values, (nodes, columns), symmetric=hollow, hollow=hollow)

    graph: Any = cls.__new__(cls)
    graph.folder = found
    graph.name, graph.unlabelled = facts.text("name"), _optional_text(facts, "unlabelled")
    graph.data_set = _optional_text(facts, "data_set")
    graph.adjacency = matrix("", nodes, sizes["entries"], True)
    graph._weights = tensor("weights", dtype, sizes["entries"]) if "weights" in found else None
    graph.features = matrix("features_", sizes["features"], sizes["feature_entries"], False)
    graph.features = graph.features.with_layout(facts.text("layout", LAYOUTS))
    for name, (kind, per) in TENSORS.items():
        if name in found:
            setattr(graph, name, tensor(name, kind, sizes[per]))
        elif name in ("labels", "edge_times"):
            # What fewer graphs have is an attribute of the class.
            setattr(graph, name, None)
    graph.sides = found.array("sides", np.int64, (nodes,)) if "sides" in found else None
    names = facts.items("masks")
    if not all(isinstance(name, str) for name in names):
        raise facts.wrong("masks", "strings")
    masks = found.array("masks", np.bool_, (len(names), nodes)) if names else ()
    graph.masks = {name: torch.from_numpy(mask) for name, mask in zip(names, masks, strict=True)}
    graph.nodes = _names(found, "nodes", nodes)
    graph.feature_names = _names(found, "feature_names", sizes["features"])
    classes = facts.whole("classes", none=True)
    graph.classes = None if classes is None else tuple(found.words("classes", classes))
    return graph


def _optional_text(facts: Fields, name: str) -> str | None:
    return None if facts.take(name) is None else facts.text(name)


def _names(found: ArrayFolder, name: str, count: int) -> np.ndarray | None:
    if name in found:
        return found.array(name, np.int64, (count,))
    return np.array(found.words(name, count), object) if f"{name}.letters" in found else None


# What a graph may hold.


def _check(graph: Any, found: ArrayFolder) -> None:
    """Checks the numbers of all files, which kernels trust.

    Raises:
        ValueError: the message names the file.
    """
    _check_structure(graph.adjacency, found, "")
    _check_structure(graph.features, found, "features_")
    tiny = torch.finfo(graph.dtype).tiny
    _require(found, "values", graph.adjacency.values, lambda part: part == 1, "ones")
    _require(
        found, "features_values", graph.features.values, lambda part: part.isfinite() & (part.abs() >= tiny), "numbers"
    )
    weights = graph.weights
    if weights is not None:
        _require(found, "weights", weights, lambda part: part.isfinite() & (part >= tiny), "numbers above 0")
    _check_symmetric(graph.adjacency, weights, found)
    for name, wanted in (("sides", "0, 1 or -1"), ("masks", "0 or 1")):
        if name in found:
            least = -1 if name == "sides" else 0
            part = torch.from_numpy(found.array(name, *_kind(graph, name)).view(np.int8 if least == 0 else np.int64))
            _require(found, name, part, lambda part, least=least: (part >= least) & (part <= 1), wanted)
    for name in ("nodes", "feature_names", "classes"):
        names = getattr(graph, name)
        if names is not None and len(set(names if isinstance(names, tuple) else names.tolist())) < len(names):
            place = found.place(name if name in found else f"{name}.letters")
            raise ValueError(f"{place}: got a name twice, want different names")
    for name in ("node_numbers", "parts"):
        if name in found:
            _require(found, name, getattr(graph, name), lambda part: part >= 0, "numbers from 0")
    if graph.labels is not None and graph.classes is not None:
        below = len(graph.classes)
        _require(found, "labels", graph.labels, lambda part: part < below, f"numbers below {below}")


def _kind(graph: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    if name == "sides":
        return np.int64, (graph.num_nodes,)
    return np.bool_, (len(graph.masks), graph.num_nodes)


def _require(
    found: ArrayFolder, name: str, values: torch.Tensor, allowed: Callable[[torch.Tensor], torch.Tensor], wanted: str
) -> None:
    """Checks all values of a file, a piece at a time."""
    flat = values.reshape(-1)
    for low, high in spans(flat.shape[0], ENTRIES):
        wrong = ~allowed(flat[low:high])
        if bool(wrong.any()):
            raise ValueError(f"{found.place(name)}: got {flat[low:high][wrong][0].item()}, want {wanted}")


def _check_structure(matrix: SparseMatrix, found: ArrayFolder, name: str) -> None:
    rowptr, col = matrix.rowptr, matrix.col
    if bool((rowptr[1:] < rowptr[:-1]).any()):
        raise ValueError(f"{found.place(f'{name}rowptr')}: got numbers that fall, want ascending ones")
    columns = matrix.shape[1]
    place, wanted = f"{name}col", f"0 to {columns - 1}"
    _require(found, place, col, lambda part: (part >= 0) & (part < columns), wanted)
    for low, high in spans(max(0, col.shape[0] - 1), ENTRIES):
        falls = torch.nonzero(col[low + 1 : high + 1] <= col[low:high]).flatten() + low + 1
        at = torch.searchsorted(rowptr, falls)
        if not torch.equal(rowptr[at], falls):
            raise ValueError(f"{found.place(place)}: got columns that do not ascend in their row")


def _check_symmetric(matrix: SparseMatrix, weights: torch.Tensor | None, found: ArrayFolder) -> None:
    """Checks that there are the same entries above the diagonal and below it, and none on it.

    Both halves are added up as random numbers that depend on the ends and the weight of each entry. The numbers are
    others in each call, so that no file is made to have the same sum by chance or on purpose.
    """
    key = np.array([secrets.randbits(64) | 1, secrets.randbits(64)], np.uint64)
    total, n = np.uint64(0), matrix.shape[0]
    rowptr, col = matrix.rowptr.numpy(), matrix.col.numpy()
    kind = np.uint32 if matrix.dtype == torch.float32 else np.uint64
    for low, high in spans(col.size, ENTRIES):
        first, last = np.searchsorted(rowptr, [low, high - 1], side="right") - 1
        lengths = np.diff(np.clip(rowptr[first : last + 2], low, high))
        row, other = np.repeat(np.arange(first, last + 1), lengths), col[low:high]
        if (row == other).any():
            raise ValueError(f"{found.place('col')}: got an edge from a node to itself")
        number = (np.minimum(row, other) * n + np.maximum(row, other)).astype(np.uint64)
        if weights is not None:
            number = _mixed(number ^ key[1]) + weights[low:high].numpy().view(kind)
        number = _mixed(number * key[0] + key[1])
        above = row < other
        with np.errstate(over="ignore"):
            total += number[above].sum() - number[~above].sum()
    if total:
        raise ValueError(f"{found.place('col')}: got a directed graph, want each edge in both directions, alike")


def _mixed(number: np.ndarray) -> np.ndarray:
    """A bijection of the integers of 64 bits, each bit of which depends on all (splitmix64)."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))
