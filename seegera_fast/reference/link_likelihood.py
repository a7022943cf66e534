"""log p(A | Z): independent Bernoulli links with logits z_i . z_k (Eq. after psi_2, "Decoder")."""

import torch
from torch.nn.functional import logsigmoid

from ..seeds import seed_tensor
from .factors import factor
from .random import NEGATIVES, integers
from .weights import term, weighted


def link_likelihood(
    z, adjacency, *, pos_weight=1.0, self_loops=True, negatives="all", seed=0, reduction="sum"
) -> torch.Tensor:
    num_nodes = z.shape[0]
    pos_weight = factor(pos_weight, z)
    if negatives == "all":

        def log_likelihood(z) -> torch.Tensor:
            return _all_pairs(z, adjacency, pos_weight, self_loops)

    else:
        non_edges = adjacency.non_edges
        ranks = integers(seed_tensor(seed, z.device), NEGATIVES, negatives, non_edges.count)
        pairs = non_edges.pairs(ranks)

        def log_likelihood(z) -> torch.Tensor:
            return _sampled(z, adjacency, pos_weight, self_loops, pairs, non_edges.count / negatives)

    per_draw = [term(log_likelihood, z[:, j]) for j in range(z.shape[1])]
    total = torch.stack(per_draw)
    if reduction == "mean":
        total = total / max(num_nodes * num_nodes if self_loops else num_nodes * (num_nodes - 1), 1)
    return total


def _all_pairs(z, adjacency, pos_weight, self_loops) -> torch.Tensor:
    scores = z @ z.T
    target = torch.zeros_like(scores).index_put_((adjacency.row, adjacency.col), scores.new_ones(()))
    terms = weighted(pos_weight * target, logsigmoid(scores)) + weighted(1 - target, logsigmoid(-scores))
    loops = weighted(pos_weight if self_loops else 0.0, logsigmoid(scores.diagonal()))
    return terms.tril(-1).sum() + terms.triu(1).sum() + loops.sum()


def _sampled(z, adjacency, pos_weight, self_loops, pairs, scale) -> torch.Tensor:
    # A has an entry for each direction of an edge. A drawn pair counts for both directions.
    linked = (z[adjacency.row] * z[adjacency.col]).sum(dim=1)
    apart = (z[pairs[:, 0]] * z[pairs[:, 1]]).sum(dim=1)
    total = weighted(pos_weight, logsigmoid(linked)).sum() + 2 * scale * logsigmoid(-apart).sum()
    if self_loops:
        total = total + weighted(pos_weight, logsigmoid((z * z).sum(dim=1))).sum()
    return total
