"""A small graph, and the widths of a small model of it."""

import cases

WIDTHS = {"embedding_dim": 4, "hidden_dim": 5}


def graph():
    return cases.graph("random", "binary")
