"""Options of the command line: how their values are read, and the options that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch

from .. import backends, datasets, precision
from ..batches import Batches
from ..distributed import Processes, by_torchrun
from ..experiments.protocols import SPLIT_ARGUMENTS
from ..graph import Graph
from ..partition import METHODS
from ..precision import PRECISIONS
from ..support import arguments
from ..support.hints import nearest, one_line, shown_name
from ..support.progress import phase
from ..tasks.task import Task
from .table_options import TABLE_OPTIONS, add_table_options, given_table_options

PROGRAM = "seegera-fast"
# Exit statuses.
BAD_INPUT, FAILED_TRAINING, UNFINISHED, IN_USE, UNWRITTEN, LOST, INTERRUPTED, BROKEN_PIPE = 2, 3, 4, 5, 6, 7, 130, 141

# The options that set a field of a run, by the field's name.
OPTION_OF_FIELD = {
    **{name: f"--{name}" for name in ("preset", "variant", "seed", "epochs")},
    **dict.fromkeys(SPLIT_ARGUMENTS, "--split"),
    "sides": "--bipartite",
    "batches": "--parts",
    "progress": "--quiet",
    "checkpoint": "--checkpoint-every",
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and whose options can't be abbreviated."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        # Several processes of torchrun have the same options.
        silent = by_torchrun() and not Processes.launched().first
        self.exit(BAD_INPUT, None if silent else f"{PROGRAM}: error: {message}\n")

    def check_options(self, given: Iterable[str]) -> None:
        """Refuses an unknown option, naming similar ones, before a missing option is reported."""
        known = [option for action in self._actions for option in action.option_strings]
        for text in given:
            if text == "--":
                return
            option = text.partition("=")[0]
            if option.startswith("--") and option not in known:
                self.error(f"unknown option {option}; {nearest(option, known)}; {self.prog} --help lists them")


def one_of(*choices: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in choices:
            raise argparse.ArgumentTypeError(f"got {text!r}; {nearest(text.lower(), choices)}")
        return text.lower()

    return check


def read_seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"got {text!r}, want an integer from 0 to 2**63 - 1")
    return int(text)


def read_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, want an integer, 1 or more")
    return int(text)


def read_path(text: str) -> Path:
    try:
        return Path(arguments.path("path", text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def read_precision(text: str) -> str:
    if text.lower() not in PRECISIONS:
        raise argparse.ArgumentTypeError(f"got {text!r}, want one of {', '.join(PRECISIONS)}")
    return text.lower()


def read_minutes(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"got {text!r}, want a number of minutes, 0 or more")


def read_rate(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < 1:
            return abs(float(text))  # -0 is the rate 0.
    raise argparse.ArgumentTypeError(f"got {text!r}, want a rate in [0, 1)")


def read_device(text: str) -> torch.device:
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = text.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise argparse.ArgumentTypeError(f"got {text!r}, want auto, cpu, cuda or cuda:NUMBER")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise argparse.ArgumentTypeError(f"got {text!r}, and torch sees {torch.cuda.device_count()} NVIDIA GPUs")
    return torch.device(text)


def read_field(text: str, option_of_field: Mapping[str, str] = OPTION_OF_FIELD) -> tuple[str, Any]:
    """Reads ``name=value``. The value is true, false, none, an int or a float where it reads as one, else text.

    Args:
        text: what the user typed.
        option_of_field: the options that set a field, by the field's name; such a field is refused here.
    """
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"got {text!r}, want FIELD=VALUE")
    if name in option_of_field:
        raise argparse.ArgumentTypeError(f"{name} has an option of its own: {option_of_field[name]}")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, value


def read_split(text: str) -> str | tuple[float, float]:
    if text in ("paper", "released"):
        return text
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}; {nearest(text, ('paper', 'released', 'two shares such as 0.1,0.2'))}"
        ) from None
    return first, second


def of_each(tasks: Mapping[str, Task], describe: Callable[[Task], str]) -> str:
    """Joins what a help text says about each task."""
    return "; ".join(f"{key}: {describe(task)}" for key, task in tasks.items())


EDGES_HELP = (
    "a table with the names of two nodes a row, and optionally a weight: text (CSV, TSV, blanks; also .gz), Parquet or "
    "Arrow; of an edge that is there several times the largest weight counts. Or .npz, a square matrix from "
    "scipy.sparse.save_npz"
)


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("graph", "a data set by name, files of yours, or the folder of a graph")
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data", type=one_of(*datasets.names()), metavar="NAME", help=f"one of {', '.join(datasets.names())}"
    )
    source.add_argument(
        "--edges",
        type=read_path,
        metavar="FILE",
        help=EDGES_HELP,
    )
    source.add_argument(
        "--graph",
        type=read_path,
        metavar="FOLDER",
        help="written by seegera-fast import or by Graph.save; it is mapped",
    )
    group.add_argument("--root", type=read_path, metavar="DIR", help="with --data: folder of the data sets")
    _add_rows(group, "with --edges: ")
    add_table_options(parser, "--edges")


def add_table_files(parser: argparse.ArgumentParser) -> None:
    """Adds the table of edges as an argument, and the options for it."""
    group = parser.add_argument_group("tables")
    group.add_argument("edges", type=read_path, metavar="EDGES", help=EDGES_HELP)
    _add_rows(group, "")
    add_table_options(parser, "EDGES")


def _add_rows(group: Any, where: str) -> None:
    group.add_argument(
        "--features",
        type=read_path,
        metavar="FILE",
        help=f"{where}a table with a row per node, its name in the first column; or without names, for nodes "
        "that are numbered from 0, text, .npz (scipy.sparse.save_npz) or .npy. Default: the identity",
    )
    group.add_argument(
        "--labels",
        type=read_path,
        metavar="FILE",
        help=f"{where}a table with an integer or a word per node, as of the features; or .npy",
    )
    group.add_argument("--weighted", action="store_true", help=f"{where}keep the edge weights in propagation")


def require_apart(options: argparse.Namespace, outputs: Iterable[Path]) -> None:
    """Refuses to write over a file that the options name as input, and into a folder that they name."""
    for name in ("edges", "features", "labels", "model", "graph"):
        given = getattr(options, name, None)
        if given is None or not given.exists():
            continue
        for out in outputs:
            if out.exists() and out.samefile(given):
                raise ValueError(f"--out: {out} is what --{name} names, and would be lost; want another place")
            if given.is_dir() and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(given)):
                raise ValueError(f"--out: {out} is in the folder that --{name} names, want another place")


def check_graph_options(options: argparse.Namespace) -> None:
    """Refuses options that go with another source of the graph than the one that is given."""
    source = next(name for name in ("data", "edges", "graph") if getattr(options, name))
    for other, names in {"edges": ("features", "labels", "weighted", *TABLE_OPTIONS), "data": ("root",)}.items():
        for name in names:
            if other != source and getattr(options, name) not in (None, False):
                raise ValueError(f"--{name} goes with --{other}, got --{source}")
    options.weighted |= options.weight is not None


def read_chosen_graph(options: argparse.Namespace, weighted: bool) -> Graph:
    """Reads the graph that the options name, on the device that they name."""
    if options.data:
        graph = datasets.load(options.data, options.root, progress=not options.quiet)
    elif options.graph:
        # A copy of a folder is read once, to compare its checksums.
        with phase(f"opening {shown_name(name_of_folder(options.graph))}", show=not options.quiet):
            graph = Graph.open(options.graph)
    else:
        tables = given_table_options(options)
        with phase(f"reading {shown_name(options.edges.name)}", show=not options.quiet):
            graph = Graph.from_table(options.edges, options.features, options.labels, weighted=weighted, **tables)
    return graph.to(options.device)


def name_of_folder(folder: Path) -> str:
    """The last part of a folder's name, also of one such as "." or "..": that of the folder that it is."""
    return Path(os.path.abspath(folder)).name or "graph"


