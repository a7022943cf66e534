"""Scores of a ranking of links: Hits@k and the mean reciprocal rank."""

from __future__ import annotations

import torch

# The numbers of pairs without a link that Hits@k allows above a link, in the reports.
HITS = (10, 50, 100)


def hits_at(positive: torch.Tensor, negative: torch.Tensor, k: int) -> float | None:
    """Hits@k: the share of links that score higher than all but the best ``k - 1`` pairs without a link.

    This is the definition of the Open Graph Benchmark. None: there are no links, or fewer than k other pairs.

    Args:
        positive, negative: scores ``[m]`` of the links, and of the pairs without a link.
    """
    if not len(positive) or len(negative) < k:
        return None
    return float((positive > negative.topk(k).values[-1]).double().mean())


def mean_reciprocal_rank(positive: torch.Tensor, negative: torch.Tensor) -> float | None:
    """MRR: the mean over the links of 1 / rank, where the rank is that of one link among all pairs without a link.

    A tie counts half: the rank is the mean of the first and the last rank that the tie allows. None: there are no links
    or no other pairs.

    Args:
        positive: scores ``[m]`` of the links.
        negative: scores ``[q]`` of pairs that all links compete with, or ``[m, q]``: of pairs for each link.
    """
    if not len(positive) or not negative.shape[-1]:
        return None
    if negative.ndim == 1:
        ordered = negative.sort().values
        above = len(ordered) - torch.searchsorted(ordered, positive, right=True)
        equal = len(ordered) - torch.searchsorted(ordered, positive) - above
    else:
        above = (negative > positive[:, None]).sum(dim=1)
        equal = (negative == positive[:, None]).sum(dim=1)
    return float((1 / (1 + above + equal / 2).double()).mean())
