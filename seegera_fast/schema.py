"""The definitions of operators: a matrix is one argument there, and several tensors in torch's schema."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch


class Parts(NamedTuple):
    """A sparse matrix and its transpose, both by rows, as kernels take them.

    In the dense layout, which only the CPU has, ``values`` and ``values_t`` are the dense matrix and its transpose.
    """

    rowptr: torch.Tensor
    col: torch.Tensor
    values: torch.Tensor
    rowptr_t: torch.Tensor
    col_t: torch.Tensor
    values_t: torch.Tensor

    @property
    def flipped(self) -> Parts:
        """The transpose."""
        return Parts(*self[3:], *self[:3])


class Rows(NamedTuple):
    """A sparse matrix by rows, without its transpose."""

    rowptr: torch.Tensor
    col: torch.Tensor
    values: torch.Tensor


class Transposed(NamedTuple):
    """The transpose of a sparse matrix, without the matrix itself."""

    rowptr_t: torch.Tensor
    col_t: torch.Tensor
    values_t: torch.Tensor


# The words for a matrix in a definition, and the type of such an argument in a kernel's launcher.
MATRICES: dict[str, type] = {"Matrix": Parts, "Rows": Rows, "Transposed": Transposed}

# Words with another name in torch's schema language. What torch.compile has made takes any value of a SymInt.
SCHEMA_WORDS = {**dict.fromkeys(MATRICES, "Tensor"), "Constant": "Tensor", "int": "SymInt"}


class Argument(NamedTuple):
    """One argument of a definition."""

    name: str
    word: str
    optional: bool

    @property
    def flat(self) -> tuple[str, ...]:
        """The names of the tensors in torch's schema; a matrix has several."""
        return tuple(f"{self.name}_{part}" for part in MATRICES[self.word]._fields) if self.is_matrix else (self.name,)

    @property
    def is_matrix(self) -> bool:
        return self.word in MATRICES

    @property
    def schema(self) -> str:
        """The argument in torch's schema language."""
        kind = SCHEMA_WORDS.get(self.word, self.word)
        return ", ".join(f"{kind}{'?' if self.optional else ''} {name}" for name in self.flat)


def parse(definition: str) -> tuple[str, tuple[Argument, ...], tuple[str, ...]]:
    """Name, arguments and names of the results.

    Raises:
        TypeError: the definition is none.
    """
    match = re.fullmatch(r"(\w+)\((.*)\) -> (?:\((.+)\)|(\w+ \w+))", definition)
    if match is None:
        raise TypeError(f"definition: got {definition!r}, want 'name(Type argument, ...) -> Type result'")
    name, inside, several, single = match.groups()
    arguments = []
    for entry in inside.split(", "):
        word, argument = entry.split(" ")
        arguments.append(Argument(argument, word.removesuffix("?"), word.endswith("?")))
    results = tuple(entry.split(" ")[1] for entry in (several or single).split(", "))
    return name, tuple(arguments), results
