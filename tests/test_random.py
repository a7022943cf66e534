"""The counter-based generator: known answers, addresses, statistics, and seeds derived from seeds."""

import math

import pytest
import slow
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import assert_same_bits

from seegera_fast import ops
from seegera_fast.reference import random
from seegera_fast.seeds import derive_seed, seed_tensor

SEEDS = st.integers(-(2**63), 2**63 - 1)

# Counter, key -> result: the vectors for philox4x32 with 10 rounds that come with Random123 (kat_vectors).
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def parsed(text):
    return tuple(int(part, 16) for part in text.split())


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_known_answers(counter, key, result):
    words = random.philox(*(tuple(torch.tensor([word]) for word in parsed(text)) for text in (counter, key)))
    assert tuple(word.item() for word in words) == parsed(result)
    assert slow.philox(parsed(counter), parsed(key)) == parsed(result)


@given(SEEDS, st.integers(0, 5), st.integers(0, 2**62), st.integers(0, 2**24 - 1), st.integers(0, 2**32 - 1))
def test_words_are_at_their_address(seed, stream, row, draw, group):
    got = random.words_at(torch.tensor([seed]), stream, row, draw, group).reshape(4).tolist()
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    counter = (row & 0xFFFFFFFF, row >> 32, group, (stream << 24) + draw)
    assert tuple(got) == slow.philox(counter, key)


def test_streams_have_numbers_of_their_own():
    streams = [random.NOISE, random.DROPOUT, random.NORMAL, random.NEGATIVES, random.EDGES, random.ENTRIES]
    assert len(set(streams)) == 6
    assert streams[:4] == [slow.STREAMS[name] for name in ("noise", "dropout", "normal", "negatives")]
    drawn = [tuple(random.words(torch.tensor([1]), stream, 1, 1, 4).flatten().tolist()) for stream in streams]
    assert len(set(drawn)) == 6


@given(SEEDS, st.integers(0, 5), st.integers(0, 3), st.integers(0, 11))
def test_a_part_of_a_draw_is_a_corner_of_the_whole(seed, rows, draws, columns):
    whole = random.words(torch.tensor([seed]), random.NOISE, 6, 4, 12)
    part = random.words(torch.tensor([seed]), random.NOISE, rows, draws, columns)
    assert_same_bits(part, whole[:rows, :draws, :columns])


def test_words_are_uniform():
    """16 bins of equal width and each of the 32 bits, within five standard deviations."""
    words = random.words(torch.tensor([9]), random.NOISE, 2000, 2, 16).flatten()
    assert words.min() >= 0
    assert words.max() < 2**32
    count = words.numel()
    bins = torch.bincount(words >> 28, minlength=16)
    assert (bins - count / 16).abs().max() < 5 * math.sqrt(count * 15 / 256)
    for bit in range(32):
        assert abs(((words >> bit) & 1).double().mean() - 0.5) < 5 * 0.5 / math.sqrt(count), bit


@given(SEEDS, st.integers(1, 2**62))
def test_integers_are_the_high_half_of_a_product(seed, below):
    got = random.integers(torch.tensor([seed]), random.NEGATIVES, 5, below)
    assert got.tolist() == slow.integers(seed, "negatives", 5, below)


@pytest.mark.parametrize("below", [1, 2, 7, 1000])
def test_integers_are_uniform(below):
    drawn = random.integers(torch.tensor([-4]), random.EDGES, 20000, below)
    assert drawn.min() >= 0
    counts = torch.bincount(drawn, minlength=below)
    assert counts.shape[0] == below
    expected = 20000 / below
    # The sum of squared deviations over their variance has mean below - 1 and variance 2 (below - 1).
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert abs(statistic - (below - 1)) <= 5 * math.sqrt(2 * (below - 1))


def test_no_integers():
    assert random.integers(torch.tensor([1]), random.EDGES, 0, 5).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normals_follow_the_normal_distribution(dtype):
    """The largest distance from its distribution function is below the 1e-6 bound for 40,000 draws."""
    drawn = random.normals(torch.tensor([5]), 4000, 2, 5, dtype).flatten().double().sort().values
    count = drawn.numel()
    chance = torch.special.ndtr(drawn)
    steps = torch.arange(1, count + 1, dtype=torch.float64) / count
    distance = torch.maximum((steps - chance).abs(), (chance - steps + 1 / count).abs()).max()
    # P(distance > t) is at most 2 exp(-2 count t²).
    assert distance < math.sqrt(math.log(2e6) / (2 * count))
    assert drawn.isfinite().all()


def test_normals_are_finite_at_the_ends_of_the_uniform():
    """The smallest uniform is 2^-24, never 0: the largest radius is sqrt(48 log 2) = 5.77."""
    drawn = random.normals(torch.tensor([5]), 20000, 1, 16, torch.float32)
    assert drawn.abs().max() < math.sqrt(48 * math.log(2)) + 1e-5
    assert drawn.abs().max() > 4


@pytest.mark.parametrize(
    ("probability", "threshold"), [(0.0, 0), (1.0, 2**32), (0.5, 2**31), (0.25, 2**30), (2.0**-32, 1), (1e-12, 0)]
)
def test_threshold(probability, threshold):
    assert random.threshold(probability) == threshold


def splitmix64(state):
    """The published generator's output for a state, in Python integers."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_derived_seeds_are_splitmix64():
    """The first outputs for the seed 1234567, as published; step k is the k-th output from the same state."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567) == published[0]
    assert [derive_seed(1234567, step) % 2**64 for step in range(4)] == published


@given(SEEDS, st.lists(st.integers(0, 100000), max_size=4))
def test_derived_seeds_of_a_number_and_a_tensor(seed, path):
    number = derive_seed(seed, *path)
    assert -(2**63) <= number < 2**63
    for shape in ((), (1,)):
        assert derive_seed(torch.full(shape, seed), *path).tolist() == torch.full(shape, number).tolist()


def test_derived_seeds_differ_between_sites():
    found = {derive_seed(seed, a, b) for seed in range(10) for a in range(10) for b in range(10)}
    assert len(found) == 1000
    assert derive_seed(3) == 3
    assert derive_seed(3, 1, 2) == derive_seed(derive_seed(3, 1), 2)


def test_a_derived_seed_may_be_used_as_it_is():
    for step in range(20):
        assert ops.draw_noise(derive_seed(2**63 - 1, step), 1, 1, 1).shape == (1, 1, 1)


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_seed_tensor(seed):
    cpu = torch.device("cpu")
    assert_same_bits(seed_tensor(seed, cpu), torch.tensor([seed]))
    for shape in ((), (1,), (1, 1)):
        assert_same_bits(seed_tensor(torch.full(shape, seed), cpu), torch.tensor([seed]))


def test_a_seed_tensor_that_advances_changes_the_draw():
    """What a captured graph relies on: the tensor is read at each use, not kept."""
    seed = torch.tensor([1])
    before = ops.draw_noise(seed, 4, 2, 5)
    seed += 1
    assert_same_bits(ops.draw_noise(seed, 4, 2, 5), ops.draw_noise(2, 4, 2, 5))
    assert (before != ops.draw_noise(seed, 4, 2, 5)).any()
