"""Makes the Triton kernels importable as ``seegera_fast.kernels.triton``: installed beside this file, or in a checkout."""

from pathlib import Path

_checkout = Path(__file__).resolve().parents[2] / "kernels"
if (_checkout / "triton" / "__init__.py").is_file():
    __path__.append(str(_checkout))