def sizes(graph: Graph) -> str:
    return f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features"


def add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", type=read_device, default="auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N. Default: auto"
    )
    parser.add_argument(
        "--backend",
        type=one_of(*backends.NAMED),
        metavar="NAME",
        help=f"run every operation on one of {', '.join(backends.NAMED)}, or fail. Default: the best there is",
    )
    parser.add_argument(
        "--precision",
        type=read_precision,
        metavar="NAME",
        help="of products of float32 numbers: highest, high (TF32, or three products of bfloat16) or medium (one "
        "product of bfloat16); info says which are fast here. Default: PyTorch's, highest",
    )
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but warnings and errors")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


# The options of batches, by the attributes of Batches that they set.
BATCH_OPTIONS = {
    "parts": "parts",
    "per_batch": "parts_per_batch",
    "per_step": "batches_per_step",
    "method": "partition",
}


def add_batch_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batches", "training on parts of the graph, for graphs that outgrow the memory")
    group.add_argument(
        "--parts",
        type=read_count,
        metavar="N",
        help="cut the nodes into so many parts, and train on some of them at a time. Default: the whole graph at once",
    )
    group.add_argument(
        "--parts-per-batch",
        type=read_count,
        metavar="N",
        help="so many parts at a time; as many as --parts: the whole graph, in an order that a CPU reads faster. "
        "Default: 1",
    )
    group.add_argument(
        "--batches-per-step",
        type=read_count,
        metavar="N",
        help="a step of the optimiser takes the mean gradient of so many batches. Default: as many as processes",
    )
    group.add_argument(
        "--partition",
        type=one_of(*METHODS),
        metavar="METHOD",
        help="how the parts are made: metis, streaming, or auto: METIS if pymetis is installed. Default: auto",
    )


def chosen_batches(options: argparse.Namespace) -> Batches | None:
    """The batches that the options describe; None: none."""
    given = {name: getattr(options, option) for name, option in BATCH_OPTIONS.items()}
    given = {name: value for name, value in given.items() if value is not None}
    if "parts" not in given:
        for name in given:
            raise ValueError(f"--{BATCH_OPTIONS[name].replace('_', '-')} goes with --parts, got no --parts")
        return None
    if given.get("per_batch", 1) > given["parts"]:
        raise ValueError(
            f"--parts-per-batch: got {given['per_batch']}, want at most {given['parts']}, as many as --parts"
        )
    return Batches(**given)


@contextlib.contextmanager
def chosen_operations(options: argparse.Namespace) -> Iterator[None]:
    """Makes operations in the block run on the backend and with the precision that the options name, if they do."""
    backend = backends.use_backend(options.backend) if options.backend else contextlib.nullcontext()
    with backend, precision.at(options.precision):
        yield


def say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(one_line(text), file=sys.stderr)
