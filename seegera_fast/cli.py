"""The command ``seegera-fast``: train, embed, info."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from . import __version__, backends, datasets, tasks
from .atomic import written_aside
from .files import read_graph
from .graph import Graph
from .hints import nearest
from .model import SeeGera
from .plots import save_picture
from .report import (
    EMBEDDING,
    MODEL,
    PICTURE,
    RESULTS,
    SCORE_NAMES,
    OutputFolder,
    machine,
    readable_bytes,
    readable_seconds,
    table,
    versions,
    write_json,
)
from .tasks import presets
from .tasks.common import TaskResult, normalized
from .training import TrainingFailure

PROGRAM = "seegera-fast"
BAD_INPUT, FAILED_TRAINING, INTERRUPTED, BROKEN_PIPE = 2, 3, 130, 141

# Name on the command line -> name of the function, title, scores, shares of the splits "paper" and "released".
TASKS = {
    "link": (
        "link_prediction",
        "link prediction",
        ("auc", "ap"),
        {"paper": {"valid": 0.2, "test": 0.1}, "released": {"valid": 0.05, "test": 0.1}},
    ),
    "attribute": (
        "attribute_inference",
        "attribute inference",
        ("mse",),
        {"paper": {"valid": 0.1, "test": 0.2}, "released": {"valid": 0.05, "test": 0.1}},
    ),
    "node": ("node_classification", "node classification", ("accuracy",), {"paper": {}, "released": {}}),
}
# Fields of a run that have an option of their own.
OPTION_OF_FIELD = {
    **{name: f"--{name}" for name in ("preset", "variant", "seed", "epochs")},
    **dict.fromkeys(("train", "valid", "test", "public"), "--split"),
    "progress": "--quiet",
}

TRAIN_EXAMPLES = """\
examples:
  seegera-fast train --data digits
      link prediction on 1,797 handwritten digits; the results go to runs/digits-link
  seegera-fast train --data cora --root ~/graphs --task node --variant v2 --seed 3
      a data set from a folder of yours; without --root it is looked for in $SEEGERA_DATA, then in
      the cache folder, and downloaded if it isn't there
  seegera-fast train --edges web.csv --features pages.npz --labels topics.txt --epochs 200
      your own graph. web.csv has a line "3,17" for each edge (nodes count from 0)
  seegera-fast train --data cora --set embedding_dim=64 --set negatives=edges --set patience=none
      --set reaches every field of SeeGeraConfig, TrainingConfig and the task

files in the folder of --out, replaced when all is done, never left half written:
  results.json       scores, configuration, data set, versions, and the history of every epoch
  model.safetensors  the weights of the best epoch by validation
  embedding.npy      mean embeddings of all nodes, float32 [nodes, embedding_dim], given the whole graph
  picture.png        loss and validation scores over epochs; the embedding in two dimensions

exit status:
  0 done, 2 bad input, 3 the loss became NaN or infinite (nothing is written), 130 interrupted (Ctrl-C: what was
  trained is scored and written, and marked "interrupted" in results.json)
"""
EMBED_EXAMPLES = """\
examples:
  seegera-fast embed runs/cora-link/model.safetensors --data cora --out cora.npy
      the same numbers as embedding.npy beside the model
  seegera-fast embed model.safetensors --edges new.txt --features pages.npz --out new.csv
      the graph may have other edges or features than in training, but as many nodes and features
"""
DESCRIPTION = """\
Trains SeeGera, a semi-implicit variational auto-encoder, on a graph with node features, and embeds its nodes."""


class _Parser(argparse.ArgumentParser):
    """Errors are one line; options may not be abbreviated."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{PROGRAM}: error: {message}\n")

    def check_options(self, given: Iterable[str]) -> None:
        """Refuses an unknown option, with the nearest ones, before what is required is looked for."""
        known = [option for action in self._actions for option in action.option_strings]
        for text in given:
            if text == "--":
                return
            option = text.partition("=")[0]
            if option.startswith("--") and option not in known:
                self.error(f"unknown option {option}; {nearest(option, known)}; {self.prog} --help lists them")


