"""``seegera-fast links`` and ``seegera-fast complete``: what a trained model says is missing in a graph."""

from __future__ import annotations

import argparse
import difflib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..graph import Graph
from ..matching import features_are_nodes
from ..model import SeeGera
from ..sides import AUTO
from ..support.atomic import written_aside
from ..support.hints import one_line, short, shown_name
from ..support.plots import save_histogram
from ..support.progress import phase
from ..support.report import number_texts, table
from .options import Parser, add_common_options, check_graph_options, chosen_operations, read_count, read_path, say
from .output import LINKS as LINKS_TABLE
from .output import TABLES, node_names, write_table
from .trained import add_model_options, read_trained, require_out

LINKS = """\
examples:
  seegera-fast links runs/friends-link/model.safetensors --edges friends.csv --features people.csv
      for each node, the 20 most probable links that are not in the table, in links.csv
  seegera-fast links model.safetensors --edges friends.csv --of Ann --of Bob --top 5
  seegera-fast links model.safetensors --data cora --whole --top 100 --out links.parquet
      the 100 most probable links of the whole graph

columns of the file:
  node, other  the two nodes, by their names
  probability  of the link. After a training with links held out for validation it is calibrated: where links and pairs
               without a link are equally many, of the pairs with probability p a share p are links. Among all pairs of
               a graph, links are rarer
  deviation    its standard deviation over draws from the model's posterior: how sure the model is of the probability

A picture with the probabilities is written beside the file, as links-probabilities.png.
"""
COMPLETE = """\
examples:
  seegera-fast complete runs/friends-attribute/model.safetensors --edges friends.csv --features people.csv --top 3
      for each node, the 3 most probable of the features that are 0 in the table, in attributes.csv
  seegera-fast complete model.safetensors --edges friends.csv --features people.csv --of Ann

columns of the file:
  node, feature  by their names
  value          the expected value of the feature: of features in [0, 1] with likelihood=bernoulli, its probability
"""
# So many suggestions are printed, beside those in the file.
PRINTED = 5
TOP_LINKS, TOP_ATTRIBUTES = 20, 5
PROBABILITY, DEVIATION = "probability", "deviation"
# The default file of complete, and the columns that the tables have in any case.
ATTRIBUTES = "attributes.csv"
LINK_COLUMNS, ATTRIBUTE_COLUMNS = ("node", "other", PROBABILITY), ("node", "feature", "value")


