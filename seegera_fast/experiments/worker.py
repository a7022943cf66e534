"""Runs one trial in its own process: how the process is started, stopped and waited for, and its main function."""

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

from .. import backends, precision
from ..support.atomic import InUse
from .trials import Trial, epoch_seconds, run_trial

# The exit status of a trial that was stopped and can be resumed.
STOPPED = 130
# That of a trial whose checkpoint is in use: by a process whose parent was killed, and which ends its epoch.
IN_USE = 75
# The new process gets the module search path of this one. With -m the current folder would come first, so that a
# checkout in it would be run instead of the installed package.
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from seegera_fast.experiments.worker import main; main(sys.argv[1])"


@dataclass(frozen=True)
class Conditions:
    """Where and how trials run.

    Attributes:
        folder: folder of the records.
        root: folder of the data sets; None: the default folder.
        device: such as "cpu" or "cuda:0".
        backend: the backend of every operation; None: chosen for each operation.
    """

    folder: Path
    root: str | None = None
    device: str = "cpu"
    backend: str | None = None


class Worker:
    """A process that runs one trial, or with ``pace`` measures the time of its epochs.

    In its own process a trial's peak memory can be measured, and a crash does not affect other trials. The process has
    its own session, so it does not get signals that are sent to the terminal or to this process's group. Its standard
    input is a pipe. When that pipe is closed, by :meth:`stop` or because this process ended, the trial stops at the end
    of the epoch.
    """

    def __init__(self, trial: Trial, conditions: Conditions, threads: int, *, pace: bool = False) -> None:
        job = {
            "trial": trial.as_json(),
            "folder": str(conditions.folder),
            "root": conditions.root,
            "device": conditions.device,
            "backend": conditions.backend,
            "threads": threads,
            "pace": pace,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(job), *map(str, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
        )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """Asks the process to stop at the end of the epoch. May be called again."""
        self._process.stdin.close()

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()
        self.end()

    def end(self) -> tuple[int, str]:
        """Waits for the process. Returns its exit status, negative for a signal, and its message.

        That is an error, or with ``pace`` the seconds of the epochs as JSON.
        """
        with self._process as process:
            message = process.stdout.read().strip()
        # Before the training begins, SIGTERM simply ends the process: there is no state to write.
        return (STOPPED if process.returncode == -signal.SIGTERM else process.returncode), message


def main(text: str) -> NoReturn:
    """The process's main function: runs the trial that ``text`` describes in JSON, and prints its message."""
    job = json.loads(text)
    trial = Trial.from_json(job["trial"])
    # Whatever the encoding of the terminal is: the parent reads UTF-8.
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    # The parent process may ignore SIGTERM, which a child would inherit.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_stop_with_the_pipe, daemon=True).start()
    torch.set_num_threads(job["threads"])
    try:
        # The parent reads stdout as the message, so output of libraries goes to stderr.
        with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
            if job["backend"]:
                stack.enter_context(backends.use_backend(job["backend"]))
            stack.enter_context(precision.at(trial.setting.precision))
            message, finished = "", True
            if job["pace"]:
                message = json.dumps(epoch_seconds(trial.setting, job["root"], job["device"]))
            else:
                finished = run_trial(trial, Path(job["folder"]), job["root"], job["device"])
    except InUse as error:
        print(error)
        sys.exit(IN_USE)
    except Exception as error:
        print(" ".join(str(error).split()) or type(error).__name__)
        sys.exit(1)
    if message:
        print(message)
    sys.exit(0 if finished else STOPPED)


def _stop_with_the_pipe() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
