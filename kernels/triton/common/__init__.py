"""Device functions that the kernels of several operations share: random numbers and elementary functions."""
