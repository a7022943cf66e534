"""Home of ``seegera_fast.kernels.triton``: installed beside this file, and in a checkout at its root.

In a checkout the Triton sources stand in ``kernels/triton``, next to the C++ and CUDA ones, so that ``kernels`` joins
the search path. An installed package must not do so: the folder of that name beside it may be another project's.
"""

from pathlib import Path

_checkout = Path(__file__).resolve().parents[2] / "kernels"
if not Path(__file__).with_name("triton").is_dir() and (_checkout / "triton" / "__init__.py").is_file():
    __path__.append(str(_checkout))
