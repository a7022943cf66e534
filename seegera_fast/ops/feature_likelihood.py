"""The log likelihood of the features, log p(X | H W)."""

from __future__ import annotations

import torch

from .. import backends, checks, precision, reference
from ..costs import Costs
from ..reference.feature_likelihood import KERNELS, LIKELIHOODS, check_log_var
from ..registry import Operator
from ..sparse_matrix import SparseMatrix
from ..transforms import wants_gradient


def _fake(hidden, weight, hidden_wanted, weight_wanted, log_var_wanted):
    num_nodes, num_samples, width = hidden.shape
    num_features = weight.shape[-1]
    sizes = (
        (num_samples,),
        (num_nodes if hidden_wanted else 0, num_samples, width),
        (num_features if weight_wanted else 0, num_samples, width),
        (num_features if log_var_wanted else 0, num_samples, width),
    )
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    return tuple(hidden.new_empty(size, dtype=dtype) for size in sizes)


def _fake_backward(hidden_unit, weight_unit, log_var_unit, shared_weight):
    def by_columns(gradient, shared):
        num_features, num_samples, width = gradient.shape
        return gradient.new_empty((width, num_features) if shared else (num_samples, width, num_features))

    return (
        hidden_unit.new_empty(hidden_unit.shape),
        by_columns(weight_unit, shared_weight),
        by_columns(log_var_unit, True),
    )


_BACKWARD = Operator(
    "feature_likelihood_backward(Tensor gradient, Tensor hidden_unit, Tensor weight_unit, Tensor log_var_unit,"
    " bool shared_weight) -> (Tensor hidden, Tensor weight, Tensor log_var_weight)",
    columns=("cpu", "triton"),
    fake=_fake_backward,
)

# The gradients are linear in the upstream scalars. So the forward kernel computes them along with the outputs, for an
# upstream of one, for each sample. Backward scales them, and sums those of a shared weight over the samples. The first
# gradient has the size of H, the others have the size of W for each sample.
# The second and third gradient are [l, J, h], by features, the order in which the transposed sparse product makes them.
# With float16 and bfloat16 arguments all results are float32, so that a large sum neither overflows nor is rounded
# before it is scaled.
# With the transpose of X, the kernels compute the sum of squares by its expansion. Without it, by tiles of H W.
OPERATOR = Operator(
    "feature_likelihood(Tensor hidden, Tensor weight, Tensor? log_var_weight, Rows features, Transposed? flipped,"
    " Constant pos_weight, int likelihood, int precision, bool hidden_wanted, bool weight_wanted,"
    " bool log_var_wanted)"
    " -> (Tensor total, Constant hidden_unit, Constant weight_unit, Constant log_var_unit)",
    columns=("cpu", "triton"),
    fake=_fake,
    backward=_BACKWARD,
    saved={"shared_weight": lambda weight: weight.ndim == 2},
)


def squares_are_cheaper(
    costs: Costs,
    num_nodes: int,
    num_features: int,
    width: int,
    nnz: int,
    samples: int,
    weights: int,
    hidden: bool,
    weight: bool,
) -> bool:
    """Whether ``sum (h_i . w_r - x_ir)²`` is cheaper as ``tr((H^T H)(W W^T)) - 2 <H, X W^T> + <X, X>``.

    Args:
        costs: costs of the backend's kernels.
        samples, weights: number of samples in H and in W.
        hidden, weight: whether their gradients are needed.
    """
    grams = 0.6 * (num_nodes * samples + num_features * weights) * width**2
    gradients = (num_nodes * hidden + num_features * weight) * samples * width**2
    sparse = costs.sparse * nnz * width * (weights + samples * weight)
    tiles = num_nodes * num_features * samples * (width * (1 + hidden + weight) + costs.entry)
    return grams + gradients + sparse < tiles


