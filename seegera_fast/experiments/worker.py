"""One trial in a process of its own: how it is started, stopped and waited for, and what it does there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from .. import backends
from .trials import Trial, run_trial

# The exit status of a trial that was stopped and can go on.
STOPPED = 130
# The path is that of the process that starts it. With -m the current folder would come first, and a checkout that
# happens to be there would be run instead of the installed package.
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from seegera_fast.experiments.worker import main; main(sys.argv[1])"


@dataclass(frozen=True)
class Conditions:
    """Where and how trials run.

    Attributes:
        folder: of the records.
        root: folder of the data sets; None: the default one.
        device: such as "cpu" or "cuda:0".
        backend: of every operation; None: the best there is.
    """

    folder: Path
    root: str | None = None
    device: str = "cpu"
    backend: str | None = None


class Worker:
    """A process that runs one trial.

    Its peak memory is its own, and what brings it down leaves the others alone. Its session is its own too, so that it
    does not get the signals of the terminal or of this process's group. Its standard input is a pipe that nothing is
    written to: it ends after the epoch once the pipe is closed, be it by :meth:`stop` or because this process ended.
    """

    def __init__(self, trial: Trial, conditions: Conditions, threads: int) -> None:
        job = {
            "trial": trial.as_json(),
            "folder": str(conditions.folder),
            "root": conditions.root,
            "device": conditions.device,
            "backend": conditions.backend,
            "threads": threads,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(job), *map(str, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """Asks it to end after the epoch."""
        self._process.stdin.close()

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self.end()

    def end(self) -> tuple[int, str]:
        """Waits for its end; exit status, negative for a signal, and what went wrong."""
        with self._process as process:
            message = process.stdout.read().strip()
        # Before the training begins there is no state to keep, and the signal simply ends it.
        return (STOPPED if process.returncode == -signal.SIGTERM else process.returncode), message


def main(text: str) -> NoReturn:
    """The process: runs the trial that a line of JSON describes, and prints what went wrong."""
    job = json.loads(text)
    # Even where it is ignored by the process that started this one.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_stop_with_the_pipe, daemon=True).start()
    torch.set_num_threads(job["threads"])
    try:
        # What libraries print is no message.
        with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
            if job["backend"]:
                stack.enter_context(backends.use_backend(job["backend"]))
            finished = run_trial(Trial.from_json(job["trial"]), Path(job["folder"]), job["root"], job["device"])
    except Exception as error:
        print(" ".join(str(error).split()) or type(error).__name__)
        sys.exit(1)
    sys.exit(0 if finished else STOPPED)


def _stop_with_the_pipe() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
