"""component_log_density: log densities of the mixture's components, summed over rows."""

import math

import contract
import numpy as np
import pytest
import scipy.stats
import torch
from contract import columns
from test_mixture_density import CASES, REFUSALS, first_draw, large, mixture, terms
from tolerances import assert_close

from seegera_fast import ops, reference, use_backend


class TestComponentLogDensity(contract.SummedOperation, contract.DrawnOperation, contract.RangedOperation):
    operation = "component_log_density"
    differentiable = ("z", "means", "log_var")
    cases = CASES
    smooth = ("J 2, K 3", "J 2, K 3, own variances", "J 1, K 0", "d 33", "one row")
    typical = ("J 2, K 3", "J 2, K 3, own variances")
    drawn = (*typical, "J 1, K 1, own variances", "d 33, own variances")
    refusals = REFUSALS
    terms = staticmethod(terms)
    large = staticmethod(large)
    first_draw = staticmethod(first_draw)

    @staticmethod
    def slow(z, means, log_var):
        """SciPy's normal density, element by element."""
        samples, extra = z.shape[1], means.shape[1] - z.shape[1]
        deviation = np.broadcast_to(np.exp(0.5 * log_var.numpy()), means.shape)
        table = torch.zeros(samples, extra + 1, dtype=torch.float64)
        for j in range(samples):
            for k in range(extra + 1):
                draw = k if k < extra else extra + j
                logs = scipy.stats.norm.logpdf(z[:, j].numpy(), means[:, draw].numpy(), deviation[:, draw])
                table[j, k] = float(logs.sum())
        return table


@pytest.fixture(params=columns("component_log_density"))
def column(request):
    with use_backend(request.param.backend):
        yield request.param


def test_rows_add_up(column):
    """The value of all rows is the sum of the values of each."""
    given = contract.converted(mixture()(), torch.float64, column.device)
    whole = ops.component_log_density(**given).cpu()
    parts = [ops.component_log_density(**{k: v[i : i + 1] for k, v in given.items()}).cpu() for i in range(5)]
    assert_close(sum(parts), whole, terms=20, name="sum of the rows")


def test_the_last_column_is_the_samples_own(column):
    """Column k < K is extra draw k for every sample; column K follows the sample's own mean."""
    given = contract.converted(mixture(j=2, k=3)(), torch.float64, column.device)
    changed = given["means"].clone()
    changed[:, 3 + 1] += 7
    difference = ops.component_log_density(**given) - ops.component_log_density(**{**given, "means": changed})
    assert (difference != 0).tolist() == [[False, False, False, False], [False, False, False, True]]


def test_one_row_gives_the_mixture(column):
    """For a single row the mixture is the logsumexp of the components."""
    given = mixture(n=1)()
    parts = ops.component_log_density(**contract.converted(given, torch.float64, column.device)).cpu()
    mixed = torch.logsumexp(parts, dim=1) - math.log(4)
    assert_close(mixed, reference.mixture_density(**given), terms=12, name="mixture of one row")
