"""Random numbers and elementary functions of the Triton kernels, interpreted on the CPU.

Triton decides whether to interpret when it is imported. So this file runs as a script in another process, which writes
its results to a file.
"""

from __future__ import annotations

import importlib
import sys

import interpreter
import pytest
import torch
from test_random import KNOWN_ANSWERS, parsed
from tolerances import assert_close, assert_same_bits

from seegera_fast.reference import random

triton = pytest.importorskip("triton")
tl = triton.language
math = importlib.import_module("seegera_fast.kernels.triton.common.math")
drawn = importlib.import_module("seegera_fast.kernels.triton.common.random")

SEEDS = (0, 3, -5, 2**63 - 1, -(2**63))
BOUNDS = (1, 2, 1000, 2**31, 2**40 + 12345, 2**62)
DTYPES = (torch.float32, torch.float64)
FUNCTIONS = {
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "slope of softplus": torch.sigmoid,
    "softplus alone": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "tanh": torch.tanh,
    "log_one_plus": lambda x: torch.log1p(torch.exp(-x.abs())),
    "exponential": torch.exp,
}
TURNS = {"sine": torch.sin, "cosine": torch.cos}
# Lines and groups of columns of a block, numbers of a vector.
LINES, GROUPS, COUNT = 8, 4, 256


@triton.jit
def words_kernel(seed, out, stream, row, draw, group):
    words = drawn.words_at(tl.load(seed), stream, tl.cast(row, tl.int64), draw, tl.cast(group, tl.int64))
    for i in tl.static_range(4):
        tl.store(out + i, words[i].to(tl.int64))


@triton.jit
def block_kernel(seed, words, normals, LINES: tl.constexpr, GROUPS: tl.constexpr):
    line, group, number = tl.arange(0, LINES), tl.arange(0, GROUPS), tl.load(seed)
    at = line[:, None] * (4 * GROUPS) + tl.arange(0, 4 * GROUPS)[None, :]
    tl.store(words + at, drawn.block_words(number, drawn.DROPOUT, line // 2, line % 2, group).to(tl.int64))
    tl.store(normals + at, drawn.block_normals(number, line // 2, line % 2, group, normals.dtype.element_ty))


@triton.jit
def integers_kernel(seed, out, below, COUNT: tl.constexpr):
    index = tl.arange(0, COUNT)
    tl.store(out + index, drawn.integers(tl.load(seed), drawn.NEGATIVES, index, below))


@triton.jit
def functions_kernel(x, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    value = tl.load(x + at)
    softplus, slope = math.softplus_sigmoid(value)
    tl.store(out + at, softplus)
    tl.store(out + COUNT + at, slope)
    tl.store(out + 2 * COUNT + at, math.softplus(value))
    tl.store(out + 3 * COUNT + at, math.tanh(value))
    tl.store(out + 4 * COUNT + at, math.log_one_plus(tl.exp(-tl.abs(value))))
    tl.store(out + 5 * COUNT + at, math.exponential(value))


@triton.jit
def turns_kernel(u, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    sine, cosine = math.sine_cosine_of_turns(tl.load(u + at))
    tl.store(out + at, sine)
    tl.store(out + COUNT + at, cosine)


@triton.jit
def number_kernel(out, bits):
    tl.store(out, math.number_of(bits, out.dtype.element_ty))


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def address(counter: str, key: str) -> tuple[int, int, int, int, int]:
    """Seed, stream, row, draw and group that make a counter and a key."""
    low, high, group, last = parsed(counter)
    first, second = parsed(key)
    return signed(second << 32 | first), last >> 24, signed(high << 32 | low), last % 2**24, group


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of all magnitudes and both signs."""
    sizes = torch.logspace(-12, 4, COUNT // 2, dtype=torch.float64)
    return torch.cat([sizes, -sizes]).to(dtype)


def turns(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(COUNT, dtype=dtype) / COUNT + 2.0**-24


def _run_kernels(path: str) -> None:
    results = {}
    for counter, key, answer in KNOWN_ANSWERS:
        seed, *position = address(counter, key)
        words = torch.empty(4, dtype=torch.int64)
        words_kernel[(1,)](torch.tensor([seed]), words, *position)
        results[answer] = words
    for seed in SEEDS:
        given = torch.tensor([seed])
        for dtype in DTYPES:
            words = torch.empty(LINES, 4 * GROUPS, dtype=torch.int64)
            normals = torch.empty(words.shape, dtype=dtype)
            block_kernel[(1,)](given, words, normals, LINES, GROUPS)
            results["words", seed], results["normals", seed, dtype] = words, normals
        for below in BOUNDS:
            integers = torch.empty(COUNT, dtype=torch.int64)
            integers_kernel[(1,)](given, integers, below, COUNT)
            results["integers", seed, below] = integers
    for dtype in DTYPES:
        out = torch.empty(len(FUNCTIONS), COUNT, dtype=dtype)
        functions_kernel[(1,)](numbers(dtype), out, COUNT)
        results.update({(name, dtype): row.clone() for name, row in zip(FUNCTIONS, out, strict=True)})
        out = torch.empty(len(TURNS), COUNT, dtype=dtype)
        turns_kernel[(1,)](turns(dtype), out, COUNT)
        results.update({(name, dtype): row.clone() for name, row in zip(TURNS, out, strict=True)})
        out = torch.empty(1, dtype=dtype)
        number_kernel[(1,)](out, math.bits_of(1 / 0.3))
        results["number", dtype] = out
    torch.save(results, path)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("triton") / "results.pt"
    interpreter.run(__file__, path)
    return torch.load(path)


@pytest.mark.parametrize("answer", [answer for _, _, answer in KNOWN_ANSWERS])
def test_known_answers(results, answer):
    assert tuple(results[answer].tolist()) == parsed(answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_of_draws(results, seed):
    shape = (LINES // 2, 2, 4 * GROUPS)
    want = random.words(torch.tensor([seed]), random.DROPOUT, *shape)
    assert_same_bits(results["words", seed], want.reshape(LINES, -1))
    for dtype in DTYPES:
        want = random.normals(torch.tensor([seed]), *shape, torch.float64)
        assert results["normals", seed, dtype].dtype == dtype
        assert_close(results["normals", seed, dtype], want.reshape(LINES, -1), name=str(dtype))


@pytest.mark.parametrize("below", BOUNDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_integers(results, seed, below):
    want = random.integers(torch.tensor([seed]), random.NEGATIVES, COUNT, below)
    assert_same_bits(results["integers", seed, below], want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(results, name, dtype):
    """Accurate to the last digits of each number, however small: the numbers are compared one by one."""
    got, want = results[name, dtype], FUNCTIONS[name](numbers(dtype).double())
    limits = torch.finfo(dtype)
    small, large = want.abs() <= limits.tiny, want.abs() > limits.max
    normal = ~(small | large)
    assert_close(got[normal] / want[normal].to(dtype), torch.ones(int(normal.sum()), dtype=torch.float64), name=name)
    assert (got[small].abs() <= limits.tiny).all()
    assert got[large].isinf().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TURNS)
def test_functions_of_turns(results, name, dtype):
    assert_close(results[name, dtype], TURNS[name](2 * torch.pi * turns(dtype).double()), name=name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_passes_with_all_its_bits(results, dtype):
    assert results["number", dtype].item() == torch.tensor(1 / 0.3, dtype=dtype).item()


if __name__ == "__main__":
    _run_kernels(sys.argv[1])
