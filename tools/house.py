"""Checks that the package's imports only go down from layer to layer, and that no source file is too long.

python tools/house.py

draws the imports, layer by layer, and prints what is wrong. The exit status is 1 if something is wrong.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "seegera_fast"
# The layers from the top down. A module may import modules of its layer and of the layers below. A name is a module, or
# a folder with all its modules except those that are named here too. "__init__" is the package itself.
LAYERS = (
    ("__init__", "__main__"),
    ("command",),
    ("experiments", "estimator"),
    ("tasks",),
    ("training", "steps", "batches", "checkpoint", "checkpoint_file"),
    ("model", "prediction", "model_file", "matching", "capture"),
    ("nn", "blocks", "objective", "scores", "calibration", "sides", "masking", "config"),
    ("datasets", "environment"),
    ("graph", "graph_files", "importing", "subgraph", "pyg", "networks", "tables", "labels"),
    ("ops",),
    ("kernels",),
    ("reference",),
    ("checks", "backends", "schema", "registry", "transforms", "autocast", "precision"),
    # What the kernels tell Python: layouts and costs.
    ("kernels.cpu", "kernels.triton.costs"),
    (
        "sparse_matrix",
        "partition",
        "propagation",
        "compressed",
        "convert",
        "entries",
        "edge_keys",
        "seeds",
        "sampling",
        "row_ranges",
        "costs",
        "distributed",
    ),
    ("support", "version"),
)
HEIGHT = {name: -number for number, layer in enumerate(LAYERS) for name in layer}
SOURCES = ("bench", "kernels", "seegera_fast", "tools", "setup.py")
SUFFIXES = (".py", ".h", ".cpp", ".cu", ".cuh")
MOST_LINES = 450
# Files that a program writes. They may have any length.
GENERATED: tuple[str, ...] = ()


def modules(root: Path) -> dict[str, Path]:
    """The modules, by name without the package's name. A folder's ``__init__.py`` has the name of the folder.

    In a checkout the launchers of kernels are in a folder beside the package, though they are imported from it.
    """
    found = {}
    for top in (root / PACKAGE, root / "kernels"):
        for path in sorted(top.rglob("*.py")):
            parts = path.relative_to(root if top.name == "kernels" else top).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name or "__init__"] = path
    return found


def imports(root: Path) -> dict[str, set[str]]:
    """Module -> the modules that it imports, including imports in functions and for type checkers.

    Imports of names that are computed at run time are not found.
    """
    known = modules(root)
    return {name: _imported(name, path, known) - {name} for name, path in known.items()}


def _imported(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    found = set()
    parts = [] if name == "__init__" else name.split(".")
    package = parts if path.name == "__init__.py" else parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = [PACKAGE, *package[: len(package) + 1 - node.level], *base]
            targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        found |= {_module(target[1:], known) for target in targets if target[0] == PACKAGE}
    return found


def _module(parts: list[str], known: dict[str, Path]) -> str:
    """The module that has a dotted name, or that defines the name's last part."""
    while parts and ".".join(parts) not in known:
        parts = parts[:-1]
    return ".".join(parts) or "__init__"


def _part(module: str) -> str:
    """The name in LAYERS that a module belongs to; the first part of the module's name if there is none."""
    names = module.split(".")
    prefixes = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((prefix for prefix in prefixes if prefix in HEIGHT), names[0])


def wrong_imports(graph: dict[str, set[str]]) -> list[str]:
    """A line for each module in no layer, each import that goes up, and each circle of the other imports."""
    faults = [f"{module}: is in no layer" for module in graph if _part(module) not in HEIGHT]
    left: dict[str, set[str]] = {}
    for module, targets in graph.items():
        height = HEIGHT.get(_part(module), 0)
        above = {name for name in targets if HEIGHT.get(_part(name), 0) > height}
        faults += [f"{module}: imports {name}, which is above it" for name in sorted(above)]
        left[module] = targets - above
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
            return faults
        except graphlib.CycleError as error:
            # Each module in the list is imported by the next one, and the last is the first one again.
            circle = error.args[1][::-1]
            faults.append(f"circle: {' imports '.join(circle)}")
            left[circle[0]].remove(circle[1])


def long_files(root: Path) -> list[str]:
    """A line for each source file that is too long, except tests and generated files."""
    faults = []
    for top in SOURCES:
        paths = [root / top] if (root / top).is_file() else sorted((root / top).rglob("*"))
        for path in paths:
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and path.is_file() and name not in GENERATED:
                lines = len(path.read_text(encoding="utf-8").splitlines())
                if lines > MOST_LINES:
                    faults.append(f"{name}: has {lines} lines, want at most {MOST_LINES}")
    return faults


def faults(root: Path = ROOT) -> list[str]:
    """A line for each fault of either kind."""
    return wrong_imports(imports(root)) + long_files(root)


def drawing(root: Path = ROOT) -> str:
    """Draws the layers from the top down, and what each of their modules or folders imports from others."""
    arrows: dict[str, set[str]] = {}
    for module, targets in imports(root).items():
        arrows.setdefault(_part(module), set()).update(map(_part, targets))
    order = list(HEIGHT)
    lines = []
    for layer in LAYERS:
        lines.append(", ".join(layer))
        for name in layer:
            targets = sorted(arrows.get(name, set()) - {name}, key=order.index)
            lines += [f"    {name} imports {', '.join(targets)}"] if targets else []
    return "\n".join(lines)


if __name__ == "__main__":
    print(drawing())
    found = faults()
    print("\n".join(["", *found]) if found else "\nNothing goes up, nothing goes round, and no file is too long.")
    sys.exit(bool(found))
