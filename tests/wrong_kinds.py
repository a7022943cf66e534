"""Values of every kind in place of a valid argument, and what a refusal of them is."""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import pathlib
import re
import warnings

import numpy as np
import scipy.sparse
import torch
from small_objects import graph, model, networks
from valid_calls import calls

import seegera_fast as sf
from seegera_fast import backends

# --- values of every kind --------------------------------------------------------------------------------------------


class Strange:
    """An object that nothing knows."""

    def __repr__(self):
        return "Strange()"


def nested(*rows, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.as_tensor(row) for row in rows], **options)


@functools.cache
def pool():
    """Values of many kinds, by name. None, small numbers and short strings are right for some arguments."""
    values = {
        "None": None,
        "True": True,
        "an empty string": "",
        "a word": "abc",
        "all": "all",
        "a long string": "x" * 10**5,
        "NUL in a string": "a\0b",
        "a digit": "3",
        "bytes": b"abc",
        "-1": -1,
        "2^63": 2**63,
        "2^64": 2**64,
        "-2^64": -(2**64),
        "10^400": 10**400,
        "10^5000": 10**5000,
        "3.0": 3.0,
        "-0.5": -0.5,
        "1e308": 1e308,
        "NaN": float("nan"),
        "infinity": float("inf"),
        "complex": 1 + 2j,
        "Decimal": decimal.Decimal("0.5"),
        "Fraction": fractions.Fraction(1, 2),
        "a list": [1, 2],
        "an empty list": [],
        "ragged lists": [[1, 2], [3]],
        "a list in a list": ["all"],
        "a tuple": (1, 2),
        "a mapping": {"abc": 3},
        "a mapping of 1": {1: [True]},
        "a set": {1, 2},
        "a range": range(2),
        "an object": Strange(),
        "a type": int,
        "a function": len,
        "a date": datetime.date(2020, 1, 1),
        "Ellipsis": ...,
        "np.int64": np.int64(2),
        "np.uint64": np.uint64(2**63),
        "np.float32": np.float32(0.5),
        "np.float64 NaN": np.float64("nan"),
        "np.bool_": np.bool_(True),
        "np.str_": np.str_("abc"),
        "np.complex64": np.complex64(1j),
        "np.timedelta64": np.timedelta64(3, "ns"),
        "np.datetime64": np.datetime64("2020-01-01"),
        "array without dimensions": np.array(2),
        "float array without dimensions": np.array(0.5),
        "bool array without dimensions": np.array(True),
        "string array without dimensions": np.array("all"),
        "array": np.array([1, 2]),
        "array of one": np.array([1]),
        "array of strings": np.array(["a", "b"]),
        "array of objects": np.array([None, {}], dtype=object),
        "array of objects, square": np.full((6, 6), None),
        "array of dates": np.array(["2020-01-01"] * 6, dtype="datetime64[D]"),
        "structured array": np.zeros(6, dtype=[("a", int), ("b", float)]),
        "masked array": np.ma.masked_array(np.ones((6, 6)), mask=np.eye(6)),
        "big integers": [2**70] * 6,
        "large floats": np.full(6, 1e300),
        "uint64 beyond int64": np.full(6, 2**63, dtype=np.uint64),
        "SciPy matrix": scipy.sparse.identity(6, format="csr"),
        "Graph": graph(),
        "SparseMatrix": sf.SparseMatrix.from_any(np.eye(6)),
        "SeeGeraConfig": sf.SeeGeraConfig(),
        "Path": pathlib.Path("abc"),
        "networkx graph": networks(),
        "torch.Size": torch.Size([2]),
        "torch.dtype": torch.float16,
        "NumPy type": np.float32,
        "torch.device": torch.device("cpu"),
        "torch.device meta": torch.device("meta"),
        "cuda:99": "cuda:99",
        "xla": "xla",
        "generator": torch.Generator(),
        "tensor": torch.ones(6, dtype=torch.float64),
        "tensor of two": torch.ones(2),
        "bool tensor": torch.ones(6, dtype=torch.bool),
        "scalar tensor": torch.tensor(0.5),
        "int scalar tensor": torch.tensor(2),
        "bool scalar tensor": torch.tensor(True),
        "bfloat16 tensor": torch.ones(6, 6, dtype=torch.bfloat16),
    }
    return values | {f"square {name}": change(torch.ones(6, 6)) for name, change in CHANGES.items()}


