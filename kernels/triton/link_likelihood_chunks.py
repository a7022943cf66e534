"""Sum over all pairs, a chunk of slopes at a time: a form of ``link_likelihood``.

The slopes of two groups of rows serve the gradients of both: 3 n^2 d operations, the floor. The library's products make
the gradients. The slopes are made in one of two ways:

- library: its product makes the scores, a kernel turns them into slopes in place. A chunk takes 64 MiB in float32,
  whatever n is.
- tiled: one kernel does both, scores stay in registers. In float16 and bfloat16 the product is so fast that a pass over
  scores in float32 takes longer; in float32 the library's products gain more than that pass costs.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from .common import OPTIONS, compiled_as
from .common.chunks import chunk_block, padded, pieces
from .common.math import softplus, softplus_sigmoid
from .common.products import at_once, multiply, multiply_add

# Rows of a group, at most. Against 2,048 on an H200, with scores of the library: 65,536 rows of 768 in bfloat16 took 25
# instead of 47 ms; 34,493 rows of 512 in TF32 12.8 instead of 14.5 ms, in bfloat16 9.8 instead of 8.9.
CHUNK = 4096

# Two programs of 256 threads fit on a multiprocessor, one at its product while the other is at its slopes.
TILE_OPTIONS = {**OPTIONS, "num_warps": 8, "num_stages": 3, "maxnreg": 128}


# --- The library's scores --------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["diagonal_columns"])
def chunk_kernel(
    scores,  # [count], row after row
    slopes,  # [count]: may be the scores
    partial,  # float64: an element for each program
    count,
    line,  # stride of the rows
    diagonal_columns,  # of a group with itself: how many columns hold scores; 0: of two groups, where all do
    WITH_GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Turns the scores of a chunk into slopes and adds up their terms, twice where the chunk serves two groups."""
    program = tl.program_id(0).to(tl.int64)
    cell = program * BLOCK + tl.arange(0, BLOCK)
    # The softplus and the sigmoid of minus infinity are zero.
    score = tl.load(scores + cell, mask=cell < count, other=float("-inf"))
    times = 2.0
    if diagonal_columns > 0:
        # A chunk has far fewer than 2 ** 31 elements.
        row, column = cell.to(tl.int32) // line, cell.to(tl.int32) % line
        score = tl.where((column < diagonal_columns) & (column != row), score, float("-inf"))
        times = 1.0
    if WITH_GRADIENT:
        terms, slope = softplus_sigmoid(score)
        tl.store(slopes + cell, slope.to(slopes.dtype.element_ty), mask=cell < count)
    else:
        terms = softplus(score)
    tl.store(partial + program, -times * tl.sum(terms, axis=0).to(tl.float64))


class LibraryScores:
    """Memory for a chunk of scores, and what turns it into slopes."""

    def __init__(self, z: torch.Tensor, rows: int, line: int) -> None:
        # The rows of a smaller group keep the same stride, so that each is aligned as the fast products require.
        self.scores = z.new_empty((rows, line), dtype=torch.promote_types(z.dtype, torch.float32))
        self.slopes = self.scores if self.scores.dtype == z.dtype else torch.empty_like(self.scores, dtype=z.dtype)
        self.block = chunk_block(self.scores.numel(), self.scores.dtype, z.device.type)
        self.programs = triton.cdiv(self.scores.numel(), self.block)

    def __call__(
        self, left: torch.Tensor, right: torch.Tensor, itself: bool, partial: torch.Tensor, with_gradient: bool
    ) -> torch.Tensor:
        """The slopes of two groups of rows. Each program writes the sum of its terms to ``partial``."""
        rows, columns, line = left.shape[0], right.shape[0], self.scores.shape[1]
        multiply(left, right.T, self.scores[:rows, :columns])
        chunk_kernel[triton.cdiv(rows * line, self.block),](
            self.scores,
            self.slopes,
            partial,
            rows * line,
            line,
            columns if itself else 0,
            WITH_GRADIENT=with_gradient,
            BLOCK=self.block,
            **OPTIONS,
        )
        return self.slopes[:rows, :columns]


