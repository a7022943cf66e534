"""What the commands for a trained model share: its file, its graph, and the files that they write."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from ..graph import Graph
from ..model import SeeGera
from ..support.atomic import Unwritable, require_writable
from ..support.json_fields import Fields, parse
from ..tables import require_pyarrow
from ..tasks.common import normalized
from .options import add_graph_options, read_chosen_graph, read_path, read_seed, require_apart, say, sizes
from .output import RESULTS


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the graph, and what they need."""
    parser.add_argument("model", type=read_path, metavar="MODEL", help="model.safetensors of a run")
    add_graph_options(parser)
    parser.add_argument(
        "--normalize-features",
        action="store_true",
        help="divide each row of the features by its sum; done anyway, as is --weighted, where results.json beside the "
        "model says that training did so",
    )
    parser.add_argument("--seed", type=read_seed, default=0, metavar="N", help="of the noise. Default: 0")


def require_out(options: argparse.Namespace, suffixes: tuple[str, ...], *more: Path) -> None:
    """Checks that a file of one of some kinds can be written, before anything is computed.

    Raises:
        ValueError: its name ends in another way, or it or one of ``more``, which are written too, is an input.
        OSError: it can't be written.
    """
    out = options.out
    if out.suffix not in suffixes:
        raise ValueError(f"--out: got {str(out)!r}, want a name that ends in {' or '.join(suffixes)}")
    if out.suffix == ".parquet":
        require_pyarrow(out, "Parquet")
    if out.is_dir():
        raise Unwritable(out, "it is a folder")
    require_apart(options, [out, *more])
    require_writable(str(out), out.parent)


def read_trained(options: argparse.Namespace) -> tuple[SeeGera, Graph]:
    """Reads the model and the graph that the options name. The features are normalised if those of training were."""
    trained_on = _trained_on(options.model)
    normalize = options.normalize_features or trained_on["normalize_features"]
    weighted = options.weighted or (not options.data and trained_on["weighted"])
    graph = normalized(read_chosen_graph(options, weighted), normalize)
    model = SeeGera.load(options.model, graph)
    parts = [sizes(graph), *["edges weighted"] * weighted, *["features normalised"] * normalize]
    say(options, "; ".join([*parts, f"on {options.device}"]))
    return model, graph


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
