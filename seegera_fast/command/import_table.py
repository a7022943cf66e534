"""``seegera-fast import``: writes a table of any size as a graph's folder."""

from __future__ import annotations

import argparse
from typing import Any

from ..graph import Graph
from ..importing import MEMORY, import_tables
from ..support.atomic import require_writable
from ..support.hints import one_line
from ..tables.reading import Reading
from .options import Parser, add_table_files, read_path, require_apart, sizes
from .table_options import given_table_options, read_column

EXAMPLES = """\
examples:
  seegera-fast import edges.csv.gz --features x.parquet --labels y.csv --out web
      the folder "web", which train, embed, links and complete take as --graph, and Python as sf.Graph.open("web")
  seegera-fast import follows.parquet --weight strength --time since --memory 1 --out follows
      edges are sorted in 1 GiB; the larger the table, the more files beside the folder's, which are removed
"""


def add_import(commands: Any) -> Parser:
    """Adds and returns the command's parser."""
    found = commands.add_parser(
        "import",
        help="write a table of any size as a folder that opens at once",
        description="Reads tables, of which the edges need not fit into memory, and writes the folder of a graph, "
        "which the other commands take as --graph. The graph is the one that they would make of the tables.",
        epilog=EXAMPLES,
    )
    add_table_files(found)
    found.add_argument("--time", type=read_column, metavar="COLUMN", help="of the edges, their times. Default: none")
    found.add_argument(
        "--memory",
        type=_read_memory,
        default=MEMORY,
        metavar="GIB",
        help="what sorting the edges may take, and more if one node has more of them. The names of the nodes, the "
        f"features and the labels come on top; .npz is in memory as a whole. Default: {MEMORY / 2**30:g}",
    )
    found.add_argument("--out", type=read_path, required=True, metavar="FOLDER", help="that of a graph is replaced")
    found.add_argument("--quiet", action="store_true", help="nothing on stderr but warnings and errors")
    found.add_argument("--debug", action="store_true", help="show the traceback of an error")
    found.set_defaults(run=_import)
    return found


def _read_memory(text: str) -> int:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 2**20:
        raise argparse.ArgumentTypeError(f"got {text!r}, want a number of GiB above 0")
    return max(1, int(found * 2**30))


def _import(options: argparse.Namespace) -> int:
    require_apart(options, [options.out])
    require_writable(str(options.out), options.out.parent)
    weighted = options.weighted or options.weight is not None
    reading = Reading(**given_table_options(options), time=options.time, weighted=weighted).checked()
    import_tables(
        options.out,
        options.edges,
        options.features,
        options.labels,
        reading=reading,
        memory=options.memory,
        show=not options.quiet,
    )
    print(one_line(f"{options.out}: {sizes(Graph.open(options.out))}"))
    return 0
