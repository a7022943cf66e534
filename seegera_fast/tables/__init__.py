"""Tables of edges, features and labels, in files or in memory, whose nodes may have names."""

from .join import Parts, parts_of_graph
from .reading import Reading

__all__ = ["Parts", "Reading", "parts_of_graph"]
