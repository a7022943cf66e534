"""``seegera-fast train``: trains a model on a graph and writes its results."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import tasks
from ..batches import Batches
from ..checkpoint import Checkpoint
from ..distributed import Processes
from ..environment import machine, versions
from ..experiments.protocols import EVERY_TASK, SCORES, TASKS
from ..graph import Graph
from ..support import arguments
from ..support.hints import nearest, shown_name
from ..support.report import readable_bytes, readable_number, readable_seconds, table
from ..support.signals import requests_once
from ..tables import name_of_table
from ..tasks import presets
from ..tasks.common import embedded, known_fields, normalized
from ..tasks.task import Task, TaskResult
from .options import (
    INTERRUPTED,
    OPTION_OF_FIELD,
    PROGRAM,
    UNWRITTEN,
    Parser,
    add_batch_options,
    add_common_options,
    add_graph_options,
    check_graph_options,
    chosen_batches,
    chosen_operations,
    name_of_folder,
    of_each,
    one_of,
    read_chosen_graph,
    read_count,
    read_field,
    read_path,
    read_seed,
    read_split,
    require_apart,
    say,
    sizes,
)
from .output import CHECKPOINT, FILES, LINKS, OutputFolder
from .processes import processes_of
from .suggestions import printed
from .table_options import given_table_options
from .written import print_files, write_links, write_model, write_pages

EXAMPLES = """\
examples:
  seegera-fast train --data digits
      link prediction on 1,797 handwritten digits; the results go to runs/digits-link
  seegera-fast train --data cora --root ~/graphs --task node --variant v2 --seed 3
      a data set from a folder of yours; without --root it is looked for in $SEEGERA_DATA, then in
      the cache folder, and downloaded if it isn't there
  seegera-fast train --edges web.csv --features pages.npz --labels topics.txt --epochs 200
      your own graph. web.csv has a line "3,17" for each edge (nodes count from 0)
  seegera-fast train --data physics --parts 256 --parts-per-batch 16
      on 16 of 256 parts of the graph at a time, with less memory
  torchrun --nproc-per-node 4 -m seegera_fast train --data physics --parts 256 --parts-per-batch 16
      in four processes, each of which trains on batches of its own
  seegera-fast train --data cora --set embedding_dim=64 --set negatives=edges --set patience=none
      --set reaches every field of SeeGeraConfig, TrainingConfig and the task

files in the folder of --out, never left half written; the first four replace earlier ones when the training has ended,
the others as they are made. A folder with files of these names that are not those of an earlier run is refused:
  results.json       scores, configuration, data set, versions, and the history of every epoch
  model.safetensors  the weights of the best epoch by validation
  embedding.npy      mean embeddings of all nodes, float32 [nodes, embedding_dim], given the whole graph
  embedding.csv      the same with the names of the nodes, if they have names
  links.csv          the 100 most probable links that are not there yet, and how sure the model is of them; for graphs
                     of up to 50,000 nodes (seegera-fast links finds more, and for each node)
  picture.png        loss and validation scores over epochs; the embedding in two dimensions
  report.html        all of this on one page, to look at in a browser
  checkpoint.safetensors  what --resume goes on from, to the same bits as a run that was not stopped;
                     after a run has ended, --resume with more --epochs goes on, too

exit status:
  0 done, 2 bad input, 3 the loss became NaN or infinite (nothing is written but the checkpoint of an
  earlier epoch), 5 another run is using --out, 6 the files could not be written to --out: they are in
  another folder, which is named; or standard output could not be written, 7 another process of the run
  has ended or does not answer, 130 interrupted: Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 end the run
  after the epoch, what was trained is scored and written, and marked "interrupted" in results.json;
  Ctrl-C once more ends the epoch too, and after the training what is left to do
