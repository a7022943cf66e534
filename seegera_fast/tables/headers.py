"""Whether the first record of a text holds the names of its columns, and which columns are meant by usual names.

What is seen of a file is its first record and those below it in the first block of lines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..support.hints import short
from .names import NUMBER, is_integer
from .text import TextFile
from .values import is_number

# Names of columns are looked at in any case.
# A first column that pandas writes for an index without a name, and reads as the second of these.
INDEX = {"", "unnamed: 0"}
NODES = {"node", "id", "name", "node_id", "nodeid", "user", "item", "key", "source", "page", "paper", "title"}
CLASSES = {"label", "class", "labels", "y", "category", "group", "target", "type"}
# Of a single column: the names that are hardly labels themselves.
CLEAR_CLASSES = {"label", "class", "labels", "category"}
# Names of the ends of edges, which no other columns have. Wherever they are in a table, they are its ends.
CLEAR_ENDS = [
    *(("source", "target"), ("src", "dst"), ("source_id", "target_id"), ("src_id", "dst_id"), ("from_id", "to_id")),
    *(("from_node", "to_node"), ("source_node", "target_node"), ("src_node", "dst_node"), ("fromnodeid", "tonodeid")),
    *(("source_name", "target_name"), ("from_name", "to_name"), ("node_1", "node_2"), ("node_a", "node_b")),
]
# Names of the ends that other columns may have too, such as the years in which an edge begins and ends.
OTHER_ENDS = [
    *(("from", "to"), ("source", "destination"), ("source", "dest"), ("head", "tail"), ("u", "v"), ("i", "j")),
    *(("node1", "node2"), ("nodea", "nodeb"), ("id1", "id2"), ("id_1", "id_2"), ("citing", "cited")),
    *(("user", "item"), ("user_id", "item_id"), ("follower", "followee")),
]
ENDS = {name for pair in (*CLEAR_ENDS, *OTHER_ENDS) for name in pair}
# Names of ends that are hardly nodes.
CLEAR = {name for pair in CLEAR_ENDS for name in pair} | {"from", "to"}
# Names of what stands beside the ends: weights, times and kinds.
BESIDE = {
    *(
        "weight",
        "weights",
        "w",
        "strength",
        "value",
        "score",
        "rating",
        "similarity",
        "distance",
        "count",
        "n",
        "amount",
    ),
    *("quantity", "qty", "price", "time", "timestamp", "datetime", "date", "day", "month", "year", "since", "t"),
    *("type", "kind", "label", "relation"),
}
# Names of nodes, without "id", in tables whose two columns hold nodes of two kinds.
KINDS = {
    *("user", "customer", "client", "buyer", "reader", "viewer", "reviewer", "member", "student", "person", "author"),
    *("item", "product", "article", "movie", "film", "book", "game", "song", "track", "artist", "album", "course"),
    *("business", "shop", "restaurant", "group", "tag", "paper", "page", "document", "query", "actor", "company"),
    *("gene", "protein", "drug", "disease"),
}
# Names of a first column that numbers the edges.
EDGE_NUMBERS = INDEX | {"id", "edge", "edge_id", "edgeid", "index", "key", "row", "no", "nr", "number"}


def has_index(header: Sequence[str]) -> bool:
    """Whether the first column is the index of a data frame, without a name, before others."""
    return len(header) > 2 and header[0].lower() in INDEX


def node_place(header: Sequence[str]) -> int:
    """The place of the names of nodes: the first, unless that is an index and the second has a usual name."""
    return int(has_index(header) and header[1].lower() in NODES)


def ends_places(header: Sequence[str]) -> tuple[tuple[int, int], bool]:
    """The places of the ends, and whether others may be meant.

    They are the first two after an index, unless another pair of columns has usual names of ends.
    """
    known = [name.lower() for name in header]
    start = int(has_index(header))
    first, second = known[start : start + 2]
    default, every = (start, start + 1), (*CLEAR_ENDS, *OTHER_ENDS)
    if (first, second) in every or (second, first) in every:
        return default, False
    clear, other = (
        sorted((known.index(one), known.index(two)) for one, two in pairs if {one, two} <= {*known})
        for pairs in (CLEAR_ENDS, OTHER_ENDS)
    )
    if {first, second} <= ENDS and not any({*default} & {*pair} for pair in (*clear, *other)):
        return default, bool(clear)
    if clear:
        return clear[0], len(clear) > 1
    if other and (known[0] in EDGE_NUMBERS or {*other[0]} == {1, 2}):
        return other[0], len(other) > 1 or {*other[0]} != {1, 2}
    return default, bool(other)


def may_be_others(header: Sequence[str], ends: Sequence[int], stated: Collection[str | int | None]) -> bool:
    """Whether other columns than those that are read as the ends may be meant, because no names tell.

    Args:
        ends: the places of the two.
        stated: the columns, by name or number, that are stated to be the weight or the time.
    """
    known = [name.lower() for name in header]
    others = [place for place in range(int(has_index(header)), len(header)) if place not in ends]
    if known[ends[0]] in ENDS or not others:
        return False
    unknown = [k for k in others if known[k] not in BESIDE and k not in stated and header[k] not in stated]
    return bool(unknown) or not BESIDE.isdisjoint(known[place] for place in ends)


def kind_of(name: str) -> str | None:
    """The kind of nodes that a name of a column tells: "user" of user_id and UserID; None: it tells none."""
    kind = name.lower().removesuffix("id").rstrip("_ ")
    return kind if kind in KINDS else None


def is_header_of_edges(table: TextFile) -> tuple[bool, str | None]:
    """Whether a first record holds names of columns, and why a warning says so; None: nothing speaks against it.

    The names of two nodes come again in other lines, those of columns don't.
    """
    first, second = table.first, table.second
    if len(first) < 2 or second is None:
        return len(first) > 1 and {name.lower() for name in first[:2]} <= ENDS, None
    places, _ = ends_places(first)
    words, below = [first[place] for place in places], [table.below(place) for place in places]
    others = [place for place in range(len(first)) if place not in places]
    numbers = any(is_number(first[place]) for place in others)
    usual = {word.lower() for word in words}
    if usual <= ENDS:
        again = [any(word in column for column in below) for word in words]
        clear = usual <= CLEAR
        if all(again):
            return False, "because other lines have these names" if clear else None
        if numbers and not clear:
            return not any(again), None if any(again) else "though there is a number in it"
        return True, None
    if has_index(first) and are_places(first[1:]):
        return True, None
    if any(map(is_number, words)):
        header = are_places(first) and not any(is_integer(name) for column in below for name in column)
        return header, "because no other line has integers" if header else None
    if numbers or any(not first[place] for place in others if place or not has_index(first)):
        return False, None
    return has_index(first) or any(is_number(second[place]) for place in others if place < len(second)), None


def is_header_of_rows(table: TextFile, place: int, known: Collection[str]) -> tuple[bool, str | None]:
    """Whether a first record holds names of columns, above rows that have names; and why a warning says so, or None.

    Args:
        place: of the names of the nodes.
        known: the names of the nodes of the edges.
    """
    first, second = table.first, table.second or table.first
    name, below = first[place], second[place]
    others = [number for number in range(len(first)) if number != place and not (number == 0 and has_index(first))]
    numbers = [first[number] for number in others if is_number(first[number])]
    words = [number for number in others if first[number] and not is_number(first[number])]
    if name in known or not (words or _are_different_integers(numbers)):
        return False, None
    again = any(first[number] in table.below(number) for number in words)
    if name.lower() in NODES | INDEX:
        if again:
            return True, "though its words come again below"
        doubtful = not name and not words and is_number(below) and not are_places(numbers)
        return True, "because its first field is empty" if doubtful else None
    unknown = f"because {short(name)} is not among the edges"
    if is_number(name):
        header = are_places(first) and below in known and not is_number(below)
        return header, unknown if header else None
    if words and not numbers and any(is_number(second[number]) for number in words):
        return True, None
    if again:
        return False, None
    if is_integer(below) and all(map(is_integer, known)):
        # The name of a node would make words of all the integers.
        return True, None
    if numbers:
        return False, None
    if first[others[0]].lower() in CLASSES:
        return True, None
    header = below in known
    return header, unknown if header else None


def is_header_of_nameless_rows(first: Sequence[str], second: Sequence[str] | None) -> bool:
    """Whether a first record holds names of columns, above rows without names of nodes."""
    if any(map(is_number, first)):
        return False
    if len(first) == 1:
        usual = first[0].lower() in CLEAR_CLASSES
    else:
        usual = first[0].lower() in NODES | INDEX or first[1].lower() in CLASSES
    return usual or (second is not None and any(map(is_number, second)))


def _are_different_integers(fields: Sequence[str]) -> bool:
    """Whether fields may be the names of columns though they are numbers, as years are."""
    return all(map(NUMBER.fullmatch, fields)) and len({*fields}) == len(fields)


def are_places(fields: Sequence[str]) -> bool:
    """Whether fields are the numbers 0, 1, 2 and so on, which a data frame gives columns without names."""
    return list(fields) == [str(number) for number in range(len(fields))]
