"""``out [n, S, h] = activation(A dropout([X | eps_s]) W + b)`` for S draws of the noise, and the gradients of W and b.

``[X | eps] W = X W_x + eps W_e`` is never joined, and A goes through each side on its own: ``P = A X W_x`` and the
small ``A eps_s``, [n, S, c], whose product of rank c with W_e is added in the pass that ends in bias and activation.
Without dropout the draws share P, [n, h], and backward adds up the draws before it goes through A and X.

With dropout each draw has a mask of its own over the entries of X: 64 draws in one word for each entry, which is drawn
anew in backward. The product of X reads nothing for an entry that is dropped. (Drawn inside the product, the masks
would take their counters, about a hundred instructions each, again for every tile of columns.)

Floor, without dropout: 2 nnz(X) h + 2 nnz(A) h operations, once for all draws, forward and again backward; out written
once, and read again in backward with its gradient. With dropout, X costs S times as much, less what is dropped, and A
works on [n, S, h]. X is by rows here however dense it is, also where a third of its entries is there, as in Photo and
Computers: only the CPU has the dense layout.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from seegera_fast.registry import Parts

from .common import OPTIONS, compiled_as, layer
from .common.hubs import ends_but_of_hubs, hub_segments, places_of, row_of
from .common.layer import finish, gradient_of_sums
from .common.math import bits_of, number_of
from .common.propagation import Matrix, flipped, propagated
from .common.random import DROPOUT, happens, word_at
from .draw_noise import draw_noise
from .dropout import drop_lines
from .sparse_matmul import CHUNK, block_sizes, launch_product

# Draws of a word.
WORD = tl.constexpr(64)


@triton.jit
def keep_kernel(
    rowptr,  # [rows + 1] int64
    col,  # [nnz] int64
    seed,  # [1] int64
    words,  # [words of draws, nnz] int64
    threshold,
    rows,
    nnz,
    draws,  # S
    search_steps,
    TRANSPOSED: tl.constexpr,
    BLOCK_ENTRIES: tl.constexpr,
):
    """Bit s % 64 of word s / 64: draw s keeps the entry. Programs: blocks of non-zeros."""
    nonzero = tl.program_id(0).to(tl.int64) * BLOCK_ENTRIES + tl.arange(0, BLOCK_ENTRIES)
    inside = nonzero < nnz
    own = row_of(tl.minimum(nonzero, nnz - 1), rowptr, rows, search_steps)
    other = tl.load(col + nonzero, mask=inside, other=0)
    # A row of X^T is a column of X.
    row, column = (other, own) if TRANSPOSED else (own, other)
    key = tl.load(seed)
    for first in range(0, draws, WORD):
        kept = tl.zeros_like(nonzero)
        for draw in range(first, tl.minimum(first + WORD, draws)):
            dropped = happens(word_at(key, DROPOUT, row, draw, column), threshold)
            kept |= tl.where(dropped, 0, 1).to(tl.int64) << (draw - first)
        tl.store(words + tl.cast(first // WORD, tl.int64) * nnz + nonzero, kept, mask=inside)


@triton.jit
def sum_kept_products(
    begin,  # [BLOCK_ROWS] int64: the first non-zero of each range
    end,  # [BLOCK_ROWS] int64: one past its last
    column,  # [BLOCK_COLS] int64
    first_draw,
    last_draw,
    col,
    values,
    words,
    dense,
    scale,
    word_stride,
    width,
    dense_stride,
    draw_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """``sum_products`` of sparse_matmul times ``scale``, over a range of draws, with the non-zeros that each keeps."""
    total = tl.zeros((BLOCK_ROWS, BLOCK_NNZ, BLOCK_COLS), dtype=values.dtype.element_ty)
    in_width = (column < width)[None, None, :]
    for step in range(0, tl.max(end - begin, axis=0), BLOCK_NNZ):
        nonzero = begin[:, None] + step + tl.arange(0, BLOCK_NNZ)[None, :]
        inside = nonzero < end[:, None]
        row = tl.load(col + nonzero, mask=inside, other=0)
        factor = tl.load(values + nonzero, mask=inside, other=0.0)
        for draw in range(first_draw, last_draw):
            draw = tl.cast(draw, tl.int64)
            word = tl.load(words + draw // WORD * word_stride + nonzero, mask=inside, other=0)
            kept = ((word >> (draw % WORD)) & 1) != 0
            term = tl.load(
                dense + (row * dense_stride + draw * draw_stride)[:, :, None] + column[None, None, :],
                mask=kept[:, :, None] & in_width,
                other=0.0,
            )
            total += factor[:, :, None] * term
    return tl.sum(total, axis=1) * number_of(scale, total.dtype)


@triton.jit
def tile_of_draws(tile, draws, width, TRANSPOSED: tl.constexpr, BLOCK_COLS: tl.constexpr):
    """The columns of a tile, the first of the draws that it adds up and one past the last, and where it is stored."""
    if TRANSPOSED:
        first_draw, last_draw = 0, draws
        column = tile * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
        target = column
    else:
        first_draw = tile % draws
        last_draw = first_draw + 1
        column = tile // draws * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
        target = first_draw * width + column
    return column, first_draw, last_draw, target


@triton.jit
def kept_row_kernel(
    rowptr,  # [rows + 1] int64
    col,  # [nnz] int64
    values,  # [nnz]
    words,  # [words of draws, nnz] int64
    dense,  # [cols, h], or [cols, S, h] where TRANSPOSED
    out,  # [rows, S, h], or [rows, h] where TRANSPOSED
    scale,  # bits_of(1 / (1 - rate))
    rows,
    draws,  # S
    width,  # h
    word_stride,
    dense_stride,
    draw_stride,  # of dense
    out_stride,
    TRANSPOSED: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """``row_kernel`` of sparse_matmul with the entries that each draw keeps.

    Programs: for each tile of columns, and each draw of it unless TRANSPOSED, all blocks of rows.
    """
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    row = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column, first_draw, last_draw, target = tile_of_draws(program // blocks, draws, width, TRANSPOSED, BLOCK_COLS)
    begin, end, wanted = ends_but_of_hubs(rowptr, row, rows, CHUNK)
    total = sum_kept_products(
        begin,
        end,
        column,
        first_draw,
        last_draw,
        col,
        values,
        words,
        dense,
        scale,
        word_stride,
        width,
        dense_stride,
        draw_stride,
        BLOCK_ROWS,
        BLOCK_NNZ,
        BLOCK_COLS,
    )
    wanted = wanted[:, None] & (column < width)[None, :]
    tl.store(out + row[:, None] * out_stride + target[None, :], total, mask=wanted)


@triton.jit
def kept_segment_kernel(
    rowptr,
    col,
    values,
    words,
    dense,
    partial,  # [2 * chunks, S, h], or [2 * chunks, h] where TRANSPOSED
    starts,  # [2 * chunks] int64
    scale,
    rows,
    nnz,
    draws,
    width,
    word_stride,
    dense_stride,
    draw_stride,
    out_stride,
    search_steps,
    TRANSPOSED: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NNZ: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """``segment_kernel`` of sparse_matmul with the entries that each draw keeps."""
    program = tl.program_id(0).to(tl.int64)
    places = places_of(nnz, CHUNK)
    blocks = tl.cdiv(places, BLOCK_ROWS)
    place = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column, first_draw, last_draw, target = tile_of_draws(program // blocks, draws, width, TRANSPOSED, BLOCK_COLS)
    _, begin, end, wanted, starting = hub_segments(place, places, rowptr, rows, nnz, search_steps, CHUNK)
    if program < blocks:
        tl.store(starts + place, starting, mask=place < places)
    total = sum_kept_products(
        begin,
        end,
        column,
        first_draw,
        last_draw,
        col,
        values,
        words,
        dense,
        scale,
        word_stride,
        width,
        dense_stride,
        draw_stride,
        BLOCK_ROWS,
        BLOCK_NNZ,
        BLOCK_COLS,
    )
    wanted = wanted[:, None] & (column < width)[None, :]
    tl.store(partial + place[:, None] * out_stride + target[None, :], total, mask=wanted)


def entry_blocks(device: str) -> dict[str, int]:
    """Non-zeros that a program draws for: two a thread, or many in the interpreter."""
    return {"BLOCK_ENTRIES": 2**14 if device == "cpu" else 256}


def drawn_words(
    rowptr: torch.Tensor, col: torch.Tensor, draws: int, threshold: int, seed: torch.Tensor, transposed: bool
) -> torch.Tensor:
    """Which draws keep each entry of X or, ``transposed``, of X^T: int64 ``[ceil(S / 64), nnz]``."""
    rows, nnz = rowptr.numel() - 1, col.numel()
    words = col.new_empty((triton.cdiv(draws, WORD.value), nnz))
    if nnz == 0:
        return words
    blocks = entry_blocks(col.device.type)
    with torch.cuda.device_of(col):
        keep_kernel[(triton.cdiv(nnz, blocks["BLOCK_ENTRIES"]),)](
            rowptr,
            col,
            seed,
            words,
            threshold,
            rows,
            nnz,
            draws,
            rows.bit_length(),
            TRANSPOSED=transposed,
            **blocks,
            **OPTIONS,
        )
    return words


def kept_product(
    matrix: Matrix, dense: torch.Tensor, out: torch.Tensor, threshold: int, scale: float, seed: torch.Tensor
) -> None:
    """The product of X with dropout and a matrix, ``[cols, h]`` -> ``[n, S, h]``; or that of X^T and a matrix for each
    draw, ``[n, S, h]`` -> ``[cols, h]``, their sum. Both contiguous.

    Args:
        matrix: X, or its transpose.
    """
    transposed = dense.ndim == 3
    rowptr, col, values = matrix[:3]
    rows, width = out.shape[0], out.shape[-1]
    draws = dense.shape[1] if transposed else out.shape[1]
    blocks = block_sizes(max(1, rows), max(1, width), out.device.type)
    words = drawn_words(rowptr, col, draws, threshold, seed, transposed)
    arguments = {
        "values": values,
        "words": words,
        "dense": dense,
        "scale": bits_of(scale),
        "draws": draws,
        "width": width,
        "word_stride": col.numel(),
        "dense_stride": dense.stride(0),
        "draw_stride": width if transposed else 0,
        "out_stride": out.stride(0),
        "TRANSPOSED": transposed,
    }
    tiles = triton.cdiv(width, blocks["BLOCK_COLS"]) * (1 if transposed else draws)
    flat = out.view(rows, out.shape[1:].numel())
    launch_product(kept_row_kernel, kept_segment_kernel, rowptr, col, flat, tiles, blocks, **arguments)


def propagated_noise(
    propagation: Matrix | None,
    rows: int,
    draws: int,
    noise_dim: int,
    first_column: int,
    noise_threshold: int,
    threshold: int,
    scale: float,
    seed: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """``A dropout(eps)``, ``[n, S, c]``.

    Args:
        first_column: l, where the noise begins in the lines that the mask of dropout is drawn for.
    """
    noise = draw_noise(seed, rows, draws, noise_dim, noise_threshold, dtype)
    if scale != 1:
        drop_lines(noise, noise, threshold, scale, seed, first_column)
    return propagated(propagation, noise)


def noisy_gcn(
    propagation: Parts | None,
    features: Parts,
    weight: torch.Tensor,
    noise_weight: torch.Tensor,
    bias: torch.Tensor | None,
    num_draws: int,
    seed: torch.Tensor,
    noise_threshold: int,
    threshold: int,
    scale: float,
    activation: int,
) -> torch.Tensor:
    """``[n, S, h]``; see ``ops.noisy_gcn``. The transposes serve the backward pass."""
    rows, (num_columns, width) = features.rowptr.numel() - 1, weight.shape
    noise_dim = noise_weight.shape[0]
    noise = propagated_noise(
        propagation,
        rows,
        num_draws,
        noise_dim,
        num_columns,
        noise_threshold,
        threshold,
        scale,
        seed,
        weight.dtype,
    )
    out = weight.new_empty((rows, num_draws, width))
    if scale != 1:
        kept_product(features, weight.contiguous(), out, threshold, scale, seed)
        sums = out = propagated(propagation, out)
    else:
        sums = propagated(propagation, propagated(features, weight))
    finish(sums, out, bias, activation, noise, noise_weight)
    return out


def noisy_gcn_backward(
    gradient: torch.Tensor,
    output: torch.Tensor | None,
    propagation: Parts | None,
    features: Parts,
    noise_dim: int,
    seed: torch.Tensor,
    noise_threshold: int,
    threshold: int,
    scale: float,
    activation: int,
    weight_wanted: bool,
    bias_wanted: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of weight, noise_weight and bias; the first and the last are empty where they are not wanted."""
    rows, draws, width = gradient.shape
    num_columns = features.rowptr_t.numel() - 1
    noise = propagated_noise(
        propagation,
        rows,
        draws,
        noise_dim,
        num_columns,
        noise_threshold,
        threshold,
        scale,
        seed,
        gradient.dtype,
    )
    of_sums, summed = gradient_of_sums(gradient, output, activation, noise=noise, added=scale == 1)
    of_weight = gradient.new_empty((num_columns if weight_wanted else 0, width))
    if weight_wanted:
        of_product = propagated(flipped(propagation), of_sums)
        if scale != 1:
            kept_product(features.flipped, of_product, of_weight, threshold, scale, seed)
        else:
            of_weight = propagated(features.flipped, of_product)
    # The results of an operator must not share memory.
    of_bias = summed[noise_dim].clone() if bias_wanted else gradient.new_empty(0)
    return of_weight, summed[:noise_dim], of_bias


def ahead_of_time() -> list[tuple]:
    """What ``noisy_gcn`` and ``noisy_gcn_backward`` launch on a GPU: see tests/ahead_of_time.py.

    The products forward and backward, for 2 draws and a width of 512.
    """
    entries = layer.ahead_of_time(noise_dim=5)
    for dtype in ("fp32", "fp64"):
        types = dict.fromkeys(("rowptr", "col", "starts", "seed", "words"), "*i64")
        types |= dict.fromkeys(("values", "dense", "partial", "out"), f"*{dtype}")
        types |= dict.fromkeys(("width", "dense_stride", "draw_stride", "out_stride"), "i32:16")
        types |= {"threshold": "i64:16", "scale": "i64:16"}
        for transposed in (False, True):
            label = "X^T" if transposed else "X"
            constants = {"TRANSPOSED": transposed, "CHUNK": CHUNK, **block_sizes(1, 512, "cuda")}
            constants |= entry_blocks("cuda")
            entries.append(compiled_as(label, keep_kernel, constants, types))
            for kernel in (kept_row_kernel, kept_segment_kernel):
                entries.append(compiled_as(f"{dtype} {label}", kernel, constants, types))
    return entries