# What may come of a tensor, by name.
CHANGES = {
    "on meta": lambda t: t.to("meta"),
    "mkldnn": lambda t: t.float().to_mkldnn() if t.numel() else t.float(),
    "nested": lambda t: nested(t, t),
    "jagged": lambda t: nested(t, t, layout=torch.jagged),
    "quantized": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8),
    "COO": lambda t: t.to_sparse(),
    "CSR": lambda t: t.reshape(t.shape[0], -1).to_sparse_csr() if t.ndim else t.to_sparse(),
    "complex": lambda t: t.to(torch.complex64),
    "conjugate": lambda t: t.to(torch.complex64).conj(),
    "of truth": lambda t: t != 0,
    "float16": lambda t: t.half(),
    "int8": lambda t: t.to(torch.int8),
    "uint16": lambda t: t.to(torch.uint16),
    "float8": lambda t: t.to(torch.float8_e4m3fn),
    "array": lambda t: t.numpy(),
    "list": lambda t: t.tolist(),
    "flat": lambda t: t.flatten(),
    "one more dimension": lambda t: t[None],
    "needs a gradient": lambda t: t.double().clone().requires_grad_(),
}


def candidates(valid):
    """What replaces an argument, by name: the pool, and other forms of a tensor."""
    found = dict(pool())
    if isinstance(valid, torch.Tensor) and valid.numel():
        found |= {f"itself {name}": functools.partial(change, valid) for name, change in CHANGES.items()}
    return found


# --- what a refusal is -----------------------------------------------------------------------------------------------


def bits(value):
    """What must not change: the elements of a tensor or matrix, and the attributes of an object."""
    if isinstance(value, torch.Tensor):
        unreadable = value.is_nested or value.is_quantized or value.is_meta or value.layout != torch.strided
        return (
            id(value)
            if unreadable
            else (value.dtype, value.detach().resolve_conj().flatten().view(torch.uint8).numpy().tobytes())
        )
    if isinstance(value, sf.SparseMatrix):
        return [bits(part) for part in (value.rowptr, value.col, value.values)] + [value.shape, value.layout]
    if isinstance(value, sf.Graph):
        return [
            bits(part) for part in (value.adjacency, value.features, value.labels, value.masks, value.name, value.nodes)
        ]
    if isinstance(value, torch.nn.Module):
        return [bits(dict(value.state_dict())), value.training, value._steps, bits(value.graph), value.config]
    if isinstance(value, torch.optim.Optimizer):
        return repr(value.state_dict())
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return id(value)


def state(arguments):
    """The arguments, the objects whose methods are called, and what the process shares."""
    shared = [
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_rng_state().numpy().tobytes(),
        backends.forced(),
    ]
    return [bits(arguments), bits(graph()), bits(model()), shared]


SIZED = (torch.Tensor, sf.SparseMatrix)


def plain(value):
    """NumPy's numbers count as Python's."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 else value


def names_one(message, names):
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in names)


def outcome(function, given):
    """The error of a call; None: there was none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**given)
    except Exception as error:
        return error
    return None


def check(name, replaced, folder):
    """Calls a function with some arguments replaced, and checks how it refuses them if it does."""
    function, arguments = calls(folder)[name]
    values = {}
    for argument, kind in replaced.items():
        value = candidates(arguments[argument])[kind]
        values[argument] = value() if isinstance(value, functools.partial) else value
    given = {**arguments, **values}
    before = state(given)
    error = outcome(function, given)
    if error is None:
        return
    refused = isinstance(error, (TypeError, ValueError))
    # With a value of the right kind, another argument may be named, whose size does not fit.
    same = any(isinstance(plain(value), type(arguments[argument])) for argument, value in values.items())
    named = refused and names_one(str(error), arguments if same else values)
    # No path is wrong by its kind, and the reference leaves sizes to torch.
    elsewhere = isinstance(error, OSError) and {"path", "root", "folder", "edges", "features", "labels"} & {*values}
    sizes = name.startswith("reference.") and any(isinstance(value, SIZED) for value in given.values()) and same
    told = f"{name}({replaced}): {type(error).__name__}: {error}"
    assert named or elsewhere or sizes, told
    assert elsewhere or len(str(error)) < 1000, told
    assert state(given) == before, f"{name}({replaced}) changed something"
