"""``seegera-fast reproduce`` and ``seegera-fast sweep``: the commands that run many trials."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import datasets, precision
from ..experiments.matrix import PAPER_DATA, Outcome, plan, run_matrix
from ..experiments.page import texts_of, write_page
from ..experiments.protocols import BASELINES, OWN_METHODS, PAPER_TASKS, SPLIT_ARGUMENTS, TASKS
from ..experiments.summary import Row, as_json, grids, markdown, readable_row, rows
from ..experiments.trials import RATES, Trial, read_records
from ..experiments.worker import Conditions
from ..support.atomic import written_aside
from ..support.hints import counted, one_line
from ..support.plots import save_heat_maps
from ..support.report import json_text, table
from ..support.screen import expressible
from .options import (
    BAD_INPUT,
    FAILED_TRAINING,
    INTERRUPTED,
    PROGRAM,
    UNFINISHED,
    Parser,
    add_common_options,
    chosen_operations,
    of_each,
    one_of,
    read_count,
    read_field,
    read_minutes,
    read_path,
    read_rate,
)
from .output import RESULTS, require_absent

# The options that set a field of a trial, by the field's name.
OPTION_OF_TRIAL_FIELD = {
    **dict.fromkeys(SPLIT_ARGUMENTS, "--split"),
    "preset": "--data",
    "seed": "--trials",
    "epochs": "--epochs",
    "progress": "--quiet",
    "checkpoint": "--out",
}
OPTIONS_OF_REPRODUCE = {**OPTION_OF_TRIAL_FIELD, "variant": "--variant"}
OPTIONS_OF_SWEEP = {
    **OPTION_OF_TRIAL_FIELD,
    "structure_masking_rate": "--structure-rates",
    "feature_masking_rate": "--feature-rates",
}
# What is in the folder of --out: that of the trials, and the page of the tables.
TRIALS, TABLES_PAGE = "trials", "results.md"
DEFAULT_RATES = tuple(step / 10 for step in range(6))
STATUSES = """\
exit status:
  0 all trials are done, 2 bad input or a data set that isn't there, 3 a trial became NaN or infinite or ended with an
  error, 4 trials are left when the budget is used up, 5 another run is using --out, 130 interrupted: Ctrl-C, SIGTERM,
  SIGHUP, SIGUSR1 or SIGUSR2 end the trials after their epoch. The same command goes on where it stopped, to the same
  bits; a finished trial is never run again
"""
REPRODUCE_EXAMPLES = f"""\
examples:
  seegera-fast reproduce --task link --data cora citeseer --trials 5 --jobs 2
      the table of link prediction for two data sets, on both splits, beside the paper's figures
  seegera-fast reproduce --budget 60
      runs for an hour, the rows first that are nearest to their end; the next hour goes on where this one stopped
  seegera-fast reproduce --no-run --page docs/results.md
      runs nothing, and writes the page about all that is finished in --out again
  seegera-fast reproduce --task attribute --data cora --variant nf
      the ablation without feature embeddings
  seegera-fast reproduce --task link --data photo --set negatives=edges
      other settings than the paper's, in rows of their own, which the tables mark

files in the folder of --out:
  trials/NAME.json  one per finished trial: scores, configuration, versions, history of some 200 epochs
  results.json, results.md  the tables, of all trials in the folder

{STATUSES}"""
SWEEP_EXAMPLES = f"""\
examples:
  seegera-fast sweep --data cora --trials 3 --budget 120
  seegera-fast sweep --task attribute --data cora --structure-rates 0 0.3 0.6 --feature-rates 0 0.2

files in the folder of --out:
  trials/NAME.json  one per finished trial
  sweep.json, sweep.png  means over the trials, and heat maps of them