def add_links(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    links = commands.add_parser(
        "links",
        help="the most probable links that are not there yet",
        description="Writes the most probable links that are not in the graph, and how sure the model is of them.",
        epilog=LINKS,
    )
    add_model_options(links)
    _add_choice(links, TOP_LINKS, "links")
    links.add_argument(
        "--whole", action="store_true", help="the most probable links of the whole graph, not of each node"
    )
    links.add_argument(
        "--bipartite",
        action=argparse.BooleanOptionalAction,
        help="only links across the two sides of a bipartite graph. Default: as in training",
    )
    links.add_argument(
        "--draws",
        type=_read_draws,
        default=64,
        metavar="N",
        help="draws for the deviation, 2 or more; 0: no deviation. Default: 64",
    )
    add_common_options(links)
    _add_out(links, LINKS_TABLE)
    links.set_defaults(run=_links)
    return links


def add_complete(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    complete = commands.add_parser(
        "complete",
        help="the most probable missing attributes of each node",
        description="Writes the most probable of the features that are 0, for each node.",
        epilog=COMPLETE,
    )
    add_model_options(complete)
    _add_choice(complete, TOP_ATTRIBUTES, "features")
    add_common_options(complete)
    _add_out(complete, ATTRIBUTES)
    complete.set_defaults(run=_complete)
    return complete


def _add_choice(parser: argparse.ArgumentParser, top: int, what: str) -> None:
    parser.add_argument(
        "--top",
        type=read_count,
        default=top,
        metavar="K",
        help=f"so many {what}; all, where there are fewer. Default: {top}",
    )
    parser.add_argument(
        "--of", action="append", metavar="NAME", dest="nodes", help="only of this node; may be repeated. Default: all"
    )


def _add_out(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--out",
        type=read_path,
        metavar="FILE",
        help=f".csv or .parquet; a file of that name is replaced. Default: {name}, where no other table has that name",
    )


def _read_draws(text: str) -> int:
    if not text.isdecimal() or int(text) == 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, want 0, or an integer of 2 or more")
    return int(text)


def _links(options: argparse.Namespace) -> int:
    check_graph_options(options)
    out = options.out or Path(LINKS_TABLE)
    drawn = out.with_name(f"{out.stem}-probabilities.png")
    require_out(options, out, TABLES, drawn, columns=LINK_COLUMNS)
    with chosen_operations(options):
        model, graph = read_trained(options)
        nodes = numbers_of(graph, options.nodes)
        count = graph.num_nodes
        if count == 1:
            raise ValueError("the graph has one node, so it has no links")
        top = min(options.top, count * (count - 1) // 2 if options.whole else count - 1)
        with phase("looking for links", show=not options.quiet):
            columns = suggested_links(
                model,
                graph,
                top,
                nodes=nodes,
                per_node=not options.whole,
                bipartite=options.bipartite,
                draws=options.draws,
                seed=options.seed,
            )
    _write(out, columns)
    if len(columns["node"]):
        picture = io.BytesIO()
        title = f"{len(columns['node']):,} suggested links of {shown_name(graph.name)}"
        save_histogram(picture, columns[PROBABILITY], title=title, x="probability of the link", y="links")
        with written_aside(drawn) as file:
            file.write(picture.getvalue())
    if model.calibration is None:
        say(
            options,
            "the probabilities are not calibrated: training held out no links for validation, or too few, or larger "
            "scores were not more probably links among them",
        )
    print(printed(columns))
    print(one_line(f"{out}: {len(columns['node']):,} links"))
    return 0


def _complete(options: argparse.Namespace) -> int:
    check_graph_options(options)
    out = options.out or Path(ATTRIBUTES)
    require_out(options, out, TABLES, columns=ATTRIBUTE_COLUMNS)
    with chosen_operations(options):
        model, graph = read_trained(options)
        if features_are_nodes(graph):
            raise ValueError(
                "the graph has no features, so that each node is its own, and none is missing: want a graph with "
                "features, as --edges and --features make one"
            )
        nodes = numbers_of(graph, options.nodes)
        top = min(options.top, graph.num_features)
        with phase("looking for attributes", show=not options.quiet):
            found = model.top_attributes(top, nodes, seed=options.seed)
    features = np.arange(graph.num_features) if graph.feature_names is None else graph.feature_names
    node, feature, value = found.nodes.cpu().numpy(), found.features.cpu().numpy(), found.values.cpu().numpy()
    columns = dict(zip(ATTRIBUTE_COLUMNS, (node_names(graph)[node], features[feature], value), strict=True))
    _write(out, columns)
    print(printed(columns))
    print(one_line(f"{out}: {len(found.nodes):,} attributes"))
    return 0


def suggested_links(
    model: SeeGera,
    graph: Graph,
    k: int,
    *,
    nodes: torch.Tensor | None = None,
    per_node: bool = True,
    bipartite: bool = False,
    draws: int = 64,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """The columns of a table of suggested links, see :meth:`SeeGera.top_links`; with draws 0 there is no deviation.

    Raises:
        ValueError: ``k`` is above what the graph has, or it is not bipartite.
    """
    calibrated = model.calibration is not None
    sides = AUTO if bipartite else None
    found = model.top_links(k, nodes, graph, seed, per_node=per_node, sides=sides, calibrated=calibrated)
    node, other = node_names(graph)[found.pairs.cpu().numpy()].T
    columns = dict(zip(LINK_COLUMNS, (node, other, found.probabilities.cpu().numpy()), strict=True))
    if draws:
        uncertain = model.link_scores(found.pairs, graph, seed, draws, calibrated=calibrated)
        columns[DEVIATION] = uncertain.deviation.cpu().numpy()
    return columns


def numbers_of(graph: Graph, names: Sequence[str] | None) -> torch.Tensor | None:
    """The numbers of nodes with some names, each once; None: all nodes.

    Raises:
        ValueError: there is no such node; the message names similar ones.
    """
    if names is None:
        return None
    known = {str(name): number for number, name in enumerate(node_names(graph).tolist())}
    for name in names:
        if name not in known:
            raise ValueError(f"--of: got {short(name)}, which is no node of the graph; {_similar(name, known)}")
    return torch.tensor([known[name] for name in dict.fromkeys(names)], device="cpu")


def _similar(name: str, known: Mapping[str, int]) -> str:
    alike = difflib.get_close_matches(name, known, n=3) if len(known) <= 10**5 else []
    if alike:
        return f"the nearest: {', '.join(map(short, alike))}"
    return f"want one of its {len(known):,} nodes, such as {short(next(iter(known)))}"


def printed(columns: Mapping[str, np.ndarray], count: int = PRINTED) -> str:
    """The first rows of some columns for a terminal."""
    first = {name: column[:count] for name, column in columns.items()}
    return table([list(columns), *([shown_name(text) for text in row] for row in rows_of(first))])


def rows_of(columns: Mapping[str, np.ndarray]) -> list[tuple[str, ...]]:
    """The rows of some columns as text, whose numbers have as many digits as tell them apart."""
    return list(zip(*(_texts(name, column) for name, column in columns.items()), strict=True))


def _texts(name: str, column: np.ndarray) -> list[str]:
    if column.dtype.kind != "f":
        return [str(value) for value in column.tolist()]
    return number_texts(column.tolist(), apart=name != DEVIATION, probabilities=name == PROBABILITY)


def _write(out: Path, columns: Mapping[str, np.ndarray]) -> None:
    with written_aside(out) as file:
        write_table(file, columns, out.suffix)
