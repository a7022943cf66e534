"""Tables of edges, features and labels, in files or in memory, whose nodes may have names."""

from .from_table import FromTable

__all__ = ["FromTable"]