{STATUSES}"""


def add_reproduce(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and print its tables beside ours",
        description="Runs the paper's protocols and compares the results with its figures.",
        epilog=REPRODUCE_EXAMPLES,
    )
    what = reproduce.add_argument_group("what is run")
    _add_task(what, [*TASKS, "all"], "all")
    _add_data(what, PAPER_DATA, "the paper's seven")
    what.add_argument(
        "--variant",
        type=one_of(*OWN_METHODS),
        nargs="+",
        metavar="NAME",
        help="v1, v2, v3, or nf: without feature embeddings. Default: v1 v2 v3, or none with --baseline",
    )
    what.add_argument(
        "--baseline",
        type=one_of(*BASELINES),
        nargs="+",
        default=[],
        metavar="NAME",
        help="vgae: links only, one Gaussian per node; sigvae: links only, semi-implicit. Without attribute inference",
    )
    _add_split(what, "both")
    _add_trials(what, 10, OPTIONS_OF_REPRODUCE)
    _add_running(reproduce, "runs/reproduce")
    reproduce.add_argument(
        "--page",
        type=read_path,
        metavar="FILE",
        help="write a page of results, in Markdown, and its pictures to the folder of that name without the ending; "
        "notes.md there, if you write one, becomes part of the page, and other .md files but results.md come after its "
        "tables",
    )
    reproduce.add_argument(
        "--no-run",
        action="store_true",
        help="run nothing, whatever is named: make the tables and the page of all trials in --out again. Status 0",
    )
    reproduce.set_defaults(run=_reproduce)
    return reproduce


def add_sweep(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    sweep = commands.add_parser(
        "sweep",
        help="scores over a grid of masking rates, as a heat map",
        description="Trains the masked variant, v3, for each pair of a structure and a feature masking rate.",
        epilog=SWEEP_EXAMPLES,
    )
    what = sweep.add_argument_group("what is run")
    _add_task(what, [*TASKS], "link")
    _add_data(what, ("cora", "citeseer"), "cora citeseer")
    for name in ("structure", "feature"):
        what.add_argument(
            f"--{name}-rates",
            type=read_rate,
            nargs="+",
            default=DEFAULT_RATES,
            metavar="RATE",
            help=f"{name} masking rates. Default: 0 to 0.5 in steps of 0.1",
        )
    _add_split(what, "paper")
    _add_trials(what, 10, OPTIONS_OF_SWEEP)
    _add_running(sweep, "runs/sweep")
    sweep.set_defaults(run=_sweep)
    return sweep


def _add_task(group: Any, choices: list[str], default: str) -> None:
    listed = ", ".join(choices)
    group.add_argument(
        "--task", type=one_of(*choices), default=default, metavar="TASK", help=f"one of {listed}. Default: {default}"
    )


def _add_data(group: Any, default: Sequence[str], words: str) -> None:
    group.add_argument(
        "--data",
        type=one_of(*datasets.names()),
        nargs="+",
        default=list(default),
        metavar="NAME",
        help=f"data sets, of {', '.join(datasets.names())}. Default: {words}",
    )
    group.add_argument("--root", type=read_path, metavar="DIR", help="folder of the data sets")


def _add_split(group: Any, default: str) -> None:
    splits = of_each(TASKS, lambda task: ", ".join(map(task.split_in_words, task.splits)))
    group.add_argument(
        "--split",
        type=one_of("paper", "released", "both"),
        default=default,
        metavar="SPLIT",
        help=f"paper, released or both ({splits}). Default: {default}",
    )


def _add_trials(group: Any, default: int, option_of_field: dict[str, str]) -> None:
    group.add_argument(
        "--trials", type=read_count, default=default, metavar="N", help=f"seeds 0 to N - 1. Default: {default}"
    )
    group.add_argument(
        "--epochs", type=read_count, metavar="N", help="at most so many epochs: for a rehearsal, which the tables mark"
    )
    group.add_argument(
        "--set",
        type=lambda text: read_field(text, option_of_field),
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="fields",
        help="any other field of the configuration, which the tables mark; may be repeated",
    )


def _add_running(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument(
        "--jobs", type=read_count, default=1, metavar="N", help="trials at a time, which share the threads. Default: 1"
    )
    parser.add_argument(
        "--budget",
        type=read_minutes,
        default=math.inf,
        metavar="MINUTES",
        help="stop after so many minutes; rows that are nearest to their end come first",
    )
    add_common_options(parser)
    parser.add_argument(
        "--out", type=read_path, default=Path(out), metavar="DIR", help=f"folder for the files. Default: {out}"
    )


def _require_ours(options: argparse.Namespace, *names: str) -> None:
    """Refuses a folder without trials, if it has files of the names that would be written."""
    if not (options.out / TRIALS).is_dir():
        require_absent(options.out, names, "reproduce or sweep")


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    return {**dict(options.fields), **({} if options.epochs is None else {"epochs": options.epochs})}


def _precision(options: argparse.Namespace) -> str:
    """The precision that the products of the trials will have on the device; a warning says if it is another one."""
    device = torch.device(str(options.device))
    with chosen_operations(options):
        precision.say_if_slow(device, torch.float32)
        return precision.in_use(device)


def _splits(options: argparse.Namespace) -> list[str]:
    return ["paper", "released"] if options.split == "both" else [options.split]


def _unique(names: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(names))


def _reproduce(options: argparse.Namespace) -> int:
    if options.page is not None and not options.page.suffix:
        raise ValueError(f"--page: got {options.page}, want a file name with an ending, such as docs/results.md")
    variants = options.variant or ([] if options.baseline else ["v1", "v2", "v3"])
    trials = plan(
        PAPER_TASKS if options.task == "all" else [options.task],
        _unique(options.data),
        _unique([*options.baseline, *variants]),
        _splits(options),
        range(options.trials),
        [_fields(options)],
        _precision(options),
    )
    _require_ours(options, RESULTS, TABLES_PAGE)
    if options.page is not None and not options.no_run:
        # What is wrong beside the page is an error now, not after hours of training.
        texts_of(options.page)
    outcome = None if options.no_run else _run(options, trials)
    records = read_records(options.out / TRIALS)
    if options.no_run and not records:
        raise ValueError(f"--no-run: got --out {options.out}, want a folder of reproduce: it has no finished trial")
    found = rows(records)
    _write(options.out / RESULTS, json_text({"rows": as_json(found)}))
    _write(options.out / TABLES_PAGE, "# Results\n\n" + markdown(found))
    has_page = options.page is not None and bool(records)
    if has_page:  # Last, since it may be that same file.
        write_page(options.page, records)
    elif options.page is not None:
        print(one_line(f"{PROGRAM}: no trial is finished, so that {options.page} is not written"), file=sys.stderr)
    _print_table(found if outcome is None else _rows_of(trials, found))
    page = f"; {options.page}" if has_page else ""
    print(one_line(f"tables in {options.out}: results.md, results.json{page}"))
    return 0 if outcome is None else _report(options, outcome)


def _sweep(options: argparse.Namespace) -> int:
    fields = _fields(options)
    pairs = itertools.product(_unique(options.structure_rates), _unique(options.feature_rates))
    grid = [{**dict(zip(RATES, pair, strict=True)), **fields} for pair in pairs]
    splits = _splits(options)
    trials = plan(
        [options.task], _unique(options.data), ["v3"], splits, range(options.trials), grid, _precision(options)
    )
    _require_ours(options, "sweep.json", "sweep.png")
    outcome = _run(options, trials)
    found = [row for row in _rows_of(trials, rows(read_records(options.out / TRIALS))) if row.mean is not None]
    _write(options.out / "sweep.json", json_text({"rows": as_json(found)}))
    panels = grids(found)
    if panels:
        with written_aside(options.out / "sweep.png") as file:
            save_heat_maps(file, panels, x="structure masking rate", y="feature masking rate")
    else:
        # That of an earlier call, with other rates.
        (options.out / "sweep.png").unlink(missing_ok=True)
    _print_table(found)
    print(one_line(f"files in {options.out}: sweep.json" + (", sweep.png" if panels else "")))
    return _report(options, outcome)


def _run(options: argparse.Namespace, trials: Sequence[Trial]) -> Outcome:
    """Runs the trials that are not finished; options that do not fit them are refused first."""
    with chosen_operations(options):
        pass
    root = None if options.root is None else str(options.root)
    conditions = Conditions(options.out / TRIALS, root, str(options.device), options.backend)
    return run_matrix(trials, conditions, jobs=options.jobs, budget=60 * options.budget, quiet=options.quiet)


def _write(path: Path, text: str) -> None:
    with written_aside(path) as file:
        file.write(text.encode())


def _rows_of(trials: Sequence[Trial], found: Sequence[Row]) -> list[Row]:
    """The rows that this command asked for."""
    settings = {trial.setting for trial in trials}
    return [row for row in found if row.setting in settings]


def _print_table(found: Sequence[Row]) -> None:
    head = ["", "score", "paper", "ours", "difference", "trials", "failed"]
    cells = [head, *([row.setting.label, *readable_row(row)] for row in found)]
    # Here, because "+/-" for "±" makes a cell wider.
    print(table([[expressible(cell, sys.stdout) for cell in row] for row in cells]))


def _report(options: argparse.Namespace, outcome: Outcome) -> int:
    """Prints a line for each trial that failed or was left, and returns the exit status."""
    lines = [f"{name} is left out: {reason}" for name, reason in outcome.missing.items()]
    lines += [f"{trial.name} failed: it became NaN or infinite and is in no mean" for trial in outcome.failed]
    lines += [f"{trial.name} ended with an error: {reason}" for trial, reason in outcome.crashed.items()]
    if outcome.left:
        names = ", ".join(trial.name for trial in outcome.left[:3]) + (", ..." if len(outcome.left) > 3 else "")
        lines.append(f"{counted(len(outcome.left), 'trial')} left ({names}); the same command goes on")
    for line in lines:
        print(one_line(f"{PROGRAM}: {line}"), file=sys.stderr)
    if outcome.interrupted:
        return INTERRUPTED
    if outcome.left:
        return UNFINISHED
    if outcome.missing:
        return BAD_INPUT
    return FAILED_TRAINING if outcome.failed or outcome.crashed else 0
