"""``seegera-fast embed``: embeds the nodes of a graph with a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..support.atomic import written_aside
from ..support.hints import one_line
from .options import Parser, add_common_options, check_graph_options, chosen_backend, read_path
from .output import TABLES, embedding_table, write_array, write_table
from .trained import add_model_options, read_trained, require_out

EXAMPLES = """\
examples:
  seegera-fast embed runs/cora-link/model.safetensors --data cora --out cora.npy
      the same numbers as embedding.npy beside the model
  seegera-fast embed model.safetensors --edges new.txt --features pages.npz --out new.csv
      the graph may have other edges or features than in training, but as many nodes and features
"""


def add_embed(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    embed = commands.add_parser(
        "embed",
        help="embeddings of a graph's nodes from a trained model",
        description="Writes the mean embeddings of a graph's nodes, one row per node.",
        epilog=EXAMPLES,
    )
    add_model_options(embed)
    add_common_options(embed)
    embed.add_argument(
        "--out",
        type=read_path,
        default=Path("embedding.npy"),
        metavar="FILE",
        help=".npy, .csv or .parquet. Default: embedding.npy",
    )
    embed.set_defaults(run=_embed)
    return embed


def _embed(options: argparse.Namespace) -> int:
    check_graph_options(options)
    out = options.out
    require_out(options, (".npy", *TABLES))
    with chosen_backend(options):
        model, graph = read_trained(options)
        embedding = model.embed(graph, seed=options.seed).cpu().numpy()
    with written_aside(out) as file:
        if out.suffix == ".npy":
            write_array(file, embedding)
        else:
            write_table(file, embedding_table(graph, embedding), out.suffix)
    print(one_line(f"{out}: {embedding.shape[0]:,} x {embedding.shape[1]:,}"))
    return 0
