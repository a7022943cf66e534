"""Tables of edges, features and labels, in files or in memory, whose nodes may have names."""

from .columns import require_pyarrow, write_parquet
from .from_table import FromTable

__all__ = ["FromTable", "require_pyarrow", "write_parquet"]