def _one_of(*choices: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in choices:
            raise argparse.ArgumentTypeError(f"got {text!r}; {nearest(text.lower(), choices)}")
        return text.lower()

    return check


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"got {text!r}, want an integer from 0 to 2**63 - 1")
    return int(text)


def _device(text: str) -> torch.device:
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = text.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise argparse.ArgumentTypeError(f"got {text!r}, want auto, cpu, cuda or cuda:NUMBER")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise argparse.ArgumentTypeError(f"got {text!r}, and torch sees {torch.cuda.device_count()} NVIDIA GPUs")
    return torch.device(text)


def _field(text: str) -> tuple[str, Any]:
    """``name=value``: true, false and none, an int or a float where the value reads as one, else text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"got {text!r}, want FIELD=VALUE")
    if name in OPTION_OF_FIELD:
        raise argparse.ArgumentTypeError(f"{name} has an option of its own: {OPTION_OF_FIELD[name]}")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, value


def _split(text: str) -> str | tuple[float, float]:
    if text in ("paper", "released"):
        return text
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, want paper, released or two shares such as 0.1,0.2; {nearest(text, ('paper', 'released'))}"
        ) from None
    return first, second


def _parser() -> tuple[_Parser, dict[str, _Parser]]:
    parser = _Parser(prog=PROGRAM, description=DESCRIPTION, epilog="seegera-fast COMMAND --help explains a command.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    train = commands.add_parser(
        "train",
        help="train on a graph, score, and write model, embedding, results and picture",
        description="Splits a graph, trains SeeGera on one part and scores it on the rest.",
        epilog=TRAIN_EXAMPLES,
    )
    _add_graph_options(train)
    run = train.add_argument_group("training")
    run.add_argument(
        "--task",
        type=_one_of(*TASKS),
        default="link",
        metavar="TASK",
        help="link: tell hidden links from pairs without one (AUC, AP); attribute: predict hidden features (MSE); "
        "node: classify nodes by a logistic regression on the embeddings (accuracy). Default: link",
    )
    run.add_argument(
        "--preset",
        metavar="NAME",
        help="the paper's hyper-parameters for a data set, or default. Default: those of --data, where there are any",
    )
    run.add_argument(
        "--variant",
        type=_one_of(*presets.VARIANTS),
        default="v3",
        metavar="v1|v2|v3",
        help="v1: independent feature embeddings; v2: correlated ones; v3: v2 with masking. Default: v3",
    )
    run.add_argument(
        "--split",
        type=_split,
        default="paper",
        metavar="SPLIT",
        help="paper or released (link: 70/20/10 or 85/5/10; attribute: 70/10/20 or 85/5/10; node: the public split, or "
        "else 10/10/80), or two shares such as 0.1,0.2: of validation and test, for node of training and validation. "
        "Default: paper",
    )
    run.add_argument("--epochs", type=int, metavar="N", help="at most so many epochs. Default: the preset's")
    run.add_argument("--seed", type=_seed, default=0, metavar="N", help="of split, weights and draws. Default: 0")
    run.add_argument(
        "--set",
        type=_field,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="fields",
        help="any other field of the configuration, such as learning_rate=1e-3; may be repeated",
    )
    _add_common_options(train)
    train.add_argument("--out", type=Path, metavar="DIR", help="folder for the files. Default: runs/NAME-TASK")
    train.set_defaults(run=_train)

    embed = commands.add_parser(
        "embed",
        help="embeddings of a graph's nodes from a trained model",
        description="Writes the mean embeddings of a graph's nodes, one row per node.",
        epilog=EMBED_EXAMPLES,
    )
    embed.add_argument("model", type=Path, metavar="MODEL", help="model.safetensors of a run")
    _add_graph_options(embed)
    embed.add_argument(
        "--normalize-features",
        action="store_true",
        help="divide each row of the features by its sum; done anyway where results.json beside the model says that "
        "training did so",
    )
    embed.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the noise. Default: 0")
    _add_common_options(embed)
    embed.add_argument(
        "--out", type=Path, default=Path("embedding.npy"), metavar="FILE", help=".npy or .csv. Default: embedding.npy"
    )
    embed.set_defaults(run=_embed)

    info = commands.add_parser(
        "info",
        help="versions, devices and backends: what is available, and why the rest is not",
        description="Says what this installation can do.",
    )
    info.add_argument("--json", action="store_true", help="machine-readable")
    info.set_defaults(run=_info, debug=False)
    return parser, {"train": train, "embed": embed, "info": info}


def _add_graph_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("graph", "a data set by name, or files of yours")
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data", type=_one_of(*datasets.names()), metavar="NAME", help=f"one of {', '.join(datasets.names())}"
    )
    source.add_argument(
        "--edges",
        type=Path,
        metavar="FILE",
        help="text with two node numbers a line, counted from 0, and a weight if wanted, split at commas or blanks, "
        "comments after #; or .npz, a square matrix from scipy.sparse.save_npz",
    )
    group.add_argument("--root", type=Path, metavar="DIR", help="with --data: folder of the data sets")
    group.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="with --edges: a row per node, .npz (scipy.sparse.save_npz), .npy, or text with a line per node. Default: "
        "the identity",
    )
    group.add_argument(
        "--labels", type=Path, metavar="FILE", help="with --edges: an integer per node, .npy, or text with one a line"
    )
    group.add_argument("--weighted", action="store_true", help="with --edges: keep the edge weights in propagation")


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", type=_device, default="auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N. Default: auto"
    )
    parser.add_argument(
        "--backend",
        type=_one_of(*backends.BACKENDS),
        metavar="NAME",
        help=f"run every operation on one of {', '.join(backends.BACKENDS)}, or fail. Default: the best there is",
    )
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but warnings and errors")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser, commands = _parser()
    if argv and not argv[0].startswith("-") and argv[0] not in commands:
        parser.error(f"unknown command {argv[0]!r}; {nearest(argv[0], commands)}")
    if argv and argv[0] in commands:
        commands[argv[0]].check_options(argv[1:])
    else:
        parser.check_options(argv)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit status; bad options raise SystemExit."""
    options = _parse(sys.argv[1:] if argv is None else list(argv))
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return options.run(options)
        except KeyboardInterrupt:
            print(f"{PROGRAM}: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            # The reader of the output has seen enough; what Python still holds goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except (OSError, TypeError, ValueError, RuntimeError, MemoryError) as error:
            if options.debug:
                traceback.print_exc()
            print(f"{PROGRAM}: error: {_one_line(error)}", file=sys.stderr)
            return FAILED_TRAINING if isinstance(error, TrainingFailure) else BAD_INPUT


def _show_warning(message: Warning | str, *place: Any, **options: Any) -> None:
    print(f"{PROGRAM}: warning: {_one_line(message)}", file=sys.stderr)


def _one_line(message: Any) -> str:
    if isinstance(message, OSError) and message.filename is not None:
        message = f"{message.filename}: {message.strerror}"
    return " ".join(str(message).split()) or type(message).__name__


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr)


