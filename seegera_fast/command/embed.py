"""``seegera-fast embed``: embeds the nodes of a graph with a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..graph import Graph
from ..model import SeeGera
from ..support.atomic import written_aside
from ..support.hints import one_line
from .options import Parser, add_common_options, check_graph_options, chosen_operations, read_path
from .output import EMBEDDING, TABLES, embedding_table, write_array, write_table
from .trained import add_model_options, read_trained, require_out

EXAMPLES = """\
examples:
  seegera-fast embed runs/cora-link/model.safetensors --data cora --out cora.npy
      the same numbers as embedding.npy beside the model
  seegera-fast embed model.safetensors --edges new.csv --features people.csv --out new.csv
      any graph with the features of the training: with further nodes, or none of the same. A model of variant v1, or
      one that was trained without features, knows only the nodes of its training
"""
# An embedding with more numbers than this in a layer (1 GiB) is computed some rows at a time.
LARGE = 1 << 28
ROWS_AT_ONCE = 1 << 16


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
        metavar="FILE",
        help=f".npy, .csv or .parquet; a file of that name is replaced. Default: {EMBEDDING}, if there is none",
    )
    embed.set_defaults(run=_embed)
    return embed


def _embed(options: argparse.Namespace) -> int:
    check_graph_options(options)
    out = options.out or Path(EMBEDDING)
    require_out(options, out, (".npy", *TABLES))
    with chosen_operations(options):
        model, graph = read_trained(options)
        given = _how(model, graph, out)
        embedding = model.embed(graph, seed=options.seed, progress=not options.quiet, **given)
    if "out" not in given:
        with written_aside(out) as file:
            if out.suffix == ".npy":
                write_array(file, embedding.cpu().numpy())
            else:
                write_table(file, embedding_table(graph, embedding.cpu().numpy()), out.suffix)
    print(one_line(f"{out}: {embedding.shape[0]:,} x {embedding.shape[1]:,}"))
    return 0


def _how(model: SeeGera, graph: Graph, out: Path) -> dict[str, Any]:
    """How a graph is embedded: as a whole, some rows at a time, or into the file."""
    config = model.config
    width = config.num_importance_samples * max(config.hidden_dim, config.embedding_dim)
    if graph.num_nodes * width <= LARGE:
        return {}
    return {"out": out} if out.suffix == ".npy" else {"rows_at_once": ROWS_AT_ONCE}
