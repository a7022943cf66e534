"""Data sets by name: readers, checked downloads and the graph that is built from scikit-learn's digits."""

from .registry import load, names

__all__ = ["load", "names"]