"""


def add_train(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    train = commands.add_parser(
        "train",
        help="train on a graph, score, and write model, embedding, results and picture",
        description="Splits a graph, trains SeeGera on one part and scores it on the rest.",
        epilog=EXAMPLES,
    )
    add_graph_options(train)
    run = train.add_argument_group("training")
    purposes = of_each(EVERY_TASK, _purpose)
    splits = of_each(TASKS, lambda task: " or ".join(map(task.split_in_words, task.splits)))
    shares = of_each(TASKS, lambda task: " and ".join(task.shares))
    run.add_argument(
        "--task",
        type=one_of(*EVERY_TASK),
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
        metavar="SPLIT",
        help=f"paper or released ({splits}), or two shares such as 0.1,0.2 ({shares}). Default: paper",
    )
    run.add_argument(
        "--bipartite",
        action="store_const",
        const="auto",
        dest="sides",
        help="with --task link: the graph has two sides, and pairs without a link are drawn across them",
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
    add_batch_options(train)
    add_common_options(train)
    train.add_argument("--out", type=read_path, metavar="DIR", help="folder for the files. Default: runs/NAME-TASK")
    train.set_defaults(run=_train)
    return train


def _purpose(task: Task) -> str:
    scores = ", ".join(score.title for score in task.scores)
    return f"{task.purpose} ({scores})" if scores else task.purpose


def _train(options: argparse.Namespace) -> int:
    with requests_once(), ExitStack() as stack, chosen_operations(options), processes_of(options) as processes:
        with processes.together():
            plan = _plan(options)
            # One process writes. A data set is downloaded by that one, before the others read it.
            folder = stack.enter_context(OutputFolder(plan.out)) if processes.first else None
            if folder is not None:
                folder.require_ours(resume=options.resume)
            graph = read_chosen_graph(options, options.weighted) if processes.first or not options.data else None
        with processes.together():
            graph = read_chosen_graph(options, options.weighted) if graph is None else graph
        result, embedding = _trained(options, plan, graph)
        # The others wait, since torchrun ends all processes once the first of them has ended with a failure.
        return processes.broadcast(lambda: _written(options, plan, folder, graph, result, embedding))


class Plan(NamedTuple):
    """What a run is to do, by its options, before anything is read."""

    name: str
    out: Path
    checkpoint: Checkpoint
    batches: Batches | None
    fields: dict[str, Any]


def _plan(options: argparse.Namespace) -> Plan:
    check_graph_options(options)
    if options.preset is not None:
        presets.check("preset", options.preset, presets.names(EVERY_TASK[options.task].name))
    name = options.data or (name_of_table(options.edges) if options.edges else name_of_folder(options.graph))
    _check_fields(options)
    fields, batches = _run_fields(options), chosen_batches(options)
    out = options.out or Path("runs", f"{name}-{options.task}")
    require_apart(options, [out / entry for entry in FILES])
    return Plan(name, out, Checkpoint(out / CHECKPOINT, options.checkpoint_every, options.resume), batches, fields)


def _trained(options: argparse.Namespace, plan: Plan, graph: Graph) -> tuple[TaskResult, np.ndarray]:
    """Trains, in all processes. Returns the result and the embedding of the whole graph."""
    task = EVERY_TASK[options.task]
    shared = "" if Processes.current().size == 1 else f", in {Processes.current().size} processes"
    say(
        options,
        f"{shown_name(plan.name)}: {sizes(graph)}; {task.title}, {options.variant}, on {options.device}{shared}",
    )
    _say_what_becomes_of(plan.checkpoint, options)
    result = getattr(tasks, task.name)(
        graph,
        options.preset,
        options.variant,
        options.seed,
        progress=not options.quiet,
        checkpoint=plan.checkpoint,
        batches=plan.batches,
        **plan.fields,
    )
    whole = normalized(graph, result.fields["normalize_features"])
    return result, embedded(result.model, whole, plan.batches).cpu().numpy()


def _written(
    options: argparse.Namespace,
    plan: Plan,
    folder: OutputFolder,
    graph: Graph,
    result: TaskResult,
    embedding: np.ndarray,
) -> int:
    """Writes and prints what was found. Returns the exit status."""
    content = _results(options, graph, plan.name, result)
    write_model(folder, graph, result, embedding, content)
    title = EVERY_TASK[options.task].title
    heading = f"SeeGera {options.variant} on {shown_name(plan.name)}: {title}, seed {options.seed}"
    links, ended = None, result.interrupted
    try:
        links = write_links(folder, options, normalized(graph, result.fields["normalize_features"]), result)
        write_pages(folder, options, heading, graph, result, embedding, links, content)
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted after the training, before all files were made", file=sys.stderr)
        ended = True
    print(heading)
    print(_train_table(content["scores"], result))
    if links is not None:
        plain = "; their probabilities are not calibrated" if result.model.calibration is None else ""
        print(f"most probable new links, of {len(links['node'])} in {LINKS}{plain}:\n{printed(links)}")
    print_files(folder)
    if result.interrupted and Path(plan.checkpoint.path).exists():
        say(options, "the same command with --resume goes on")
    if folder.refused:
        return UNWRITTEN
    return INTERRUPTED if ended else 0


def _say_what_becomes_of(checkpoint: Checkpoint, options: argparse.Namespace) -> None:
    there = Path(checkpoint.path).exists()
    if options.resume:
        say(options, f"going on from {checkpoint.path}" if there else "no checkpoint: the run starts at its beginning")
    elif there:
        say(options, f"{checkpoint.path} is of an earlier run and will be replaced; --resume goes on from it")


def _check_fields(options: argparse.Namespace) -> None:
    """Refuses a field that no configuration has, with the names that --set takes."""
    known = [name for name in known_fields(EVERY_TASK[options.task]) if name not in OPTION_OF_FIELD]
    for name, _ in options.fields:
        if name not in known:
            raise ValueError(f"--set: got the field {arguments.shown(name)}; {nearest(name, known)}")


def _run_fields(options: argparse.Namespace) -> dict[str, Any]:
    fields = dict(options.fields)
    if options.epochs is not None:
        fields["epochs"] = options.epochs
    if options.sides is not None:
        if options.task != "link":
            raise ValueError(f"--bipartite goes with --task link, got --task {options.task}")
        fields["sides"] = options.sides
    task = EVERY_TASK[options.task]
    if options.split is not None and not task.shares:
        raise ValueError(f"--split: the task {task.key!r} holds nothing out, want no --split")
    return {**fields, **task.arguments("paper" if options.split is None else options.split)}


def _results(options: argparse.Namespace, graph: Graph, name: str, result: TaskResult) -> dict[str, Any]:
    task = EVERY_TASK[options.task]
    return {
        "task": task.name,
        "variant": options.variant,
        "preset": result.preset,
        "scores": {
            "test": {score.name: getattr(result, score.name) for score in task.scores},
            "validation": {score.name: getattr(result, f"valid_{score.name}") for score in task.scores},
        },
        **_probabilities(result),
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
                for key in ("edges", "features", "labels", "graph")
                if not options.data and getattr(options, key)
            },
            "tables": {} if options.data else {**given_table_options(options), **_label_of(graph)},
            "label_among_features": graph.label_column is not None,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "weighted": graph.weights is not None,
            "features": graph.num_features,
            "nonzero_features": graph.features.nnz,
            "classes": None if graph.labels is None else int(graph.labels[graph.labels >= 0].unique().numel()),
            "class_names": graph.classes,
        },
        "configuration": result.fields,
        "machine": {
            **machine(options.device),
            "backend": options.backend or "auto",
            "processes": Processes.current().size,
        },
        "versions": versions(),
        "history": result.history,
    }


def _label_of(graph: Graph) -> dict[str, str | int]:
    """The option of tables by which the label is left out of the features where no labels are read."""
    return {} if graph.label_column is None else {"label": graph.label_column}


def _probabilities(result: TaskResult) -> dict[str, Any]:
    """What link prediction finds besides scores: rankings, and how well the probabilities agree with what is so."""
    if not isinstance(result, tasks.LinkPredictionResult):
        return {}
    calibration = result.model.calibration
    return {
        "ranking": {"hits": {f"{k}": value for k, value in result.hits.items()}, "mrr": result.mrr},
        "calibration": None if calibration is None else asdict(calibration),
        "reliability": {name: curve._asdict() for name, curve in result.reliability.items()},
    }


def _train_table(scores: dict[str, dict[str, float | None]], result: TaskResult) -> str:
    ended = ", interrupted" if result.interrupted else ""
    facts = {
        "epochs": f"{result.epochs} (best: {result.best_epoch}{ended})",
        "time": readable_seconds(result.seconds),
        "time per epoch": readable_seconds(result.seconds / result.epochs),
        "peak memory": readable_bytes(result.peak_memory),
    }
    parts = list(scores)
    rows = [["", *parts]] if scores[parts[0]] else []
    for key in scores[parts[0]]:
        values = [scores[part][key] for part in parts]
        rows.append(
            [SCORES[key].title, *("none held out" if value is None else readable_number(value) for value in values)]
        )
    width = max(map(len, [*facts, *(row[0] for row in rows)]))
    rows = [[row[0].ljust(width), *row[1:]] for row in rows]
    return "\n".join(
        [*([table(rows)] if rows else []), *(f"{key.ljust(width)}  {value}" for key, value in facts.items())]
    )
