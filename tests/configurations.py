"""Configurations that differ in what a training step computes, and small models of them."""

import cases
import torch

import seegera_fast as sf

SMALL = {"embedding_dim": 6, "hidden_dim": 5, "noise_dim": 3}
MASKED = {"structure_masking_rate": 0.3, "feature_masking_rate": 0.2, "dropout": 0.3}
CONFIGURATIONS = {
    "v1": {"variant": "independent"},
    "v2": {"num_importance_samples": 2, "num_mixture_samples": 3},
    "v3": MASKED,
    "v3, sampled, gaussian": {**MASKED, "negatives": 8, "likelihood": "gaussian", "scaling": "sum"},
    "v3, mse, joint": {**MASKED, "likelihood": "mse", "mixture": "joint", "noisy_variance": True},
    "mlp": {"encoder": "mlp", "decoder": "mlp", "dropout": 0.3},
    "inner product": {"decoder": "inner_product", "dropout": 0.3},
}


def model_of(configuration, device="cpu"):
    graph = cases.graph("random", kind="binary").to(device=device, dtype=torch.float32)
    return sf.SeeGera(graph, seed=1, **{**SMALL, **CONFIGURATIONS[configuration]})
