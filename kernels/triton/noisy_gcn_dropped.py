"""The product of X with dropout and a matrix: a part of ``noisy_gcn``.

Each draw has a separate mask over the entries of X. An entry has one word for the masks of 64 draws; backward draws the
words again. The product reads nothing for an entry that is dropped. (Drawn inside the product, the masks would cost a
counter of about a hundred instructions for each entry and draw, again for every tile of columns.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.csr_product import CHUNK, Matrix, block_sizes, launch_product
from .common.hubs import ends_but_of_hubs, hub_segments, row_of, slots_of
from .common.math import bits_of, number_of
from .common.random import DROPOUT, happens, word_at

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
    line = row_of(tl.minimum(nonzero, nnz - 1), rowptr, rows, search_steps)
    other = tl.load(col + nonzero, mask=inside, other=0)
    # A row of X^T is a column of X.
    row, column = (other, line) if TRANSPOSED else (line, other)
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
    """``sum_products`` of csr_product.py times ``scale``, over a range of draws, with the non-zeros that each keeps."""
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
    """``row_kernel`` of csr_product.py with the entries that each draw keeps.

    Programs: for each tile of columns, and each draw of it unless TRANSPOSED, all blocks of rows.
    """
    program = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    row = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column, first_draw, last_draw, target = tile_of_draws(program // blocks, draws, width, TRANSPOSED, BLOCK_COLS)
    begin, end, inside = ends_but_of_hubs(rowptr, row, rows, CHUNK)
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
    inside = inside[:, None] & (column < width)[None, :]
    tl.store(out + row[:, None] * out_stride + target[None, :], total, mask=inside)


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
    """``segment_kernel`` of csr_product.py with the entries that each draw keeps."""
    program = tl.program_id(0).to(tl.int64)
    slots = slots_of(nnz, CHUNK)
    blocks = tl.cdiv(slots, BLOCK_ROWS)
    slot = program % blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column, first_draw, last_draw, target = tile_of_draws(program // blocks, draws, width, TRANSPOSED, BLOCK_COLS)
    _, begin, end, used, starting = hub_segments(slot, slots, rowptr, rows, nnz, search_steps, CHUNK)
    if program < blocks:
        tl.store(starts + slot, starting, mask=slot < slots)
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
    used = used[:, None] & (column < width)[None, :]
    tl.store(partial + slot[:, None] * out_stride + target[None, :], total, mask=used)


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
    """The product of X, dropped anew for each draw, with a matrix: ``[cols, h]`` -> ``[n, S, h]``. Or, with X^T, the
    sum over the draws of the products with a matrix for each: ``[n, S, h]`` -> ``[cols, h]``. Both contiguous.

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


def ahead_of_time() -> list[tuple]:
    """What ``kept_product`` launches on a GPU, for 2 draws and a width of 512: see tests/ahead_of_time.py."""
    entries = []
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
