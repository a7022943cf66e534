"""Makes ``seegera_fast.kernels.triton`` importable from an installed package and from a checkout.

An installed package has the folder ``triton`` beside this file. A checkout has it in ``kernels/triton`` at its root,
next to the C++ and CUDA sources, so ``kernels`` is added to the search path. This is not done for an installed package,
because a folder ``kernels`` beside it may belong to another project.
"""

from pathlib import Path

_checkout = Path(__file__).resolve().parents[2] / "kernels"
if not Path(__file__).with_name("triton").is_dir() and (_checkout / "triton" / "__init__.py").is_file():
    __path__.append(str(_checkout))
