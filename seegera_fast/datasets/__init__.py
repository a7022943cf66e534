"""Data sets by name: their readers, their downloads, and a graph that is built from scikit-learn's digits."""

from .registry import load, names

__all__ = ["load", "names"]
