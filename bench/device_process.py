"""Runs commands with a time limit, and finds CUDA's tools, for bench/device.py."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import IO, ClassVar

ROOT = Path(__file__).resolve().parents[1]


class Process:
    """A command in its own process group, with a time limit. Its output goes to a file.

    Args:
        command: the program and its arguments.
        seconds: the time limit, after which the group is ended.
        folder: the working folder.
        environment: environment variables, in addition to those of this process.
    """

    alive: ClassVar[set[Process]] = set()

    def __init__(self, command: list[str | Path], seconds: float, folder: Path = ROOT, **environment: str) -> None:
        # Not closed by a with block, because it is read after the command has ended.
        self.output: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.begun, self.end, self.late = time.monotonic(), time.monotonic() + seconds, False
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            preexec_fn=os.setpgrp,
        )
        self.alive.add(self)

    def done(self) -> bool:
        if self not in self.alive:
            return True
        if self.process.poll() is None:
            if time.monotonic() <= self.end:
                return False
            self.late = True
        self.stop()
        return True

    def stop(self) -> None:
        """Ends the whole group, because children of a crashed process might still use the card."""
        if self not in self.alive:
            return
        self.alive.discard(self)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @classmethod
    def stop_all(cls) -> None:
        for process in list(cls.alive):
            process.stop()

    def wait(self) -> Process:
        while not self.done():
            time.sleep(0.05)
        return self

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def text(self) -> str:
        self.output.seek(0)
        return self.output.read()


def find_tool(name: str, variables: tuple[str, ...] = ()) -> str | None:
    """Finds a CUDA tool: by a variable, on PATH, in CUDA_HOME, beside nvcc, in CUDA's usual folders, or in wheels."""
    found = [os.environ.get(variable) for variable in variables] + [shutil.which(name)]
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    if nvcc:
        homes.append(str(Path(nvcc).resolve().parents[1]))
    homes += sorted(glob.glob("/usr/local/cuda*"), reverse=True) + glob.glob("/opt/cuda*")
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        homes += glob.glob(f"{folder}/nvidia/*") + glob.glob(f"{folder}/nvidia")
    for home in filter(None, homes):
        found += [f"{home}/{inner}/{name}" for inner in ("bin", name, f"extras/{name}")]
    return next(filter(None, (shutil.which(path) for path in found if path)), None)