def feature_likelihood(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    features: SparseMatrix,
    *,
    likelihood: str = "bernoulli",
    pos_weight: float | torch.Tensor = 1.0,
    log_var_weight: torch.Tensor | None = None,
    reduction: str = "sum",
) -> torch.Tensor:
    """The log likelihood of all features given the decoder's last layer ``O = H W``, for J samples.

    - "bernoulli": ``pos_weight x log sigmoid(o) + (1 - x) log(1 - sigmoid(o))``, for x in [0, 1];
    - "mse": ``-(x - o)² - log(pi) / 2``: normal with variance 1/2, so that the squared error has factor 1;
    - "gaussian": normal with mean o and log variance ``H V``, V = ``log_var_weight``. A log variance outside of
      [-30, 30] counts as the nearer end, and gets no gradient, as with ``torch.clamp``. So in float32 the sum is finite
      as long as n l times the mean of ``(x - o)²`` is below 3e25;
    - "mse_relu": "mse" of ``max(o, 0)``, which gets no gradient where o is 0 or less.

    Args:
        hidden: H, ``[n, J, h]``, float32 or float64. The Triton kernels take float16 and bfloat16 too, and compute
            sums in float32.
        weight: W, ``[h, l]``, or one for each sample, ``[J, h, l]``.
        features: X, ``n x l``.
        likelihood: "bernoulli", "mse", "gaussian" or "mse_relu".
        pos_weight: factor on the terms of ones ("bernoulli" only): a number or a tensor of one element.
        log_var_weight: V, ``[h, l]``; only for "gaussian", which needs it.
        reduction: "sum", or "mean": the sum divided by n l.

    Returns:
        ``[J]``, float32 if ``hidden`` is float16 or bfloat16. Differentiable in ``hidden``, ``weight`` and
        ``log_var_weight``. Where a sum overflows it is minus infinity. A sample whose upstream gradient is 0 gives
        gradients of 0, even then.

    Raises:
        TypeError, ValueError: an argument of a wrong kind, size, dtype, device or range. The values of the features are
            not looked at: those of "bernoulli" have to be from 0 to 1.

    Example:
        >>> import torch
        >>> import seegera_fast as sf
        >>> graph = sf.datasets.load("digits")
        >>> hidden, weight = torch.randn(graph.num_nodes, 1, 8), torch.randn(8, graph.num_features)
        >>> sf.ops.feature_likelihood(hidden, weight, graph.features, likelihood="mse").shape
        torch.Size([1])
    """
    checks.tensor("hidden", hidden, ndim=3, half="feature_likelihood")
    checks.positive("hidden's number of samples", hidden.shape[1])
    checks.sparse("features", features)
    if features.shape[0] != hidden.shape[0]:
        raise ValueError(f"features: got {features.shape[0]} rows, want {hidden.shape[0]}, one per row of hidden")
    leading = (hidden.shape[1],) if isinstance(weight, torch.Tensor) and weight.ndim == 3 else ()
    shape = (hidden.shape[2], features.shape[1])
    checks.tensor("weight", weight, shape=(*leading, *shape), half="feature_likelihood")
    checks.choice("likelihood", likelihood, LIKELIHOODS)
    check_log_var(likelihood, log_var_weight is not None)
    if log_var_weight is not None:
        checks.tensor("log_var_weight", log_var_weight, shape=shape, half="feature_likelihood")
    checks.same_kind(hidden=hidden, weight=weight, log_var_weight=log_var_weight, features=features)
    pos_weight = checks.weight("pos_weight", pos_weight)
    checks.choice("reduction", reduction, checks.REDUCTIONS)
    name = "feature_likelihood" if likelihood in KERNELS else f"feature_likelihood, {likelihood}"
    backend = backends.choose(name, hidden.device)
    if backend is backends.REFERENCE:
        return reference.feature_likelihood(
            hidden,
            weight,
            features,
            likelihood=likelihood,
            pos_weight=pos_weight,
            log_var_weight=log_var_weight,
            reduction=reduction,
        )
    needed = [wants_gradient(tensor) for tensor in (hidden, weight, log_var_weight)]
    weights = weight.shape[0] if weight.ndim == 3 else 1
    squares = likelihood == "mse" and squares_are_cheaper(
        backend.costs, *features.shape, hidden.shape[2], features.nnz, hidden.shape[1], weights, *needed[:2]
    )
    total, *_ = OPERATOR(
        backend,
        hidden=hidden,
        weight=weight,
        log_var_weight=log_var_weight,
        features=features,
        flipped=features if squares else None,
        pos_weight=checks.one_element(pos_weight, hidden.device),
        likelihood=KERNELS[likelihood],
        precision=precision.current(backend, hidden.device),
        hidden_wanted=needed[0],
        weight_wanted=needed[1],
        log_var_wanted=needed[2],
    )
    return total / (features.shape[0] * features.shape[1]) if reduction == "mean" else total
