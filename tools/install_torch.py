"""Install torch into the running Python's environment, and print first what will be downloaded.

A torch that is new enough and importable is kept. On a machine with an NVIDIA GPU, pip's default build is installed. On
a machine without one, the newest CPU build in pip's configured sources is installed. If they have no CPU build, the
size of the CUDA build is printed before the download, and a person at a terminal is asked.

On a machine without a GPU, SEEGERA_TORCH_CUDA=0 refuses a CUDA build (exit status 3), and =1 installs it without a
question. This script uses the standard library only, and pip 22 or later.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

MINIMUM = (2, 11)
REQUIREMENT = "torch>=" + ".".join(map(str, MINIMUM))
CUDA_SIZE = "about 3 GB to download and 5.5 GB on disk"
EXIT_REFUSED = 3
EXIT_ABSENT = 9  # of the process that imports torch


def say(text: str) -> None:
    print(f"torch: {text}", flush=True)


def release(version: str) -> tuple[int, ...]:
    """The numbers at the start of a version: (2, 13, 0) for "2.13.0+cpu" and "2.13.0a0"; () if there are none."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


def is_cpu_build(version: str) -> bool:
    return version.partition("+")[2].split(".")[0] == "cpu"


def versions_in_index(output: str) -> list[str]:
    """The versions that `pip index versions torch` printed, newest first as pip orders them."""
    match = re.search(r"^Available versions:(.*)$", output, re.MULTILINE)
    return [word for word in re.split(r"[,\s]+", match.group(1)) if release(word)] if match else []


def versions_in_refusal(output: str) -> list[str]:
    """The versions that pip lists if no version fits: "... (from versions: 2.12.0, 2.13.0+cpu)"."""
    match = re.search(r"\(from versions:(.*?)\)", output, re.DOTALL)
    return [word for word in re.split(r"[,\s]+", match.group(1)) if release(word)] if match else []


def newest_cpu_build(versions: list[str]) -> str | None:
    """The newest version that is a CPU build and new enough; None: there is none."""
    return max((v for v in versions if is_cpu_build(v) and release(v) >= MINIMUM), key=release, default=None)


def pip(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "pip", *arguments], text=True, **options)


def versions_in_sources() -> list[str]:
    """Every torch version that pip's configured sources have for this Python; [] if pip could not tell."""
    answer = pip("index", "versions", "torch", capture_output=True)
    versions = versions_in_index(answer.stdout) if answer.returncode == 0 else []
    if versions:
        return versions
    # `pip index` is experimental. Without it, a request for a version that does not exist makes pip list those that
    # do, unless a constraint on torch is configured.
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    answer = pip("install", "--no-deps", "--ignore-installed", "torch==0", capture_output=True, env=environment)
    return versions_in_refusal(answer.stderr + answer.stdout)


def has_nvidia_gpu() -> bool:
    try:
        if os.listdir("/proc/driver/nvidia/gpus"):
            return True
    except OSError:
        pass
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    try:
        return subprocess.run([command, "-L"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def installed_torch() -> tuple[str | None, str]:
    """The version of the torch that can be imported here, or None, and the last line of an error of the import."""
    script = (
        "import importlib.util, sys\n"
        f"if importlib.util.find_spec('torch') is None: sys.exit({EXIT_ABSENT})\n"
        "import torch\n"
        "print(torch.__version__)"
    )
    # In a new process, because a broken build can crash the process that imports it.
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if answer.returncode == 0 and answer.stdout.strip():
        return answer.stdout.split()[-1], ""
    if answer.returncode == EXIT_ABSENT:
        return None, ""
    return None, (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]


def may_fetch_cuda(versions: list[str], choice: str) -> bool:
    """Print what will be downloaded on a machine without a GPU, and return whether to. `choice` is "", "0" or "1"."""
    newest = max(versions, key=release, default="of a version that pip could not list")
    say("no NVIDIA GPU was found, and pip's sources list no CPU build of torch for this Python.")
    say(
        f"about to be fetched: torch {newest} (older where a pip constraint asks for it) with the CUDA libraries of its"
        f" Linux builds, the nvidia-* packages: {CUDA_SIZE}."
    )
    say(
        "to avoid it, point pip at a source with CPU builds (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS; PyTorch's"
        " installation page names one), or install torch first."
    )
    if choice == "0":
        say("stopped, because SEEGERA_TORCH_CUDA is 0.")
        return False
    if choice == "1" or not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        say("going on (SEEGERA_TORCH_CUDA=0 stops here instead).")
        return True
    try:
        answer = input("torch: fetch it? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    say("nothing was fetched.")
    return False


def requirement_with_gpu() -> str:
    """The requirement for pip on a machine with a GPU: the newest build, but no CPU build if there are others."""
    versions = [v for v in versions_in_sources() if release(v) >= MINIMUM]
    cpu = [v for v in versions if is_cpu_build(v)]
    return ",".join([REQUIREMENT, *(f"!={v}" for v in cpu if len(cpu) < len(versions))])


def requirement_without_gpu(choice: str) -> str | None:
    """The requirement for pip on a machine without a GPU; None: the user does not want a CUDA build."""
    versions = versions_in_sources()
    cpu = newest_cpu_build(versions)
    if cpu is not None:
        say(f"no NVIDIA GPU was found; installing the CPU build {cpu}.")
        return f"torch=={cpu}"
    # Since 2.11 the default wheels need CUDA on Linux, for x86-64 and aarch64, but not on other systems.
    if sys.platform != "linux":
        say("installing pip's default build, a CPU build on this system.")
        return REQUIREMENT
    return REQUIREMENT if may_fetch_cuda(versions, choice) else None


def main() -> int:
    choice = os.environ.get("SEEGERA_TORCH_CUDA", "")
    if choice not in ("", "0", "1"):
        say(f"SEEGERA_TORCH_CUDA must be 0 or 1, not {choice!r}.")
        return 2
    version, error = installed_torch()
    if version is not None and release(version) >= MINIMUM:
        say(f"keeping the installed {version}.")
        return 0
    options = []
    if version is not None:
        say(f"the installed {version} is older than {REQUIREMENT} asks for.")
    elif error:
        say(f"the installed one cannot be imported ({error}); installing it anew.")
        options = ["--force-reinstall"]

    if has_nvidia_gpu():
        say(f"an NVIDIA GPU was found; installing pip's default build with CUDA, {CUDA_SIZE}.")
        requirement = requirement_with_gpu()
    else:
        requirement = requirement_without_gpu(choice)
    if requirement is None:
        return EXIT_REFUSED
    if pip("install", *options, requirement).returncode != 0:
        say(f"pip could not install {requirement!r}; its message is above.")
        return 1
    version, error = installed_torch()
    if version is None:
        say(f"was installed, but cannot be imported: {error or 'pip put it where this Python does not look'}.")
        return 1
    say(f"installed {version}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