# --- Tiles of scores -------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["rows", "columns", "itself"])
def tile_kernel(
    left,  # [rows, width]
    right,  # [columns, width]
    slopes,  # [up to whole tiles of rows, line]
    partial,  # float64: an element for each program
    rows,
    columns,
    width,
    line,  # whole tiles of columns
    itself,  # 0 or 1: a group meets itself
    WITH_GRADIENT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BAND: tl.constexpr,
):
    """Slopes of two groups of rows, and the sum of their terms, twice where the groups differ.

    Programs: tiles, in bands of BAND rows of tiles, column after column: those that run at a time share operands.
    """
    program = tl.program_id(0).to(tl.int64)
    across = tl.cdiv(columns, BLOCK_COLUMNS)
    band = program // (BAND * across)
    height = tl.minimum(tl.cdiv(rows, BLOCK_ROWS) - band * BAND, BAND)
    tile = program - band * BAND * across
    first_row = (band * BAND + tile % height) * BLOCK_ROWS
    first_column = tile // height * BLOCK_COLUMNS

    # Offsets from the first row of the tile fit in 32 bits. Rows past the last one repeat the last one.
    tile_rows = tl.minimum(rows - first_row, BLOCK_ROWS).to(tl.int32)
    tile_columns = tl.minimum(columns - first_column, BLOCK_COLUMNS).to(tl.int32)
    row, column, along = tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_COLUMNS), tl.arange(0, BLOCK_WIDTH)
    left += first_row * width
    right += first_column * width
    left_offsets = (tl.minimum(row, tile_rows - 1) * width)[:, None] + along[None, :]
    right_offsets = (tl.minimum(column, tile_columns - 1) * width)[:, None] + along[None, :]
    scores = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
    for start in range(0, width, BLOCK_WIDTH):
        inside = (start + along < width)[None, :]
        ours = tl.load(left + left_offsets, mask=inside, other=0.0)
        theirs = tl.load(right + right_offsets, mask=inside, other=0.0)
        scores = tl.dot(ours, tl.trans(theirs), scores, input_precision="ieee")
        left += BLOCK_WIDTH
        right += BLOCK_WIDTH

    # The softplus and the sigmoid of minus infinity are zero. The diagonal of a tile of two groups lies outside.
    diagonal = tl.where(itself > 0, first_column - first_row, BLOCK_ROWS + BLOCK_COLUMNS).to(tl.int32)
    paired = (row < tile_rows)[:, None] & (column < tile_columns)[None, :]
    paired &= row[:, None] - column[None, :] != diagonal
    scores = tl.where(paired, scores, float("-inf"))
    if WITH_GRADIENT:
        terms, slope = softplus_sigmoid(scores)
        target = slopes + first_row * line + first_column
        tl.store(target + (row[:, None] * line + column[None, :]), slope.to(slopes.dtype.element_ty))
    else:
        terms = softplus(scores)
    value = tl.sum(tl.sum(terms, axis=1).to(tl.float64), axis=0)
    tl.store(partial + program, tl.where(itself > 0, -1.0, -2.0) * value)


def tile_blocks(nodes: int, width: int, device: str) -> dict[str, int]:
    """Rows and columns of a tile, numbers of a row that it takes at a time, rows of tiles in a band.

    On a GPU: 96 KB for three stages of a bfloat16 product, as much as every card has.
    """
    rows, along = 128, 64
    if device == "cpu":
        rows, along = (max(16, min(512, triton.next_power_of_2(size))) for size in (nodes, width))
    return {"BLOCK_ROWS": rows, "BLOCK_COLUMNS": rows, "BLOCK_WIDTH": along, "BAND": 8}