def _check_graph_options(options: argparse.Namespace) -> None:
    source, other = ("--data", "--edges") if options.data else ("--edges", "--data")
    names = ("features", "labels", "weighted") if options.data else ("root",)
    for name in names:
        if getattr(options, name):
            raise ValueError(f"--{name} goes with {other}, got {source}")


def _read_graph(options: argparse.Namespace) -> Graph:
    if options.data:
        graph = datasets.load(options.data, options.root)
    else:
        graph = read_graph(options.edges, options.features, options.labels, weighted=options.weighted)
    return graph.to(options.device)


@contextlib.contextmanager
def _backend(options: argparse.Namespace) -> Iterator[None]:
    with backends.use_backend(options.backend) if options.backend else contextlib.nullcontext():
        yield


def _train(options: argparse.Namespace) -> int:
    _check_graph_options(options)
    function, title, names, splits = TASKS[options.task]
    # A file that happens to be called like a data set has nothing to do with it.
    preset = options.preset if options.preset or options.data else presets.DEFAULT
    if preset is not None:
        presets.load(function, preset, options.variant)
    name = options.data or options.edges.stem
    fields = _run_fields(options, splits)
    out = options.out or Path("runs", f"{name}-{options.task}")
    with OutputFolder(out) as folder, _backend(options):
        graph = _read_graph(options)
        _say(options, f"{name}: {_sizes(graph)}; {title}, {options.variant}, on {options.device}")
        result = getattr(tasks, function)(
            graph, preset, options.variant, options.seed, progress=not options.quiet, **fields
        )
        whole = normalized(graph, result.fields["normalize_features"])
        embedding = result.model.embed(whole).cpu().numpy()
        content = _results(options, graph, name, result, names)
        result.model.save(folder.aside(MODEL))
        np.save(folder.aside(EMBEDDING), embedding)
        write_json(folder.aside(RESULTS), content)
        # The picture takes a while; what was trained shall not wait for it.
        folder.discard(PICTURE)
        folder.publish(MODEL, EMBEDDING, RESULTS)
        _say(options, "drawing the picture")
        heading = f"SeeGera {options.variant} on {name}: {title}, seed {options.seed}"
        save_picture(
            folder.aside(PICTURE),
            title=heading,
            scores=_score_line(content["scores"], result),
            history=result.history,
            best_epoch=result.best_epoch,
            embedding=embedding,
            labels=None if graph.labels is None else graph.labels.cpu().numpy(),
        )
        folder.publish(PICTURE)
    print(heading)
    print(_train_table(content["scores"], result))
    print(f"files in {out}: {', '.join((RESULTS, MODEL, EMBEDDING, PICTURE))}")
    return INTERRUPTED if result.interrupted else 0


