"""What the kernels of several operations share: random numbers, elementary functions, ways to divide the work."""

from __future__ import annotations

from typing import Any

# Numbers of a program in the interpreter, where a program costs milliseconds whatever it does.
INTERPRETED = 2**18

# For the compiler. The default for fused multiply-adds differs between versions of Triton.
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


def compiled_as(
    label: str,
    kernel: Any,
    constants: dict[str, Any],
    types: dict[str, str],
    *,
    default: str = "i32",
    options: dict[str, Any] = OPTIONS,
) -> tuple:
    """An entry of an ``ahead_of_time()``: a kernel with a choice of constants and types, to be compiled without a GPU.

    Args:
        label: what tells the entry from others of the same kernel.
        constants, types: by the name of the argument, also of arguments that the kernel lacks; "i32:16" is an int32
            that is divisible by 16.
        default: the type of an argument that is in neither.
        options: for the compiler.

    Returns:
        (label, kernel, signature, constant arguments, compiler options).
    """
    constants = {name: constants[name] for name in kernel.arg_names if name in constants}
    signature = {name: types.get(name, default) for name in kernel.arg_names if name not in constants}
    return label, kernel, signature, constants, options
