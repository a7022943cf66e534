"""What the commands for a trained model share: its file, its graph, and the files that they write."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..graph import Graph
from ..model import SeeGera
from ..model_file import FLAGS, ModelHeader, read_header
from ..sides import AUTO
from ..support import tensor_file
from ..support.atomic import require_file, require_writable
from ..support.hints import some
from ..support.json_fields import Fields
from ..support.warning import warn_outside
from ..tables import require_pyarrow
from ..tasks.common import normalized
from .options import add_graph_options, read_chosen_graph, read_path, read_seed, require_apart, say, sizes
from .output import RESULTS, results_of_train
from .table_options import as_options, checked_tables


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the graph, and what they need."""
    parser.add_argument(
        "model",
        type=read_path,
        metavar="MODEL",
        help="model.safetensors of a run; tables are read as that run read them, but for the options given here",
    )
    add_graph_options(parser)
    parser.add_argument(
        "--normalize-features",
        action="store_true",
        help="divide each row of the features by the sum of its absolute values; done anyway, as is --weighted, where "
        "the model's file says that the training did so",
    )
    parser.add_argument("--seed", type=read_seed, default=0, metavar="N", help="of the noise. Default: 0")


def require_out(
    options: argparse.Namespace, out: Path, suffixes: tuple[str, ...], *more: Path, columns: Sequence[str] = ()
) -> None:
    """Checks that a file of one of some kinds can be written, before anything is computed.

    Args:
        out: what --out names, or the default, which replaces nothing but a table of the command.
        more: files that are written too.
        columns: the first columns of the command's tables, by which they are known; none: they are not.

    Raises:
        ValueError: its name ends in another way, or it or one of ``more`` is an input, or would be lost.
        OSError: it can't be written.
    """
    if out.suffix not in suffixes:
        raise ValueError(f"--out: got {str(out)!r}, want a name that ends in {' or '.join(suffixes)}")
    if out.suffix == ".parquet":
        require_pyarrow(out, "Parquet")
    require_file(out)
    require_apart(options, [out, *more])
    if options.out is None and out.exists() and not _is_table(out, columns):
        why = "is no table of this command" if columns else "is there already"
        raise ValueError(f"--out: {out} {why}, and would be lost; want another name, or --out {out} to replace it")
    require_writable(str(out), out.parent)


def _is_table(path: Path, columns: Sequence[str]) -> bool:
    """Whether a file is a table in CSV whose first columns have these names; False where there are none."""
    if not columns:
        return False
    start = ",".join(columns).encode()
    with open(path, "rb") as file:
        return file.read(len(start)) == start


def read_trained(options: argparse.Namespace) -> tuple[SeeGera, Graph]:
    """Reads the model and the graph that the options name.

    What the options leave open is done as in training, by the model's file and the results beside it.
    """
    training = _training_of(options)
    tables = _do_alike(options, training)
    normalize = options.normalize_features or training.normalize_features
    weighted = options.weighted or (not options.data and training.weighted)
    with _origin_named(tables, options.model.with_name(RESULTS)):
        graph = normalized(read_chosen_graph(options, weighted), normalize)
    model = SeeGera.load(options.model, graph)
    parts = [sizes(graph), *["edges weighted"] * (graph.weights is not None), *["features normalised"] * normalize]
    say(options, "; ".join([*parts, f"on {options.device}"]))
    return model, graph


@dataclass(frozen=True)
class _Training:
    """What a training did with its graph; ``tables`` are the options of tables that it was given."""

    weighted: bool
    normalize_features: bool
    bipartite: bool
    tables: Mapping[str, Any]
    # Whether the label is a column of the table of features, which left it out. Earlier versions did so in any case.
    label_among_features: bool = True


def _training_of(options: argparse.Namespace) -> _Training:
    """What the file of the model and the results beside it say.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not the file of a model, or a field of the results is of a wrong kind.
    """
    model = options.model
    try:
        header = read_header(tensor_file.read(model))
    except ValueError as error:
        raise ValueError(f"{error}, want a file of SeeGera.save") from error
    known = {name: getattr(header, name) for name in FLAGS}
    path = model.with_name(RESULTS)
    results = results_of_train(path)
    if results is None:
        _say_what_is_unknown(options, [name for name in FLAGS if known[name] is None])
        return _Training(*map(bool, known.values()), bipartite=False, tables={})
    configuration, data = results.fields("configuration"), results.fields("data")
    _require_features(options, header, data, path)
    # Earlier versions wrote less, to the file of the model and to the results.
    said = {
        "weighted": "weighted" in data and data.flag("weighted"),
        "normalize_features": configuration.flag("normalize_features"),
    }
    return _Training(
        **{name: said[name] if known[name] is None else known[name] for name in FLAGS},
        bipartite="sides" in configuration and configuration.take("sides") == AUTO,
        tables=checked_tables(data.fields("tables")) if "tables" in data else {},
        label_among_features="label_among_features" not in data or data.flag("label_among_features"),
    )


def _require_features(options: argparse.Namespace, header: ModelHeader, data: Fields, path: Path) -> None:
    """Refuses a graph without features for a model that was trained with those of a file, by the results' data."""
    files = data.take("files") if "files" in data else None
    file = files.get("features") if isinstance(files, dict) else None
    if not options.edges or options.features or header.identity_features or not isinstance(file, str):
        return
    names = "" if header.feature_names is None else f" ({some(header.feature_names)})"
    raise ValueError(
        f"--features: got none, and {options.model} has {header.num_features:,} features{names}, those of {file} by "
        f"{path}; want a table with them"
    )


def _say_what_is_unknown(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Says which options the user should give, because nothing says whether the training had them."""
    if not names:
        return
    model, path = options.model, options.model.with_name(RESULTS)
    given = " and ".join(f"--{name.replace('_', '-')}" for name in names)
    if path.is_file():
        warn_outside(
            f"{path}: is not the results file of train, and says nothing about {model.name}: give {given} here too if "
            "the training had that"
        )
    else:
        say(options, f"{model.name} does not say how it was trained: give {given} here too if the training had that")


def _do_alike(options: argparse.Namespace, training: _Training) -> dict[str, Any]:
    """Sets options that are not given to those of the training, and says so. Returns those of tables."""
    path = options.model.with_name(RESULTS)
    given = dict(training.tables) if options.edges else {}
    if not options.features:
        given.pop("categories", None)
    if not options.labels and not (options.features and training.label_among_features):
        given.pop("label", None)
    if not options.features and not options.labels:
        given.pop("node", None)
    tables = {name: value for name, value in given.items() if getattr(options, name) is None}
    vars(options).update(tables)
    if tables:
        say(options, f"tables are read as in training, by {path}: {as_options(tables)}")
    if getattr(options, "bipartite", False) is None:
        options.bipartite = training.bipartite
        if training.bipartite:
            say(options, f"links across the two sides, as in training, by {path}; --no-bipartite: any links")
    return tables


@contextmanager
def _origin_named(tables: Mapping[str, Any], path: Path) -> Iterator[None]:
    """Adds to an error about options of tables where they are from, since the user has not typed them."""
    try:
        yield
    except ValueError as error:
        named = {name: value for name, value in tables.items() if re.search(rf"\b{name}[:=]", str(error))}
        if not named:
            raise
        raise ValueError(f"{error}; as in training, by {path}: {as_options(named)}, unless it is given here") from error
