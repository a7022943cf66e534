"""Tables of edges, features and labels, in files or in memory, whose nodes may have names."""

from .columns import require_pyarrow, write_parquet
from .from_table import FromTable
from .join import name_of_table

__all__ = ["FromTable", "name_of_table", "require_pyarrow", "write_parquet"]
