"""feature_likelihood, value and gradients, against the loss of all n x l outputs in plain PyTorch."""

import math

import floors
import torch
from operations import grid, leaf, operation, with_gradients
from torch.nn import functional

import seegera_fast as sf

POS_WEIGHT = 20.0
LIKELIHOODS = ("bernoulli", "mse", "gaussian")


def floor(size, likelihood, samples):
    nnz = size.graph.features.nnz
    return floors.feature_likelihood(size.nodes, size.features, size.width, nnz, likelihood, samples)


@operation(
    grid(likelihood=LIKELIHOODS, samples=(1,), width=(512, 64)),
    small=grid(likelihood=LIKELIHOODS, samples=(2,)),
    # More features than one chunk of outputs holds.
    larger=grid(likelihood=("bernoulli",), samples=(1,)),
    floor=floor,
)
def bench_feature_likelihood(size, likelihood, samples):
    features = size.graph.features
    dense, pos_weight = features.to_dense(), torch.tensor(POS_WEIGHT)
    hidden = leaf(size.nodes, samples, size.width, scale=0.1)
    weight, variance = (leaf(size.width, size.features, scale=0.1, seed=seed) for seed in (1, 2))
    gaussian = likelihood == "gaussian"

    def ours():
        given = {"likelihood": likelihood, "pos_weight": pos_weight, "log_var_weight": variance if gaussian else None}
        return sf.ops.feature_likelihood(hidden, weight, features, **given)

    def loss(sample):
        outputs = sample @ weight
        if likelihood == "bernoulli":
            return functional.binary_cross_entropy_with_logits(outputs, dense, pos_weight=pos_weight, reduction="sum")
        if likelihood == "mse":
            return functional.mse_loss(outputs, dense, reduction="sum") + 0.5 * math.log(math.pi) * dense.numel()
        variances = torch.exp(sample @ variance)
        return functional.gaussian_nll_loss(outputs, dense, variances, full=True, reduction="sum")

    def plain():
        return -torch.stack([loss(sample) for sample in hidden.unbind(1)])

    return with_gradients({"seegera_fast": ours, "torch": plain}, [hidden, weight, *([variance] if gaussian else [])])