def _run_fields(options: argparse.Namespace, splits: dict[str, dict[str, float]]) -> dict[str, Any]:
    fields = dict(options.fields)
    if options.epochs is not None:
        fields["epochs"] = options.epochs
    if isinstance(options.split, str):
        fields.update(splits[options.split])
    elif options.task == "node":
        fields.update(train=options.split[0], valid=options.split[1], public=False)
    else:
        fields.update(valid=options.split[0], test=options.split[1])
    return fields


def _results(
    options: argparse.Namespace, graph: Graph, name: str, result: TaskResult, names: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "task": TASKS[options.task][0],
        "variant": options.variant,
        "preset": result.preset,
        "scores": {
            "test": {key: getattr(result, key) for key in names},
            "validation": {key: getattr(result, f"valid_{key}") for key in names},
        },
        "interrupted": result.interrupted,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "seconds": result.seconds,
        "seconds_per_epoch": result.seconds / result.epochs,
        "peak_memory_bytes": result.peak_memory,
        "data": {
            "name": name,
            "files": {
                key: str(getattr(options, key))
                for key in ("edges", "features", "labels")
                if not options.data and getattr(options, key)
            },
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "nonzero_features": graph.features.nnz,
            "classes": None if graph.labels is None else int(graph.labels[graph.labels >= 0].unique().numel()),
        },
        "configuration": result.fields,
        "machine": {**machine(options.device), "backend": options.backend or "auto"},
        "versions": versions(),
        "history": result.history,
    }


def _sizes(graph: Graph) -> str:
    return f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features"


