"""Options that say which columns of the user's tables are what, and how the tables are read."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ..support.json_fields import Fields

# The options of Graph.from_table that the command has, besides those for files.
TABLE_OPTIONS = (
    *("source", "target", "weight", "node", "label", "categories"),
    *("names", "header", "separator", "encoding", "comments"),
)
SEPARATORS = {"tab": "\t", "blank": " ", "comma": ",", "semicolon": ";"}
# What messages say of an argument: names=False, or label= for any value.
NAMES = "|".join((*TABLE_OPTIONS, "features", "labels", "weighted", "public"))
ARGUMENT = re.compile(rf"\b({NAMES})=(?:(True\b|False\b|'[^']*')|(?=[ ,;)]|$))")
OF_FLAG = {
    **{(name, "False"): f"--no-{name}" for name in ("names", "header")},
    ("weighted", "False"): "no --weighted",
    ("public", "False"): "--split 0.1,0.1",
    **{(name, "True"): f"--{name}" for name in ("names", "header", "weighted")},
    **{("separator", repr(letter)): f"--separator {word}" for word, letter in SEPARATORS.items()},
}


def read_column(text: str) -> str | int:
    """A column by its name, or by its number from 0. A name of digits stands in double quotes."""
    if _is_number(text):
        return int(text)
    return text[1:-1] if text[:1] == text[-1:] == '"' and _is_number(text[1:-1]) else text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _column_in_words(column: str | int) -> str:
    """A column as :func:`read_column` reads it."""
    return f'"{column}"' if isinstance(column, str) and _is_number(column) else str(column)


def _read_columns(text: str) -> list[str | int]:
    return [read_column(part) for part in text.split(",")]


def _read_separator(text: str) -> str:
    found = SEPARATORS.get(text.lower(), text)
    if found not in SEPARATORS.values():
        raise argparse.ArgumentTypeError(f"got {text!r}, want one of {', '.join(SEPARATORS)}")
    return found


def add_table_options(parser: argparse.ArgumentParser, edges: str) -> None:
    """Adds the options; ``edges`` is what the help calls the table of edges."""
    group = parser.add_argument_group(
        "columns",
        f"of {edges} and the other tables, given by their name or by their number from 0; a name of digits in double "
        "quotes: '\"2020\"'",
    )
    for option, what in {
        "source": f"of {edges}, one end of each edge. Default: 0, or one called source, from or the like",
        "target": f"of {edges}, the other end. Default: 1, or one called target, to or the like",
        "weight": f"of {edges}, the weights, which are kept, as by --weighted. Default: the one called weight, or the "
        "third where there is no header",
        "node": "of --features and --labels, the names of the nodes. Default: 0",
        "label": "of --labels, the label; it is no feature where --features names the same file. Default: the one "
        "called label or class, or the only one",
    }.items():
        group.add_argument(f"--{option}", type=read_column, metavar="COLUMN", help=what)
    group.add_argument(
        "--categories",
        type=_read_columns,
        metavar="COLUMNS",
        help="of --features, columns of words, parted by commas: each word is a feature of 0 and 1",
    )
    group.add_argument(
        "--names",
        action=argparse.BooleanOptionalAction,
        help="nodes have names (words or any integers), or are numbered from 0 and have none. Default: numbered if all "
        "are integers from 0 and no table has a column of names",
    )
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="the first line has the names of the columns, or is data. Default: as it looks",
    )
    group.add_argument(
        "--separator",
        type=_read_separator,
        metavar="NAME",
        help=f"one of {', '.join(SEPARATORS)}. Default: as in the first line",
    )
    group.add_argument("--encoding", metavar="NAME", help="of text, such as latin-1. Default: utf-8")
    group.add_argument(
        "--comments", metavar="LETTERS", help="that start a line of comment, '' for none. Default: '#%%'"
    )


def checked_tables(fields: Fields) -> dict[str, Any]:
    """The options of tables in the results of a run, as :func:`given_table_options` returned them.

    Raises:
        ValueError: there is another field, or one of another kind.
    """
    fields.have((), TABLE_OPTIONS)
    for name in fields:
        value = fields.take(name)
        if name in ("names", "header"):
            fields.flag(name)
        elif name in ("separator", "encoding", "comments"):
            fields.text(name)
        else:
            parts = fields.items(name) if name == "categories" else [value]
            if any(isinstance(part, bool) or not isinstance(part, (str, int)) for part in parts):
                raise fields.wrong(name, "the name of a column, or its number from 0")
    return {name: fields.take(name) for name in fields}


def as_options(tables: Mapping[str, Any]) -> str:
    """Options of tables as one would type them."""
    words = []
    for name, value in tables.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name}")
            continue
        if name == "separator":
            value = next((key for key, letter in SEPARATORS.items() if letter == value), value)
        elif name not in ("encoding", "comments"):
            value = ",".join(map(_column_in_words, value if isinstance(value, list) else [value]))
        words += [f"--{name}", shlex.quote(value)]
    return " ".join(words)


def in_options(message: str) -> str:
    """A message of a graph or a task with the command's options in place of its arguments, such as ``names=False``."""

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        return OF_FLAG.get((name, value), f"--{name} {value}" if value else f"--{name}")

    return ARGUMENT.sub(option, message)


def given_table_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of Graph.from_table that the options give."""
    return {name: value for name in TABLE_OPTIONS if (value := getattr(options, name)) is not None}
