"""``seegera-fast embed``: embeds the nodes of a graph with a trained model."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..model import SeeGera
from ..support.atomic import Unwritable, require_writable, written_aside
from ..support.hints import one_line
from ..support.json_fields import Fields, parse
from ..tasks.common import normalized
from .options import (
    Parser,
    add_common_options,
    add_graph_options,
    check_graph_options,
    chosen_backend,
    read_chosen_graph,
    read_path,
    read_seed,
    say,
    sizes,
)
from .output import RESULTS, write_array

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
    embed.add_argument("model", type=read_path, metavar="MODEL", help="model.safetensors of a run")
    add_graph_options(embed)
    embed.add_argument(
        "--normalize-features",
        action="store_true",
        help="divide each row of the features by its sum; done anyway, as is --weighted, where results.json beside the "
        "model says that training did so",
    )
    embed.add_argument("--seed", type=read_seed, default=0, metavar="N", help="of the noise. Default: 0")
    add_common_options(embed)
    embed.add_argument(
        "--out",
        type=read_path,
        default=Path("embedding.npy"),
        metavar="FILE",
        help=".npy or .csv. Default: embedding.npy",
    )
    embed.set_defaults(run=_embed)
    return embed


def _embed(options: argparse.Namespace) -> int:
    check_graph_options(options)
    out = options.out
    if out.suffix not in (".npy", ".csv"):
        raise ValueError(f"--out: got {str(out)!r}, want a name that ends in .npy or .csv")
    if out.is_dir():
        raise Unwritable(out, "it is a folder")
    require_writable(str(out), out.parent)
    with chosen_backend(options):
        trained_on = _trained_on(options.model)
        normalize = options.normalize_features or trained_on["normalize_features"]
        weighted = options.weighted or (not options.data and trained_on["weighted"])
        graph = normalized(read_chosen_graph(options, weighted), normalize)
        model = SeeGera.load(options.model, graph)
        parts = [sizes(graph), *["edges weighted"] * weighted, *["features normalised"] * normalize]
        say(options, "; ".join([*parts, f"on {options.device}"]))
        embedding = model.embed(graph, seed=options.seed).cpu().numpy()
    with written_aside(out) as file:
        if out.suffix == ".npy":
            write_array(file, embedding)
        else:
            header = ",".join(["node", *(f"z{k}" for k in range(embedding.shape[1]))])
            rows = np.column_stack([np.arange(embedding.shape[0]), embedding])
            np.savetxt(
                file, rows, fmt=["%d", *["%.9g"] * embedding.shape[1]], delimiter=",", header=header, comments=""
            )
    print(one_line(f"{out}: {embedding.shape[0]:,} x {embedding.shape[1]:,}"))
    return 0


def _trained_on(model: Path) -> dict[str, bool]:
    """Reads from the results beside a model whether its features were normalised and its edges weighted.

    Raises:
        ValueError: a field of the results is of a wrong kind.
    """
    path = model.with_name(RESULTS)
    if not path.is_file():
        return {"normalize_features": False, "weighted": False}
    try:
        results = Fields(str(path), parse(path.read_bytes()))
        configuration, data = results.fields("configuration"), results.fields("data")
        configuration.take("normalize_features")
    except ValueError:
        warnings.warn(
            f"{path}: is not the results file of train, and says nothing about {model.name}; where the training had "
            "them, --normalize-features and --weighted are needed here too",
            stacklevel=2,
        )
        return {"normalize_features": False, "weighted": False}
    return {
        "normalize_features": configuration.flag("normalize_features"),
        # Earlier versions did not write it.
        "weighted": "weighted" in data and data.flag("weighted"),
    }
