"""The CUDA kernels, compiled for the CPU and run there under sanitizers, thread by thread.

tests/cuda_on_cpu has a replacement of CUDA for .cu files, and the tests of the kernels. They find wrong numbers, reads
and writes out of bounds, misaligned vectors, missing barriers and divergent warps. They do not measure speed.
"""

import concurrent.futures
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).with_name("cuda_on_cpu")
KERNELS = ROOT / "kernels" / "cuda"
TORCH = Path(importlib.util.find_spec("torch").origin).parent
COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CXX", "g++").split()[0], "g++"))), None)
FLAGS = "-std=c++17 -O1 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -Wno-unknown-pragmas -Wno-psabi -Werror"
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs Linux and a C++ compiler"),
]


def run(command, **environment):
    merged = {**os.environ, **environment}
    # The timeout is for wrong kernels, which may run forever.
    return subprocess.run(list(map(str, command)), env=merged, text=True, capture_output=True, timeout=600)


def succeed(command, **environment):
    result = run(command, **environment)
    assert result.returncode == 0, f"{shlex.join(map(str, command))}\n{result.stdout}\n{result.stderr}"


@pytest.fixture(scope="module")
def objects():
    """Source -> object file, compiled once for each content of the source and the headers, compiler and flags."""
    sources = [*sorted(KERNELS.glob("*.cu")), FOLDER / "faults.cu", FOLDER / "threads.cpp"]
    headers = [*sorted(KERNELS.glob("common/*")), FOLDER / "cuda_runtime.h", TORCH / "version.py"]
    folder = ROOT / "build" / "cuda_on_cpu"
    folder.mkdir(parents=True, exist_ok=True)
    common = [COMPILER, *FLAGS.split(), *SANITIZE.split(), "-DUSE_CUDA", "-DTORCH_TARGET_VERSION=0x020b000000000000"]
    common += ["-isystem", TORCH / "include", f"-I{FOLDER}", f"-I{KERNELS}", "-include", FOLDER / "cuda_runtime.h"]
    asked = run([COMPILER, "--version"]).stdout + shlex.join(map(str, common))

    def compiled(source):
        read = b"".join(path.read_bytes() for path in (source, *headers)) + asked.encode()
        target = folder / f"{source.stem}-{hashlib.sha256(read).hexdigest()[:16]}.o"
        if not target.exists():
            for older in folder.glob(f"{source.stem}-*.o"):
                older.unlink(missing_ok=True)
            temporary = target.with_suffix(f".{os.getpid()}.o")
            succeed([*common, "-x", "c++", "-c", source, "-o", temporary])
            temporary.replace(target)
        return source.name, target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(compiled, sources))


@pytest.fixture(scope="module")
def faults(objects, tmp_path_factory):
    target = tmp_path_factory.mktemp("faults") / "faults"
    succeed([COMPILER, *SANITIZE.split(), objects["faults.cu"], objects["threads.cpp"], "-o", target])
    return target


def test_kernels_give_the_numbers_of_the_reference(objects, tmp_path):
    library = tmp_path / "cuda_on_cpu.so"
    kernels = [target for name, target in objects.items() if name != "faults.cu"]
    # The replacement of CUDA's runtime must be found before torch's.
    succeed(
        [
            COMPILER,
            *SANITIZE.split(),
            "-shared",
            "-Wl,-Bsymbolic",
            *kernels,
            f"-L{TORCH / 'lib'}",
            "-ltorch_cpu",
            "-lc10",
            "-o",
            library,
        ]
    )
    names = ("libasan.so", "libubsan.so")
    preload = [run([COMPILER, f"-print-file-name={name}"]).stdout.strip() for name in names]
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    succeed(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--capture=sys",
            "-p",
            "no:cacheprovider",
            FOLDER / "check_kernels.py",
        ],
        SEEGERA_CUDA_ON_CPU=str(library),
        LD_PRELOAD=":".join(preload),
        ASAN_OPTIONS="detect_leaks=0",
        UBSAN_OPTIONS="print_stacktrace=1",
        PYTHONPATH=path,
    )


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("read beyond", "heap-buffer-overflow"),
        ("read across", "misaligned address"),
        ("different calls", "is in __shfl_(xor_)?sync and others of its warp in __shfl_(xor_)?sync"),
        ("lane missing", r"waits in __shfl_sync for threads that never come"),
        ("thread missing at barrier", r"waits in __syncthreads for threads that never come"),
        ("part of a warp", "__shfl_sync of less than a warp"),
    ],
)
@pytest.mark.parametrize("order", [0, 1, 3])
def test_a_fault_is_seen(faults, case, message, order):
    result = run([faults, case, order])
    assert result.returncode != 0
    assert re.search(message, result.stderr), result.stderr


def test_the_result_without_a_barrier_depends_on_the_order(faults):
    outputs = {
        name: {run([faults, name, order]).stdout for order in (0, 1)} for name in ("with barrier", "without barrier")
    }
    assert outputs["with barrier"] == {"".join(f"{i} " for i in reversed(range(64)))}
    assert len(outputs["without barrier"]) == 2


@pytest.mark.parametrize("order", [0, 1, 3])
def test_every_call_does_what_it_does_on_a_gpu(faults, order):
    result = run([faults, "all calls", order])
    assert (result.returncode, result.stdout) == (0, f"{0x1FF} " * 64)


def test_a_grid_without_blocks_is_an_error(faults):
    assert run([faults, "no blocks", 0]).returncode == 9
