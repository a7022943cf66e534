"""The pairs without a link that have the largest scores z_i . z_j."""

import torch


def top_links(z, adjacency, k, *, per_node=True, nodes=None, sides=None) -> tuple[torch.Tensor, torch.Tensor]:
    num_nodes = z.shape[0]
    wide = z.detach().double()
    product = wide @ wide.T
    # Each pair counts once, so that both of its nodes see the same bits.
    scores = (product.tril() + product.tril(-1).T).to(z.dtype)
    free = ~scores.isnan()
    free[adjacency.row, adjacency.col] = False
    free.fill_diagonal_(False)
    if sides is not None:
        free &= sides[:, None] != sides
    rows = torch.arange(num_nodes, device=z.device) if nodes is None else nodes
    if per_node:
        return _largest(scores[rows], free[rows], k)
    asked = torch.zeros(num_nodes, dtype=torch.bool, device=z.device)
    asked[rows] = True
    free = (free & (asked[:, None] | asked)).triu(1)
    values, place = _largest(scores.reshape(1, -1), free.reshape(1, -1), k)
    pairs = torch.stack([place[0].div(max(num_nodes, 1), rounding_mode="floor"), place[0] % max(num_nodes, 1)], dim=1)
    return values[0], torch.where(place[0][:, None] < 0, -1, pairs)


def _largest(scores, free, k) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row the k largest free scores, and their columns; of equal scores the first columns."""
    order = torch.where(free, scores, -torch.inf).sort(dim=1, descending=True, stable=True).indices
    # What is not free comes last, behind scores of minus infinity.
    order = order.gather(1, (~free).gather(1, order).byte().sort(dim=1, stable=True).indices)[:, :k]
    taken = free.gather(1, order)
    values = torch.where(taken, scores.gather(1, order), -torch.inf)
    missing = (0, k - order.shape[1])
    return (
        torch.nn.functional.pad(values, missing, value=-torch.inf),
        torch.nn.functional.pad(torch.where(taken, order, -1), missing, value=-1),
    )
