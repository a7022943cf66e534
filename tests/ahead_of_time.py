"""Compiles the GPU kernels without a GPU, and checks the registers and the memory that they need.

The table resources.json beside this file has the registers of each kernel. A kernel must have no spilled registers, and
no more shared memory than SHARED. With the compilers that wrote the table it must have no more registers than the table
says. With other compilers, which allocate differently, it may have half as many again.

A Triton kernel is compiled again only if its sources or Triton are others than those the table was written from.

``python tests/ahead_of_time.py`` writes the table again.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "native" / "CMakeFiles" / "_C_cuda.dir" / "kernels" / "cuda"
TABLE = Path(__file__).with_name("resources.json")
ARCHITECTURES = ("sm_80", "sm_90")
CUDA_SOURCES = {path.stem: path for path in sorted((ROOT / "kernels" / "cuda").glob("*.cu"))}
# The kernels of a part, <operation>_<part>.py, are listed by the operation.
_OPERATIONS = {path.stem for path in (ROOT / "seegera_fast" / "ops").glob("*.py")}
_LAUNCHERS = {path.stem for path in (ROOT / "kernels" / "triton").glob("*.py")}
TRITON_MODULES = tuple(sorted(_OPERATIONS & _LAUNCHERS - {"__init__"}))

# The largest shared memory of a block, in bytes, on the cards with the least of it, sm_86, sm_89 and sm_120: 99 of the
# 100 KB of a multiprocessor. The architectures above have 163 and 227 KB, so they would not show what such a card
# cannot launch.
SHARED = 99 * 1024

# Kernel -> architecture -> {"registers": registers of a thread, "spilled": bytes of a thread's spilled registers}. A
# Triton kernel also has "shared": shared memory of a block in bytes. nvcc refuses kernels with more than 48 KB.
Resources = dict[str, dict[str, dict[str, int]]]


@functools.cache
def find_nvcc() -> str | None:
    """The CUDA compiler: that of CUDACXX, of CUDA_HOME, or on PATH; None: there is none."""
    home = os.environ.get("CUDA_HOME")
    wanted = (os.environ.get("CUDACXX"), home and f"{home}/bin/nvcc", "nvcc")
    return next(filter(None, (shutil.which(name) for name in wanted if name)), None)


def has_triton() -> bool:
    """Whether Triton is installed. It is not imported here, because it reads TRITON_INTERPRET when it is imported."""
    return importlib.util.find_spec("triton") is not None


def run(command: Iterable[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command and captures its output. If it fails, a RuntimeError has the output."""
    done = subprocess.run(list(command), env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{done.args} ended with status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def run_python(*arguments: str | Path, **environment: str) -> str:
    """The output of a Python script, which has the module search path of this process."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return run([sys.executable, *arguments], PYTHONPATH=path, **environment).stdout


def nvcc_version() -> str:
    return re.search(r"V(\d+\.\d+\.\d+)", run([find_nvcc(), "--version"]).stdout)[1]


def triton_version() -> str:
    return importlib.metadata.version("triton")


@functools.cache
def find_reader() -> str | None:
    """cuobjdump, which reads compiled kernels: Triton's, or CUDA's on PATH; None: there is none."""
    spec = importlib.util.find_spec("triton")
    beside = spec and str(Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump")
    return next(filter(None, (shutil.which(name) for name in (beside, "cuobjdump") if name)), None)


def built(operation: str) -> Path | None:
    """What the native build has made of kernels/cuda/<operation>.cu; None: not there, or older than some source."""
    found = BUILD / f"{operation}.cu.o"
    sources = [CUDA_SOURCES[operation], ROOT / "CMakeLists.txt", *(ROOT / "kernels" / "cuda").rglob("*.*")]
    newest = max(path.stat().st_mtime for path in sources)
    return found if found.is_file() and found.stat().st_mtime > newest else None


def read_cuda(compiled: Path) -> Resources:
    """The kernels in a file, by their C++ names without namespaces and parameters."""
    resources: Resources = {}
    for part in run([find_reader(), "-res-usage", compiled]).stdout.split("\narch = ")[1:]:
        architecture = part.split()[0]
        for symbol, numbers in re.findall(r"Function (\w+):\s+(REG:.*)", part):
            usage = dict(re.findall(r"(\w+):(\d+)", numbers))
            # The stack of a kernel holds only spilled registers.
            spilled = int(usage["STACK"]) + int(usage["LOCAL"])
            kernel = resources.setdefault(_demangle(symbol), {})
            kernel[architecture] = {"registers": int(usage["REG"]), "spilled": spilled}
    return resources


def measure_cuda(operation: str) -> Resources:
    """The kernels of kernels/cuda/<operation>.cu: of the native build if it is for ARCHITECTURES, or compiled here."""
    compiled = built(operation)
    if compiled is not None and find_reader() is not None:
        found = read_cuda(compiled)
        if found and all(set(ARCHITECTURES) <= set(by_name) for by_name in found.values()):
            return found
    return compile_cuda(operation)


def compile_cuda(operation: str) -> Resources:
    """The kernels of kernels/cuda/<operation>.cu, by their C++ names without namespaces and parameters."""
    includes = [Path(importlib.util.find_spec("torch").origin).parent / "include", ROOT / "kernels" / "cuda"]
    with tempfile.TemporaryDirectory() as folder:
        command = [find_nvcc(), "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC", "--threads=0"]
        command += ["-DUSE_CUDA", "-DTORCH_TARGET_VERSION=0x020b000000000000"]
        command += [f"-gencode=arch={name.replace('sm', 'compute')},code={name}" for name in ARCHITECTURES]
        command += [f"-isystem={includes[0]}", f"-I{includes[1]}", "--resource-usage", "-c", CUDA_SOURCES[operation]]
        log = run([*command, "-o", f"{folder}/kernels.o"]).stderr
    entry = re.compile(
        r"Compiling entry function '(?P<name>\w+)' for '(?P<architecture>\w+)'.*?(?P<stack>\d+) bytes stack frame, "
        r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers",
        re.DOTALL,
    )
    resources: Resources = {}
    for match in entry.finditer(log):
        spilled = sum(int(match[what]) for what in ("stack", "stores", "loads"))
        kernel = resources.setdefault(_demangle(match["name"]), {})
        kernel[match["architecture"]] = {"registers": int(match["registers"]), "spilled": spilled}
    return resources


def _demangle(symbol: str) -> str:
    name = run(["c++filt", symbol]).stdout.strip().replace("(anonymous namespace)::", "").replace("seegera::cuda::", "")
    # "void kernel<float, 4>(parameters)"
    return re.search(r"(\w+(?:<[^()]*>)?)\(", name)[1]


def digest(operation: str) -> str:
    """A digest of the sources of an operation's Triton kernels, and of all that they import."""
    folder = ROOT / "kernels" / "triton"
    sources = [*folder.glob(f"{operation}.py"), *folder.glob(f"{operation}_*.py"), *folder.glob("common/*.py")]
    sources += [folder / "__init__.py", *(ROOT / "seegera_fast" / "reference").glob("*.py"), Path(__file__)]
    found = hashlib.sha256()
    for path in sorted(sources):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def measure_triton(operation: str) -> Resources:
    """The Triton kernels of an operation: of the table if it was written from the same sources, or compiled here."""
    table = json.loads(TABLE.read_text())
    if table["versions"]["triton"] != triton_version() or table["sources"].get(operation) != digest(operation):
        return compile_triton(operation)
    return {
        kernel: {name: {"registers": registers, "spilled": 0} for name, registers in by_name.items()}
        for kernel, by_name in table["triton"][operation].items()
    }


def compile_triton(operation: str) -> Resources:
    """The kernels that ``ahead_of_time()`` of kernels/triton/<operation>.py lists, compiled in another process."""
    with tempfile.TemporaryDirectory() as cache:
        arguments = (__file__, "--triton", operation)
        return json.loads(run_python(*arguments, TRITON_INTERPRET="0", TRITON_CACHE_DIR=cache))


def _compile_triton(operation: str) -> Resources:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    reader = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    module = importlib.import_module(f"seegera_fast.kernels.triton.{operation}")
    resources: Resources = {}
    for label, kernel, signature, constants, options in module.ahead_of_time():
        types = {name: kind.removesuffix(":16") for name, kind in signature.items()}
        # Triton's launcher compiles for pointers aligned to 16 bytes, as torch allocates, and sizes divisible by 16.
        aligned = [name for name, kind in signature.items() if kind.startswith("*") or kind.endswith(":16")]
        source = ASTSource(
            kernel,
            signature=types | dict.fromkeys(constants, "constexpr"),
            constexprs=constants,
            attrs={(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned},
        )
        for architecture in ARCHITECTURES:
            target = GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)
            compiled = triton.compile(source, target=target, options=options)
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(compiled.asm["cubin"])
                file.flush()
                usage = dict(re.findall(r"(\w+):(\d+)", run([reader, "-res-usage", file.name]).stdout))
            # The stack of a kernel holds only spilled registers.
            spilled = int(usage["STACK"]) + int(usage["LOCAL"])
            entry = resources.setdefault(f"{kernel.fn.__name__} {label}", {})
            shared = compiled.metadata.shared
            entry[architecture] = {"registers": int(usage["REG"]), "spilled": spilled, "shared": shared}
    return resources


def problems(compiler: str, operation: str, measured: Resources) -> list[str]:
    """A line for each kernel of an operation that needs too much. ``compiler``: "nvcc" or "triton"."""
    table = json.loads(TABLE.read_text())
    version = {"nvcc": nvcc_version, "triton": triton_version}[compiler]()
    known = table["versions"][compiler]
    allowed = table[compiler].get(operation, {})
    found = [f"{kernel}: in the table, but not compiled" for kernel in allowed if kernel not in measured]
    for kernel, architectures in measured.items():
        for architecture in ARCHITECTURES:
            name = f"{kernel} on {architecture}"
            limit = allowed.get(kernel, {}).get(architecture)
            if architecture not in architectures:
                found.append(f"{name}: not compiled")
                continue
            registers, spilled = architectures[architecture]["registers"], architectures[architecture]["spilled"]
            if spilled:
                found.append(f"{name}: {spilled} bytes of spilled registers")
            shared = architectures[architecture].get("shared", 0)
            if shared > SHARED:
                found.append(f"{name}: {shared} bytes of shared memory, {SHARED} at most")
            if limit is None:
                found.append(f"{name}: not in the table; write it anew with python tests/ahead_of_time.py")
            elif registers > limit * (1 if version == known else 1.5):
                found.append(
                    f"{name}: {registers} registers, {limit} in the table ({compiler} {version}, {known} there)"
                )
    return found


def write_table() -> None:
    """Compiles everything and replaces the table. Needs both compilers; a kernel that needs too much is an error."""
    table = {"versions": {"nvcc": nvcc_version(), "triton": triton_version()}}
    for compiler, operations, build in (
        ("nvcc", CUDA_SOURCES, measure_cuda),
        ("triton", TRITON_MODULES, compile_triton),
    ):
        table[compiler] = {}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compiled = zip(operations, pool.map(build, operations), strict=True)
        for operation, measured in compiled:
            greedy = [
                f"{kernel} on {name}"
                for kernel, by_name in measured.items()
                for name, found in by_name.items()
                if found["spilled"] or found.get("shared", 0) > SHARED
            ]
            if greedy:
                raise SystemExit(f"{operation}: spilled registers or too much shared memory in {', '.join(greedy)}")
            table[compiler][operation] = {
                kernel: {name: by_name[name]["registers"] for name in ARCHITECTURES}
                for kernel, by_name in sorted(measured.items())
            }
    table["sources"] = {operation: digest(operation) for operation in TRITON_MODULES}
    TABLE.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--triton"]:
        print(json.dumps(_compile_triton(sys.argv[2])))
    else:
        write_table()
