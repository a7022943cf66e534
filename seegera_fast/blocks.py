"""Embeds the nodes of a graph some rows at a time, layer by layer: for graphs whose layers outgrow the memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from . import backends, ops
from .distributed import Processes
from .graph import Graph
from .nn import Encoder
from .row_ranges import PropagationRows, slice_rows
from .seeds import Site, derive_seed
from .sparse_matrix import SparseMatrix
from .support import arguments
from .support.atomic import written_aside
from .support.mapped_array import mapped, write_header, write_values
from .support.pieces import even_ranges
from .support.progress import Steps

# So many numbers of the widest matrix are in a block of rows, where the caller does not say how many rows.
BLOCK_NUMBERS = 1 << 24


class EmbeddingRows:
    """The mean embeddings of a graph's nodes as a chain of matrices, any rows of which can be computed alone.

    Each matrix has a row for each node. Rows of matrix ``k`` are computed from all of matrix ``k - 1``, those of the
    first from the features; the last matrix has the embeddings. So processes can share the rows of a matrix, if all of
    them have the one before. The noise is addressed by the numbers of the nodes and does not depend on the blocks.

    Besides what it is given, an object keeps one number and the noise of each node.

    Args:
        encoder: a model's ``node_mean``.
        graph: the graph, with the encoder's features, dtype and device.
        num_draws: draws of the noise, over which the embeddings are averaged.
        seed: seed of the noise.
        rows_at_once: so many rows are read at once for the degrees of the nodes.

    Attributes:
        widths: the number of columns of each matrix.
    """

    def __init__(
        self, encoder: Encoder, graph: Graph, num_draws: int, seed: int | torch.Tensor, rows_at_once: int
    ) -> None:
        _require_no_hooks(encoder)
        self._encoder, self._graph, self._draws = encoder, graph, num_draws
        self._layers = (encoder.first, *encoder.rest)
        noise_weight = encoder.first.noise_weight
        self._noise = graph.features.values.new_empty(graph.num_nodes, num_draws, 0)
        if noise_weight is not None:
            first_seed, width = derive_seed(seed, Site.FIRST_LAYER), noise_weight.shape[0]
            size, kind = (graph.num_nodes, num_draws, width), {"dtype": graph.dtype, "device": graph.device}
            self._noise = ops.draw_noise(first_seed, *size, encoder.first.noise_prob, **kind)
        self._propagation = None
        if encoder.kind == "gcn":
            self._propagation = PropagationRows(graph.adjacency, graph.weights, rows_at_once)
        # Rows of a matrix are taken in the layout of the whole, so that a block does not decide how it is summed.
        self._layouts = [_layout(graph.features), _layout(graph.adjacency)]
        self.widths = self._widths()

    def _widths(self) -> tuple[int, ...]:
        last = self._layers[-1].weight.shape[1]
        if self._propagation is None:
            return (last,)
        inner = [self._draws * min(layer.weight.shape) for layer in self._layers[1:]]
        return (self._layers[0].weight.shape[1], *inner, last)

    @torch.no_grad()
    def compute(self, step: int, rows: range, previous: torch.Tensor | None) -> torch.Tensor:
        """Rows of one of the matrices, ``[len(rows), widths[step]]``.

        Args:
            step: the number of the matrix, from 0.
            rows: the numbers of the nodes, which follow each other.
            previous: the matrix before, ``[n, widths[step - 1]]``; None: there is none.
        """
        if step == 0:
            features = slice_rows(self._graph.features, rows).with_layout(self._layouts[0])
            products = ops.sparse_matmul(features, self._layers[0].weight)
            return products if self._propagation is not None else self._dense_layers(products, rows)
        hidden = self._convolution(step - 1, rows, previous)
        if step == len(self._layers):
            return hidden.mean(dim=1)
        following = self._layers[step]
        # Propagation works on the narrower side of a layer's weight, as in ops.gcn.
        if _narrows(following.weight):
            hidden = ops.gcn(None, hidden, following.weight, activation="none")
        return hidden.flatten(1)

    def none(self, step: int) -> torch.Tensor:
        """No rows of one of the matrices, ``[0, widths[step]]``."""
        return self._layers[0].weight.new_empty((0, self.widths[step])).detach()

    def _dense_layers(self, products: torch.Tensor, rows: range) -> torch.Tensor:
        """The embeddings of the mlp encoder, whose rows don't depend on each other."""
        hidden = self._with_noise(products, self._noise[rows.start : rows.stop])
        for index, layer in enumerate(self._layers[1:], start=1):
            hidden = layer(None, hidden, 0.0, 0, self._encoder.activation(index))
        return hidden.mean(dim=1)

    def _convolution(self, index: int, rows: range, previous: torch.Tensor) -> torch.Tensor:
        """Rows ``[m, S, h]`` of the output of a layer of the gcn encoder."""
        propagation = self._propagation[rows].with_layout(self._layouts[1])
        mixed = ops.sparse_matmul(propagation, previous)
        if index == 0:
            return self._with_noise(mixed, ops.sparse_matmul(propagation, self._noise))
        layer, activation = self._layers[index], self._encoder.activation(index)
        mixed = mixed.unflatten(1, (self._draws, -1))
        if not _narrows(layer.weight):
            return layer(None, mixed, 0.0, 0, activation)
        return mixed.relu_() if activation == "relu" else mixed

    def _with_noise(self, shared: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """``activation(shared + bias + noise @ noise_weight)`` ``[m, S, h]``, the output of the first layer.

        The draws share ``shared`` ``[m, h]``; the noise is ``[m, S, c]``. All is added up in the order of
        ``ops.noisy_gcn``: the factors are the rows of a sparse matrix, which is multiplied by what they belong to.
        """
        first, (count, draws, width) = self._layers[0], noise.shape
        terms = [shared] if first.bias is None else [shared, first.bias[None]]
        dense = torch.cat([*terms, first.noise_weight] if width else terms)
        # A row for each draw of each node: its row of `shared`, and all that follows in `dense`.
        nodes = torch.arange(count, device=shared.device).repeat_interleave(draws)
        others = torch.arange(count, dense.shape[0], device=shared.device).expand(count * draws, -1)
        col = torch.cat([nodes[:, None], others], dim=1)
        factors = noise.new_ones(col.shape)
        factors[:, col.shape[1] - width :] = noise.flatten(0, 1)
        rowptr = torch.arange(0, col.numel() + 1, col.shape[1], device=shared.device)
        matrix = SparseMatrix(rowptr, col.flatten(), factors.flatten(), (count * draws, dense.shape[0]))
        lines = ops.noisy_gcn(
            None,
            matrix.with_layout("sparse"),
            dense,
            dense.new_empty(0, dense.shape[1]),
            num_draws=1,
            seed=0,
            activation=self._encoder.activation(0),
        )
        return lines.reshape(count, draws, -1)


def _require_no_hooks(encoder: Encoder) -> None:
    """Refuses what would be passed over: blocks of rows take the weights of layers, and don't call the layers."""
    for name, module in encoder.named_modules(prefix="node_mean"):
        if module._forward_pre_hooks or module._forward_hooks:
            raise ValueError(
                f"rows_at_once, out: got a model with a hook on {name}, as torch.nn.utils.prune and weight_norm put "
                "there, which rows at a time would not call; want none (prune.remove, remove_weight_norm), or embed() "
                "of all rows at once"
            )


def _narrows(weight: torch.Tensor) -> bool:
    return weight.shape[1] <= weight.shape[0]


def _layout(matrix: SparseMatrix) -> str:
    """The layout in which the product with a whole matrix is computed."""
    backend = backends.choose("sparse_matmul", matrix.device)
    return matrix.layout if backend.layout is None else backend.layout(matrix)


class _InMemory:
    """A matrix in memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def put(self, rows: range, block: torch.Tensor) -> None:
        self.tensor[rows.start : rows.stop] = block


class _InFile:
    """A matrix that is written to an open file, row by row, and then mapped from there."""

    def __init__(self, file: IO[bytes], shape: tuple[int, int], dtype: np.dtype) -> None:
        self._file, self._start, self._shape, self._dtype = file, file.tell(), shape, dtype

    def put(self, rows: range, block: torch.Tensor) -> None:
        write_values(self._file, block.cpu().numpy())

    @property
    def tensor(self) -> torch.Tensor:
        self._file.flush()
        return torch.from_numpy(mapped(self._file, self._start, self._dtype, self._shape))


class _Nowhere:
    """A matrix that another process keeps."""

    tensor = None

    def put(self, rows: range, block: torch.Tensor) -> None:
        pass


def rows_of_block(encoder: Encoder, num_draws: int) -> int:
    """So many rows take some 64 MB."""
    return BLOCK_NUMBERS // (num_draws * max(layer.weight.shape[1] for layer in (encoder.first, *encoder.rest))) or 1


def embed_in_blocks(
    encoder: Encoder,
    graph: Graph,
    num_draws: int,
    seed: int | torch.Tensor,
    *,
    out: Any,
    rows_at_once: int | None,
    progress: bool,
    processes: Processes,
) -> torch.Tensor | None:
    """Mean embeddings ``[n, d]``, computed by :class:`EmbeddingRows`; see :meth:`SeeGera.embed`."""
    if rows_at_once is None:
        rows_at_once = rows_of_block(encoder, num_draws)
    rows_at_once = min(arguments.whole("rows_at_once", rows_at_once, least=1), graph.num_nodes)
    shape = graph.num_nodes, (encoder.first, *encoder.rest)[-1].weight.shape[1]
    out = _checked_out(out, shape, graph)
    if processes.size > 1:
        processes.require_same({"nodes": shape[0], "dimensions": shape[1], "rows_at_once": rows_at_once})
    # On a GPU the work is done in its memory.
    folder = out.parent if isinstance(out, Path) and graph.device.type == "cpu" else None
    with ExitStack() as stack:
        with processes.together():
            # The file is opened before the work begins, so that one that can't be written is noticed at once.
            result = stack.enter_context(_opened(out, shape, graph, processes))
            blocks = EmbeddingRows(encoder, graph, num_draws, seed, rows_at_once)
        previous, last = None, len(blocks.widths) - 1
        progress = progress and processes.first
        steps = stack.enter_context(Steps(len(blocks.widths) * graph.num_nodes, "row", show=progress))
        for step, width in enumerate(blocks.widths):
            between = _between(folder, (graph.num_nodes, width), graph, processes)
            with nullcontext(result) if step == last else between as matrix:
                for rows, block in _matrix(blocks, step, previous, shape[0], rows_at_once, processes):
                    matrix.put(rows, block)
                    steps.advance(len(rows))
                previous = matrix.tensor
        return previous


def _matrix(
    blocks: EmbeddingRows,
    step: int,
    previous: torch.Tensor | None,
    count: int,
    rows_at_once: int,
    processes: Processes,
) -> Iterator[tuple[range, torch.Tensor]]:
    """Yields the rows of a matrix in their order, some at a time. Each process computes its share of them."""
    share = processes.share(count)
    # Even ones: a last block of a few rows would be another kind of product, which rounds differently.
    own = (range(share.start + part.start, share.start + part.stop) for part in even_ranges(len(share), rows_at_once))
    computed = ((rows, blocks.compute(step, rows, previous)) for rows in own)
    if processes.size == 1:
        yield from computed
        return
    with processes.together():
        found = [block for _, block in computed]
        values = torch.cat(found) if found else blocks.none(step)
    yield from processes.exchange_rows(values, count, rows_at_once)


def _checked_out(out: Any, shape: tuple[int, int], graph: Graph) -> torch.Tensor | Path | None:
    if out is None:
        return None
    if isinstance(out, (str, os.PathLike)):
        path = Path(arguments.path("out", out))
        if path.suffix != ".npy":
            raise ValueError(f"out: got {arguments.shown(str(path))}, want a name that ends in .npy")
        return path
    if not isinstance(out, (torch.Tensor, np.ndarray)):
        raise TypeError(f"out: got {arguments.shown(out)}, want None, a path, a tensor or a NumPy array")
    if isinstance(out, torch.Tensor):
        arguments.dense("out", out)
        arguments.constant("out", out)
    elif not out.flags.writeable:
        raise ValueError("out: got an array that is read-only, want one that can be written to")
    wanted = graph.dtype if isinstance(out, torch.Tensor) else _numpy(graph.dtype)
    if out.dtype != wanted:
        raise TypeError(f"out: got {out.dtype}, want {wanted}, as the model")
    if tuple(out.shape) != shape:
        raise ValueError(f"out: got shape {tuple(out.shape)}, want {shape}")
    strides = out.stride() if isinstance(out, torch.Tensor) else out.strides
    if any(size > 1 and stride <= 0 for size, stride in zip(shape, strides, strict=True)):
        raise ValueError(f"out: got strides {tuple(strides)}, want positive ones: memory of its own for each number")
    return torch.as_tensor(out)


def _numpy(dtype: torch.dtype) -> np.dtype:
    return np.dtype(str(dtype).removeprefix("torch."))


@contextmanager
def _opened(
    out: torch.Tensor | Path | None, shape: tuple[int, int], graph: Graph, processes: Processes
) -> Iterator[_InMemory | _InFile | _Nowhere]:
    """Where the embeddings go. One process writes the file, which gets its name when the block ends."""
    if isinstance(out, Path) and not processes.first:
        yield _Nowhere()
        return
    if not isinstance(out, Path):
        yield _InMemory(graph.features.values.new_empty(shape) if out is None else out)
        return
    with written_aside(out) as file:
        write_header(file, _numpy(graph.dtype), shape)
        yield _InFile(file, shape, _numpy(graph.dtype))


@contextmanager
def _between(
    folder: Path | None, shape: tuple[int, int], graph: Graph, processes: Processes
) -> Iterator[_InMemory | _InFile]:
    """A matrix between the features and the embeddings, in memory or in a file without a name."""
    if folder is None:
        yield _InMemory(graph.features.values.new_empty(shape))
        return
    # Another process may be on a machine that lacks the folder.
    with tempfile.TemporaryFile(dir=folder if processes.first else None) as file:
        yield _InFile(file, shape, _numpy(graph.dtype))
