"""What the Triton kernels cost, where an operation has two forms to choose from."""

from __future__ import annotations

from seegera_fast.costs import Costs

# Not measured on a GPU: the numbers of the CPU.
COSTS = Costs(sparse=4.5, entry=30, averaging=8)
