"""Triton kernels and their launchers, one file per operation. Nothing is compiled or autotuned at import."""
