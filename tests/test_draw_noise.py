"""draw_noise: the Bernoulli noise of the encoder."""

import re

import pytest
import slow
import torch
from contract import SEED_REFUSALS, columns, probability_refusals, refuse
from tolerances import assert_same_bits

from seegera_fast import ops, reference, use_backend

ARGUMENTS = {"seed": 5, "num_rows": 6, "num_draws": 3, "noise_dim": 5, "prob": 0.5}


@pytest.fixture(params=columns("draw_noise"))
def draw(request):
    """The operation in one column."""

    def function(*arguments, **options):
        with use_backend(request.param.backend):
            return ops.draw_noise(*arguments, device=request.param.device, **options)

    function.device = request.param.device
    return function


@pytest.mark.parametrize("seed", [0, 5, -5, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 5), (4, 1, 4), (2, 3, 9)])
@pytest.mark.parametrize("prob", [0.0, 0.25, 0.5, 0.999, 1.0])
def test_is_philox(draw, seed, shape, prob):
    assert_same_bits(draw(seed, *shape, prob, dtype=torch.float64), slow.noise(seed, shape, prob))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype(draw, dtype):
    noise = draw(5, 6, 3, 5, dtype=dtype)
    assert noise.dtype == dtype
    assert noise.shape == (6, 3, 5)


def test_default_is_float32(draw):
    assert draw(5, 6, 3, 5).dtype == torch.float32


def test_no_noise(draw):
    assert draw(5, 6, 3, 0).shape == (6, 3, 0)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_seed_of_any_kind(draw, shape):
    for seed in (7, -7, -(2**63)):
        assert_same_bits(draw(torch.full(shape, seed, device=draw.device), 6, 3, 5), draw(seed, 6, 3, 5))


def test_a_part_does_not_depend_on_the_rest(draw):
    """Rows, draws and columns are addressed: fewer of them are a corner of more."""
    whole = draw(11, 9, 4, 10)
    for n, s, c in ((1, 1, 1), (5, 4, 10), (9, 2, 10), (9, 4, 3)):
        assert_same_bits(draw(11, n, s, c), whole[:n, :s, :c])


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.9])
def test_share_of_ones(draw, prob):
    """Within five standard deviations overall, for each draw and for each column; draws are independent."""
    noise = draw(3, 4000, 2, 8, prob).double()
    deviation = (prob * (1 - prob)) ** 0.5
    assert abs(noise.mean() - prob) < 5 * deviation / noise.numel() ** 0.5
    assert ((noise.mean(dim=0) - prob).abs() < 5 * deviation / 4000**0.5).all()
    columns_of = noise.reshape(4000, 16)
    correlation = torch.corrcoef(columns_of.T) - torch.eye(16, dtype=torch.float64, device=noise.device)
    assert correlation.abs().max() < 5 / 4000**0.5


def test_device_of_a_seed_tensor():
    seed = torch.tensor([3])
    assert ops.draw_noise(seed, 2, 1, 3).device == seed.device
    assert ops.draw_noise(seed, 2, 1, 3, device="cpu").device == seed.device
    with pytest.raises(ValueError, match="seed: is on meta, want cpu or an int"):
        ops.draw_noise(seed.to("meta"), 2, 1, 3, device="cpu")
    with pytest.raises(ValueError, match="device: got 'meta', want a device of this machine"):
        ops.draw_noise(seed, 2, 1, 3, device="meta")


REFUSALS = [
    *SEED_REFUSALS,
    *probability_refusals("prob", one=True),
    refuse("no rows", ValueError, "num_rows: got 0, want at least 1", num_rows=0),
    refuse("no draws", ValueError, "num_draws: got 0, want 1 to 16777216", num_draws=0),
    refuse("negative width", ValueError, "noise_dim: got -1, want at least 0", noise_dim=-1),
    refuse("rows of a fraction", TypeError, "num_rows: got 2.0, want an int", num_rows=2.0),
    refuse("draws of a bool", TypeError, "num_draws: got True, want an int", num_draws=True),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_refusals(refusal):
    with pytest.raises(refusal.error) as caught:
        ops.draw_noise(**refusal.change(ARGUMENTS))
    assert type(caught.value) is refusal.error
    assert re.fullmatch(refusal.message, str(caught.value)), str(caught.value)


def test_the_reference_is_its_namesake(draw):
    assert_same_bits(draw(9, 6, 2, 7, 0.3), reference.draw_noise(9, 6, 2, 7, 0.3))