class TiledScores:
    """Memory for a chunk of slopes, and what makes them: see LibraryScores."""

    def __init__(self, z: torch.Tensor, rows: int, line: int) -> None:
        self.blocks = tile_blocks(line, z.shape[2], z.device.type)
        self.tile = self.blocks["BLOCK_ROWS"]
        shape = [triton.cdiv(size, self.tile) * self.tile for size in (rows, line)]
        self.slopes = z.new_empty(shape)
        self.programs = self.slopes.numel() // self.tile**2

    def __call__(
        self, left: torch.Tensor, right: torch.Tensor, itself: bool, partial: torch.Tensor, with_gradient: bool
    ) -> torch.Tensor:
        rows, columns = left.shape[0], right.shape[0]
        tile_kernel[triton.cdiv(rows, self.tile) * triton.cdiv(columns, self.tile),](
            left,
            right,
            self.slopes,
            partial,
            rows,
            columns,
            left.shape[1],
            self.slopes.shape[1],
            int(itself),
            WITH_GRADIENT=with_gradient,
            **self.blocks,
            **TILE_OPTIONS,
        )
        return self.slopes[:rows, :columns]


# --- Both ------------------------------------------------------------------------------------------------------------


def prefers_tiles(z: torch.Tensor) -> bool:
    """Whether these rows take tiles of scores instead of the library's."""
    return z.dtype in (torch.float16, torch.bfloat16)


def all_pairs_chunked(
    make: type[LibraryScores | TiledScores], z: torch.Tensor, gradient: torch.Tensor, with_gradient: bool
) -> torch.Tensor:
    """Float64 ``[samples]``: the sum of ``-softplus(s)``. Writes its gradient."""
    nodes, samples, _ = z.shape
    z = z.transpose(0, 1).contiguous()
    groups = pieces(nodes, CHUNK)
    step = padded(groups[0].stop)
    pairs = [(lower, upper) for lower in range(len(groups)) for upper in range(lower, len(groups))]
    # The last group may be smaller than the others. In its chunks it gives the rows.
    slopes_of = make(z, min(step, nodes), step)
    # An even number of partial sums, so that those of every chunk are aligned to 16 bytes.
    partial = z.new_zeros((samples, len(pairs), triton.cdiv(slopes_of.programs, 2) * 2), dtype=torch.float64)
    for sample in range(samples):
        for pair, (lower, upper) in enumerate(pairs):
            left, right = z[sample, groups[upper]], z[sample, groups[lower]]
            chunk = slopes_of(left, right, lower == upper, partial[sample, pair], with_gradient)
            if not with_gradient:
                continue
            # A pair is in the sum in both directions, hence the 2. Group 0 meets every group first.
            add = functools.partial(multiply_add, factor=-2.0)
            products = [functools.partial(add, gradient[sample, groups[upper]], chunk, right, first=lower == 0)]
            if lower != upper:
                products.append(functools.partial(add, gradient[sample, groups[lower]], chunk.T, left, first=False))
            at_once(z.device, *products)
    return partial.sum(dim=(1, 2))


def ahead_of_time() -> list[tuple]:
    """What ``all_pairs_chunked`` launches on a GPU: see tests/ahead_of_time.py."""
    entries = []
    types = {"partial": "*fp64", "line": "i32:16", "width": "i32:16"}
    for element, wide, dtype in (
        ("fp32", "fp32", torch.float32),
        ("fp64", "fp64", torch.float64),
        ("bf16", "fp32", torch.float32),
    ):
        constants = {"WITH_GRADIENT": True, "BLOCK": chunk_block(1, dtype, "cuda")}
        types |= {"scores": f"*{wide}", "slopes": f"*{element}"}
        entries.append(compiled_as(element, chunk_kernel, constants, types))
    for element in ("fp16", "bf16"):
        constants = {"WITH_GRADIENT": True, **tile_blocks(1, 1, "cuda")}
        types |= dict.fromkeys(("left", "right", "slopes"), f"*{element}")
        entries.append(compiled_as(element, tile_kernel, constants, types, options=TILE_OPTIONS))
    return entries
