"""What the CPU kernels cost, where an operation has two forms to choose from."""

from __future__ import annotations

from seegera_fast.costs import Costs

# `entry` and `sparse`: measured on six data sets at widths 64 and 512, on two cores of a processor whose name was not
# kept. How `averaging` was found was not kept either.
COSTS = Costs(sparse=4.5, entry=30, averaging=8)
