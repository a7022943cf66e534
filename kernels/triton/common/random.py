"""Counter-based random numbers in a kernel: Philox 4x32-10 (Salmon et al., SC '11).

A number is addressed, not stored, exactly as seegera_fast/reference/random.py does: the key is the seed, the counter is
(row low, row high, column // 4, draw + (stream << 24)), and the column modulo 4 picks one of the four words. So the
columns of a block are made four at a time: a block of ``4 * BLOCK_GROUPS`` columns takes ``BLOCK_GROUPS`` counters.

``seed`` is the int64 number that a kernel has loaded from its one-element tensor; ``threshold`` is
``reference.random.threshold(probability)``, 0 to 2^32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seegera_fast.reference import random as numbering

from .math import sine_cosine_of_turns

# One stream for each use, so that one seed may serve several.
NOISE = tl.constexpr(numbering.NOISE)
DROPOUT = tl.constexpr(numbering.DROPOUT)
NORMAL = tl.constexpr(numbering.NORMAL)
NEGATIVES = tl.constexpr(numbering.NEGATIVES)
EDGES = tl.constexpr(numbering.EDGES)
ENTRIES = tl.constexpr(numbering.ENTRIES)

UNIT = tl.constexpr(2.0**-24)


@triton.jit
def words_at(seed, stream, row, draw, group):
    """The four words, uint32, of each column group at (row, draw): integers whose shapes broadcast."""
    row = tl.cast(row, tl.int64)
    low, high = row.to(tl.uint32), (row >> 32).to(tl.uint32)
    group, draw = tl.cast(group, tl.uint32), tl.cast(draw + (stream << 24), tl.uint32)
    return tl.philox(seed, low, high, group, draw)


@triton.jit
def side_by_side(first, second, third, fourth):
    """Four tiles ``[rows, groups]`` as one ``[rows, 4 * groups]``: the columns of a group in order."""
    return tl.interleave(tl.interleave(first, third), tl.interleave(second, fourth))


@triton.jit
def block_words(seed, stream, row, draw, group):
    """The words of a block of columns: uint32 ``[lines, 4 * groups]``.

    ``row`` and ``draw`` ``[lines]``: the address of each line; ``group`` ``[groups]``: consecutive groups of 4 columns.
    """
    first, second, third, fourth = words_at(seed, stream, row[:, None], draw[:, None], group[None, :])
    return side_by_side(first, second, third, fourth)


@triton.jit
def word_at(seed, stream, row, draw, column):
    """The word, uint32, of each (row, draw, column): integers whose shapes broadcast."""
    first, second, third, fourth = words_at(seed, stream, row, draw, column // 4)
    lane = column % 4
    return tl.where(lane < 2, tl.where(lane == 0, first, second), tl.where(lane == 2, third, fourth))


@triton.jit
def happens(words, threshold):
    """Whether the event of each word has happened; its probability is ``threshold / 2^32``."""
    return words.to(tl.int64) < threshold


@triton.jit
def dropout(values, words, threshold, scale):
    """Inverted dropout of a block. ``scale``: 1 / (1 - rate), in the type of the values."""
    return tl.where(happens(words, threshold), 0.0, values * scale)


@triton.jit
def normal_pair(first, second, dtype: tl.constexpr):
    """Two standard normal numbers of each pair of words (Box-Muller on 24-bit uniforms)."""
    radius = tl.sqrt(-2.0 * tl.log(((first >> 8) + 1).to(dtype) * UNIT))
    sine, cosine = sine_cosine_of_turns((second >> 8).to(dtype) * UNIT)
    return radius * cosine, radius * sine


@triton.jit
def block_normals(seed, row, draw, group, dtype: tl.constexpr):
    """Standard normal numbers ``[lines, 4 * groups]``, addressed as those of ``block_words``."""
    first, second, third, fourth = words_at(seed, NORMAL, row[:, None], draw[:, None], group[None, :])
    first, second = normal_pair(first, second, dtype)
    third, fourth = normal_pair(third, fourth, dtype)
    return side_by_side(first, second, third, fourth)


@triton.jit
def integers(seed, stream, index, below):
    """Uniform integers in ``[0, below)``, int64: the high half of the 64-bit draw of an index times ``below``."""
    high, low, _, _ = words_at(seed, stream, index, 0, 0)
    draw = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
    return tl.umulhi(draw, tl.cast(below, tl.uint64)).to(tl.int64)
