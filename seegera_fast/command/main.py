"""The command ``seegera-fast``: train, embed, info; reproduce and sweep come from ``experiments.py``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import backends, datasets, tasks
from ..checkpoint import Checkpoint
from ..environment import machine, versions
from ..experiments.protocols import SCORES, TASKS
from ..graph import Graph
from ..model import SeeGera
from ..support.atomic import written_aside
from ..support.hints import nearest
from ..support.plots import save_picture
from ..support.report import (
    CHECKPOINT,
    EMBEDDING,
    MODEL,
    PICTURE,
    RESULTS,
    OutputFolder,
    readable_bytes,
    readable_seconds,
    table,
    write_json,
)
from ..tasks import presets
from ..tasks.common import TaskResult, normalized
from ..training import TrainingFailure
from ..version import __version__
from .experiments import add_experiments
from .files import read_graph
from .options import (
    BAD_INPUT,
    BROKEN_PIPE,
    FAILED_TRAINING,
    INTERRUPTED,
    PROGRAM,
    Parser,
    add_common_options,
    add_graph_options,
    of_each_task,
    one_of,
    read_count,
    read_field,
    read_seed,
    read_split,
)

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
and, while the run has not ended well:
  checkpoint.safetensors  what --resume goes on from, to the same bits as a run that was not stopped

exit status:
  0 done, 2 bad input, 3 the loss became NaN or infinite (nothing is written), 130 interrupted: Ctrl-C or SIGTERM end
  the run after the epoch, what was trained is scored and written, and marked "interrupted" in results.json; Ctrl-C
  once more ends the epoch too
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


def _parser() -> tuple[Parser, dict[str, Parser]]:
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog="seegera-fast COMMAND --help explains a command.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    train = commands.add_parser(
        "train",
        help="train on a graph, score, and write model, embedding, results and picture",
        description="Splits a graph, trains SeeGera on one part and scores it on the rest.",
        epilog=TRAIN_EXAMPLES,
    )
    add_graph_options(train)
    run = train.add_argument_group("training")
    purposes = of_each_task(lambda task: f"{task.purpose} ({', '.join(score.title for score in task.scores)})")
    splits = of_each_task(lambda task: " or ".join(map(task.split_in_words, task.splits)))
    shares = of_each_task(lambda task: " and ".join(task.shares))
    run.add_argument(
        "--task",
        type=one_of(*TASKS),
        default="link",
        metavar="TASK",
        help=f"{purposes}. Default: link",
    )
    run.add_argument(
        "--preset",
        metavar="NAME",
        help="the paper's hyper-parameters for a data set, or default. Default: those of --data, where there are any",
    )
    run.add_argument(
        "--variant",
        type=one_of(*presets.VARIANTS),
        default="v3",
        metavar="v1|v2|v3",
        help="v1: independent feature embeddings; v2: correlated ones; v3: v2 with masking. Default: v3",
    )
    run.add_argument(
        "--split",
        type=read_split,
        default="paper",
        metavar="SPLIT",
        help=f"paper or released ({splits}), or two shares such as 0.1,0.2 ({shares}). Default: paper",
    )
    run.add_argument("--epochs", type=int, metavar="N", help="at most so many epochs. Default: the preset's")
    run.add_argument(
        "--checkpoint-every",
        type=read_count,
        default=50,
        metavar="N",
        help="keep the state of the run every so many epochs, and when it is interrupted. Default: 50",
    )
    run.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out, where there is one")
    run.add_argument("--seed", type=read_seed, default=0, metavar="N", help="of split, weights and draws. Default: 0")
    run.add_argument(
        "--set",
        type=read_field,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="fields",
        help="any other field of the configuration, such as learning_rate=1e-3; may be repeated",
    )
    add_common_options(train)
    train.add_argument("--out", type=Path, metavar="DIR", help="folder for the files. Default: runs/NAME-TASK")
    train.set_defaults(run=_train)

    embed = commands.add_parser(
        "embed",
        help="embeddings of a graph's nodes from a trained model",
        description="Writes the mean embeddings of a graph's nodes, one row per node.",
        epilog=EMBED_EXAMPLES,
    )
    embed.add_argument("model", type=Path, metavar="MODEL", help="model.safetensors of a run")
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
        "--out", type=Path, default=Path("embedding.npy"), metavar="FILE", help=".npy or .csv. Default: embedding.npy"
    )
    embed.set_defaults(run=_embed)

    experiments = add_experiments(commands)

    info = commands.add_parser(
        "info",
        help="versions, devices and backends: what is available, and why the rest is not",
        description="Says what this installation can do.",
    )
    info.add_argument("--json", action="store_true", help="machine-readable")
    info.set_defaults(run=_info, debug=False)
    return parser, {"train": train, "embed": embed, **experiments, "info": info}


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
            status = options.run(options)
            # What is still held would meet a closed pipe when Python ends, where nobody catches that.
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            print(f"{PROGRAM}: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            # The reader of the output has seen enough; what Python still holds goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except (OSError, TypeError, ValueError, OverflowError, RuntimeError, MemoryError) as error:
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


def _read_graph(options: argparse.Namespace, weighted: bool) -> Graph:
    if options.data:
        graph = datasets.load(options.data, options.root, progress=not options.quiet)
    else:
        graph = read_graph(options.edges, options.features, options.labels, weighted=weighted)
    return graph.to(options.device)


@contextlib.contextmanager
def _backend(options: argparse.Namespace) -> Iterator[None]:
    with backends.use_backend(options.backend) if options.backend else contextlib.nullcontext():
        yield


def _train(options: argparse.Namespace) -> int:
    _check_graph_options(options)
    task = TASKS[options.task]
    # A file that happens to be called like a data set has nothing to do with it.
    preset = options.preset if options.preset or options.data else presets.DEFAULT
    if preset is not None:
        presets.load(task.name, preset, options.variant)
    name = options.data or options.edges.stem
    fields = _run_fields(options)
    out = options.out or Path("runs", f"{name}-{options.task}")
    with OutputFolder(out) as folder, _backend(options):
        graph = _read_graph(options, options.weighted)
        _say(options, f"{name}: {_sizes(graph)}; {task.title}, {options.variant}, on {options.device}")
        checkpoint = Checkpoint(out / CHECKPOINT, options.checkpoint_every, options.resume)
        _say_what_becomes_of(checkpoint, options)
        result = getattr(tasks, task.name)(
            graph,
            preset,
            options.variant,
            options.seed,
            progress=not options.quiet,
            checkpoint=checkpoint,
            **fields,
        )
        whole = normalized(graph, result.fields["normalize_features"])
        embedding = result.model.embed(whole).cpu().numpy()
        content = _results(options, graph, name, result)
        result.model.save(folder.aside(MODEL))
        np.save(folder.aside(EMBEDDING), embedding)
        write_json(folder.aside(RESULTS), content)
        # The picture takes a while; what was trained shall not wait for it.
        folder.discard(PICTURE)
        folder.publish(MODEL, EMBEDDING, RESULTS)
        if not result.interrupted:
            folder.discard(CHECKPOINT)
        _say(options, "drawing the picture")
        heading = f"SeeGera {options.variant} on {name}: {task.title}, seed {options.seed}"
        save_picture(
            folder.aside(PICTURE),
            title=heading,
            scores=_score_line(content["scores"], result),
            history=result.history,
            titles={f"valid_{score.name}": score.title for score in task.scores},
            best_epoch=result.best_epoch,
            embedding=embedding,
            labels=None if graph.labels is None else graph.labels.cpu().numpy(),
        )
        folder.publish(PICTURE)
    print(heading)
    print(_train_table(content["scores"], result))
    print(f"files in {out}: {', '.join((RESULTS, MODEL, EMBEDDING, PICTURE))}")
    if result.interrupted and Path(checkpoint.path).exists():
        _say(options, "the same command with --resume goes on")
    return INTERRUPTED if result.interrupted else 0


def _say_what_becomes_of(checkpoint: Checkpoint, options: argparse.Namespace) -> None:
    there = Path(checkpoint.path).exists()
    if options.resume:
        _say(options, f"going on from {checkpoint.path}" if there else "no checkpoint: the run starts at its beginning")
    elif there:
        _say(options, f"{checkpoint.path} is of an earlier run and will be replaced; --resume goes on from it")


def _run_fields(options: argparse.Namespace) -> dict[str, Any]:
    fields = dict(options.fields)
    if options.epochs is not None:
        fields["epochs"] = options.epochs
    return {**fields, **TASKS[options.task].arguments(options.split)}


def _results(options: argparse.Namespace, graph: Graph, name: str, result: TaskResult) -> dict[str, Any]:
    task = TASKS[options.task]
    return {
        "task": task.name,
        "variant": options.variant,
        "preset": result.preset,
        "scores": {
            "test": {score.name: getattr(result, score.name) for score in task.scores},
            "validation": {score.name: getattr(result, f"valid_{score.name}") for score in task.scores},
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
            "weighted": options.weighted,
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
        f"{part} " + ", ".join(f"{SCORES[key].title} {value:.4f}" for key, value in values.items())
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
        rows.append([SCORES[key].title, *("none held out" if value is None else f"{value:.4f}" for value in values)])
    width = max(map(len, [*facts, *(row[0] for row in rows)]))
    rows = [[row[0].ljust(width), *row[1:]] for row in rows]
    return "\n".join([table(rows), *(f"{key.ljust(width)}  {value}" for key, value in facts.items())])


def _embed(options: argparse.Namespace) -> int:
    _check_graph_options(options)
    out = options.out
    if out.suffix not in (".npy", ".csv"):
        raise ValueError(f"--out: got {str(out)!r}, want a name that ends in .npy or .csv")
    with written_aside(out) as file, _backend(options):
        trained_on = _trained_on(options.model)
        normalize = options.normalize_features or trained_on["normalize_features"]
        weighted = options.weighted or (not options.data and trained_on["weighted"])
        graph = normalized(_read_graph(options, weighted), normalize)
        model = SeeGera.load(options.model, graph)
        parts = [_sizes(graph), *["edges weighted"] * weighted, *["features normalised"] * normalize]
        _say(options, "; ".join([*parts, f"on {options.device}"]))
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


def _trained_on(model: Path) -> dict[str, bool]:
    """What the results beside a model say about its graph: whether features were normalised and edges weighted."""
    path, found = model.with_name(RESULTS), {"normalize_features": False, "weighted": False}
    if path.is_file():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found["normalize_features"] = bool(content["configuration"]["normalize_features"])
            # Earlier versions did not note it.
            found["weighted"] = bool(content["data"].get("weighted", False))
        except (ValueError, KeyError, TypeError, AttributeError):
            warnings.warn(
                f"{path}: is not the results file of train, and says nothing about {model.name}; where the training "
                "had them, --normalize-features and --weighted are needed here too",
                stacklevel=2,
            )
    return found


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
