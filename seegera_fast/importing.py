"""Tables of any size as the folder of a graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from .graph import Graph
from .graph_files import KIND, write_nodes
from .support.array_folder import written_folder
from .support.hints import shown_name
from .support.naming import named
from .support.progress import Steps, phase
from .tables.join import parts_of_graph
from .tables.on_disk import OnDisk
from .tables.reading import Reading

# What sorting the edges may take in memory, in bytes.
MEMORY = 2 * 2**30


def import_tables(
    folder: Path,
    edges: Any,
    features: Any = None,
    labels: Any = None,
    *,
    reading: Reading,
    memory: int = MEMORY,
    show: bool = False,
) -> None:
    """Writes the graph that :meth:`seegera_fast.Graph.from_table` makes of tables to a folder for ``Graph.open``.

    The edges are read once and sorted in files beside the folder's, which are removed: 24 bytes for each of them, and
    24 more with weights and with times each. The names of the nodes, the features and the labels are in memory, and so
    is a matrix of SciPy (``.npz``), whatever ``memory`` is.

    Args:
        folder: see :meth:`seegera_fast.Graph.save`.
        edges, features, labels: see ``from_table``.
        reading: how the tables are read.
        memory: what sorting the edges may take, in bytes. Those of one node are sorted together, however many.
        show: whether the progress is shown.

    Raises:
        ValueError, TypeError, ImportError: see ``from_table``; or the folder is something else, as in ``save``.
        OSError: a file can't be read, or the folder can't be written.
    """
    if isinstance(edges, (str, os.PathLike)) and Path(edges).suffix == ".npz":
        # A matrix, which SciPy has in memory.
        Graph.from_table(edges, features, labels, **_given(reading)).save(folder)
        return
    with written_folder(folder, KIND) as writer, writer.scratch() as scratch:
        store = OnDisk(writer, scratch, memory, weighted=reading.weighted, dtype=torch.float32, show=show)
        watch = _watched(f"reading {shown_name(Path(edges).name)}" if show else "", show)
        parts = parts_of_graph(edges, features, labels, reading, build=store.build, keep=store.keep, watch=watch)
        with phase("writing the nodes", show=show), named(parts.places):
            # Without its edges, which are in the folder.
            graph = Graph(
                parts.adjacency,
                parts.features,
                parts.labels,
                name=parts.name,
                nodes=parts.nodes,
                feature_names=parts.feature_names,
            )
            graph.sides = parts.sides
            write_nodes(writer, graph, store.entries)


def _given(reading: Reading) -> dict[str, Any]:
    return dict(vars(reading))


def _watched(name: str, show: bool) -> Callable[[Any, Iterator[Any]], Iterator[Any]]:
    """What shows how much of a table has been read."""

    def watch(table: Any, blocks: Iterator[Any]) -> Iterator[Any]:
        with Steps(table.size, table.unit, show=show, name=name) as steps:
            for block in blocks:
                yield block
                steps.advance(table.done - steps.done)

    return watch
