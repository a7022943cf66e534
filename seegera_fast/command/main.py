"""The command ``seegera-fast``: its parser, and how errors become exit statuses."""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from ..distributed import Processes, ProcessLost, rank_of_error
from ..support.atomic import InUse
from ..support.hints import nearest, one_line
from ..support.screen import OutputLost, screens
from ..training import TrainingFailure
from ..version import __version__
from .embed import add_embed
from .experiments import add_reproduce, add_sweep
from .import_table import add_import
from .info import add_info
from .options import BAD_INPUT, BROKEN_PIPE, FAILED_TRAINING, IN_USE, INTERRUPTED, LOST, PROGRAM, UNWRITTEN, Parser
from .processes import require_shared
from .suggestions import add_complete, add_links
from .table_options import in_options
from .train import add_train

DESCRIPTION = """\
Trains SeeGera, a semi-implicit variational auto-encoder, on a graph with node features, and embeds its nodes."""
# The exit status of an error, by its kind; BAD_INPUT for any other.
STATUSES = {TrainingFailure: FAILED_TRAINING, InUse: IN_USE, OutputLost: UNWRITTEN, ProcessLost: LOST}
# The subcommands, in the order in which --help lists them.
COMMANDS = {
    "train": add_train,
    "import": add_import,
    "embed": add_embed,
    "links": add_links,
    "complete": add_complete,
    "reproduce": add_reproduce,
    "sweep": add_sweep,
    "info": add_info,
}


def _parser() -> tuple[Parser, dict[str, Parser]]:
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog="seegera-fast COMMAND --help explains a command.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    return parser, {name: add(commands) for name, add in COMMANDS.items()}


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser, commands = _parser()
    if not argv:
        parser.error(f"COMMAND is missing; want one of {', '.join(commands)}; {PROGRAM} --help explains them")
    if argv and not argv[0].startswith("-") and argv[0] not in commands:
        parser.error(f"unknown command {argv[0]!r}; {nearest(argv[0], commands)}")
    if argv and argv[0] in commands:
        commands[argv[0]].check_options(argv[1:])
    else:
        parser.check_options(argv)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status; bad options raise SystemExit."""
    given = sys.argv[1:] if argv is None else list(argv)
    with screens(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            try:
                options = _parse(given)
                require_shared(given[0])
                return options.run(options)
            finally:
                # Flushed here, because at Python's exit nothing would catch the error of a full disk or a closed pipe.
                sys.stdout.flush()
        except KeyboardInterrupt:
            print(f"{PROGRAM}: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            # The reader has closed the pipe.
            return BROKEN_PIPE
        except (OSError, ImportError, TypeError, ValueError, OverflowError, RuntimeError, MemoryError) as error:
            if "--debug" in given:
                traceback.print_exc()
            _print_error(error)
            return STATUSES.get(type(error), BAD_INPUT)


def _print_error(error: Exception) -> None:
    """Prints the line of an error. One that all processes of a run have raised is printed by the first of them."""
    own, found = Processes.launched().rank, rank_of_error(error)
    if own and found is not None:
        return
    rank = own if found is None else found
    print(f"{PROGRAM}: error: {f'process {rank}: ' if rank else ''}{_one_line(error)}", file=sys.stderr)


def _show_warning(message: Warning | str, *origin: Any, **options: Any) -> None:
    print(f"{PROGRAM}: warning: {_one_line(message)}", file=sys.stderr)


def _one_line(message: Any) -> str:
    if isinstance(message, OSError) and message.filename is not None:
        message = f"{message.filename}: {message.strerror}"
    return one_line(in_options(str(message))) or type(message).__name__