def _score_line(scores: dict[str, dict[str, float | None]], result: TaskResult) -> str:
    parts = [
        f"{part} " + ", ".join(f"{SCORE_NAMES[key]} {value:.4f}" for key, value in values.items())
        for part, values in scores.items()
        if None not in values.values()
    ]
    if result.interrupted:
        parts.append(f"interrupted after epoch {result.epochs}")
    return "; ".join(parts)


def _train_table(scores: dict[str, dict[str, float | None]], result: TaskResult) -> str:
    ended = ", interrupted" if result.interrupted else ""
    facts = {
        "epochs": f"{result.epochs} (best: {result.best_epoch}{ended})",
        "time": readable_seconds(result.seconds),
        "time per epoch": readable_seconds(result.seconds / result.epochs),
        "peak memory": readable_bytes(result.peak_memory),
    }
    parts = list(scores)
    rows = [["", *parts]]
    for key in scores[parts[0]]:
        values = [scores[part][key] for part in parts]
        rows.append([SCORE_NAMES[key], *("none held out" if value is None else f"{value:.4f}" for value in values)])
    width = max(map(len, [*facts, *(row[0] for row in rows)]))
    rows = [[row[0].ljust(width), *row[1:]] for row in rows]
    return "\n".join([table(rows), *(f"{key.ljust(width)}  {value}" for key, value in facts.items())])


def _embed(options: argparse.Namespace) -> int:
    _check_graph_options(options)
    out = options.out
    if out.suffix not in (".npy", ".csv"):
        raise ValueError(f"--out: got {str(out)!r}, want a name that ends in .npy or .csv")
    with written_aside(out) as file, _backend(options):
        normalize = options.normalize_features or _trained_on_normalized(options.model)
        graph = normalized(_read_graph(options), normalize)
        model = SeeGera.load(options.model, graph)
        _say(options, f"{_sizes(graph)}{'; features normalised' if normalize else ''}; on {options.device}")
        embedding = model.embed(graph, seed=options.seed).cpu().numpy()
        if out.suffix == ".npy":
            np.save(file, embedding)
        else:
            header = ",".join(["node", *(f"z{k}" for k in range(embedding.shape[1]))])
            rows = np.column_stack([np.arange(embedding.shape[0]), embedding])
            np.savetxt(
                file, rows, fmt=["%d", *["%.9g"] * embedding.shape[1]], delimiter=",", header=header, comments=""
            )
    print(f"{out}: {embedding.shape[0]:,} x {embedding.shape[1]:,}")
    return 0


def _trained_on_normalized(model: Path) -> bool:
    """Whether the results beside a model say that its features were normalised."""
    path = model.with_name(RESULTS)
    if not path.is_file():
        return False
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["configuration"]["normalize_features"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: is not the results file of a run ({error})") from error


def _info(options: argparse.Namespace) -> int:
    content = {"versions": versions(), "machine": machine(), "backends": backends.info()}
    if options.json:
        print(json.dumps(content, indent=1))
        return 0
    facts = [[key, value] for key, value in content["versions"].items()]
    place = content["machine"]
    facts += [
        ["system", place["system"]],
        ["device", place["device"] + (f" ({place['gpu']})" if place["gpu"] else " (torch sees no NVIDIA GPU)")],
        ["CUDA of torch", place["cuda"] or "none: a CPU build"],
        ["CPU instruction set", place["instruction_set"] or "none: the cpu library is not there"],
        ["threads", str(place["threads"])],
    ]
    width = max(len(key) for key, _ in facts)
    print("\n".join(f"{key.ljust(width)}  {value}" for key, value in facts))
    print()
    for name, backend in content["backends"].items():
        text = "available" if backend["available"] else f"not available: {backend['reason']}"
        print(f"{name.ljust(width)}  {text}")
        kernels = f"kernels: {', '.join(backend['operations']) or 'none'}"
        print(textwrap.fill(kernels, 100, initial_indent=" " * (width + 2), subsequent_indent=" " * (width + 4)))
    return 0
