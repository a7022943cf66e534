"""draw_subset: an exact number of elements, by the smallest keys."""

import re

import pytest
import slow
import torch
from contract import SEED_REFUSALS, columns, refuse
from tolerances import assert_same_bits

from seegera_fast import ops, reference, use_backend
from seegera_fast.ops.draw_subset import OPERATOR
from seegera_fast.reference.random import STREAMS


@pytest.fixture(params=columns("draw_subset"))
def draw(request):
    """The operation in one column."""

    def function(*arguments, **options):
        with use_backend(request.param.backend):
            return ops.draw_subset(*arguments, device=request.param.device, **options)

    function.device = request.param.device
    return function


def smallest(seed, count, chosen, stream):
    """By a sort over keys in Python integers."""
    key = (seed & slow.MASK, (seed >> 32) & slow.MASK)
    words = (slow.philox((i, 0, 0, STREAMS[stream] << 24), key) for i in range(count))
    order = sorted((first * 2**30 ^ second // 4, i) for i, (first, second, _, _) in enumerate(words))
    drawn = torch.zeros(count, dtype=torch.bool)
    for _, i in order[:chosen]:
        drawn[i] = True
    return drawn


@pytest.mark.parametrize("stream", ["edges", "entries"])
@pytest.mark.parametrize("seed", [0, 5, -5, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize(("count", "chosen"), [(0, 0), (1, 0), (1, 1), (2, 1), (7, 3), (19, 18), (19, 19), (130, 41)])
def test_takes_the_smallest_keys(draw, seed, count, chosen, stream):
    assert_same_bits(draw(seed, count, chosen, stream=stream), smallest(seed, count, chosen, stream))


@pytest.mark.parametrize("count", [63, 64, 65, 4097, 70_001])
def test_the_number_is_exact_and_the_subset_that_of_the_reference(draw, count):
    for chosen in (0, 1, count // 3, count):
        drawn = draw(3, count, chosen)
        assert drawn.sum() == chosen
        assert_same_bits(drawn, reference.draw_subset(3, count, chosen))


def test_more_chosen_keeps_the_ones_before(draw):
    before = draw(8, 5000, 0)
    for chosen in (1, 100, 2500, 4999):
        drawn = draw(8, 5000, chosen)
        assert (drawn >= before).all()
        before = drawn


def test_seeds_and_streams_are_independent(draw):
    """Two subsets of a third agree in 1/9 + 4/9 of the elements, within five standard deviations."""
    drawn = [draw(seed, 6000, 2000, stream=stream) for seed in (1, 2) for stream in ("edges", "entries")]
    for i, first in enumerate(drawn):
        for second in drawn[:i]:
            assert abs((first == second).double().mean() - 5 / 9) < 5 * (20 / 81 / 6000) ** 0.5


def test_every_element_is_as_likely(draw):
    """Over 500 seeds, within six standard deviations for each of 40 elements."""
    share = torch.stack([draw(seed, 40, 10) for seed in range(500)]).double().mean(dim=0)
    assert (share - 0.25).abs().max() < 6 * (0.25 * 0.75 / 500) ** 0.5


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_seed_of_any_kind(draw, shape):
    assert_same_bits(draw(torch.full(shape, -7, device=draw.device), 50, 20), draw(-7, 50, 20))


@pytest.mark.parametrize("column", columns("draw_subset", compiled=True))
def test_any_number_of_threads(column):
    def function(seed):
        return ops.draw_subset(seed, 200_000, 70_000, stream="entries")

    seed = torch.tensor([6], device=column.device)
    threads = torch.get_num_threads()
    with use_backend(column.backend):
        want = function(seed)
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                assert_same_bits(function(seed), want, name=f"{count} threads")
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("column", columns("draw_subset", compiled=True))
def test_compiled_and_sound(column):
    """For Triton's interpreter too: of all its operators this one is traced there."""

    def function(seed):
        return ops.draw_subset(seed, 900, 70, stream="entries")

    seed = torch.tensor([6], device=column.device)
    with use_backend(column.backend):
        torch.compiler.reset()
        assert_same_bits(torch.compile(function, fullgraph=True, backend="aot_eager")(seed), function(seed))
        overload = OPERATOR._overloads["triton" if column.backend == "triton" else "default"]
        torch.library.opcheck(overload, (seed, STREAMS["edges"], 30, 12))


REFUSALS = [
    *SEED_REFUSALS,
    refuse("negative count", ValueError, "count: got -1, want 0 to 1152921504606846976", count=-1),
    refuse("count of a fraction", TypeError, "count: got 10.0, want an int", count=10.0),
    refuse("too many", ValueError, "chosen: got 11, want 0 to 10", chosen=11),
    refuse("negative number", ValueError, "chosen: got -1, want 0 to 10", chosen=-1),
    refuse("number of a bool", TypeError, "chosen: got True, want an int", chosen=True),
    refuse("stream", ValueError, "stream: got 'noise', want one of 'edges', 'entries'", stream="noise"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    with pytest.raises((TypeError, ValueError)) as caught:
        ops.draw_subset(**refusal.change({"seed": 1, "count": 10, "chosen": 3, "stream": "edges"}))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)
