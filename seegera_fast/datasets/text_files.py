"""Reads text files with one record per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..support.hints import short

# Lines of about so many letters are read at once.
BLOCK = 2**16


def records(path: Path, want: str, most: int = -1) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number and the fields of each line that isn't empty. Commas or blanks part them.

    Numbers in other digits than 0 to 9, and ``1_0`` for 10, which Python reads, are refused.

    Args:
        path: the file. ``#`` starts a comment. A byte order mark is skipped.
        want: what a line should hold, for error messages.
        most: the number of fields that a line may have; more come as one more field. -1: any number.

    Raises:
        OSError: the file can't be read.
        ValueError: a line isn't text or has an empty field; the message names the file and the line.
    """
    number = 0
    # A byte that is not UTF-8 is kept as a surrogate, so that the error names its line. In comments any byte may stand.
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        # Many lines are checked at once, which costs less than each by itself.
        while lines := file.readlines(BLOCK):
            block = "".join(lines)
            commented, suspect = "#" in block, _has_other_letters(block) or _has_gaps(block)
            for line in lines:
                number += 1
                text = line.partition("#")[0] if commented else line
                if suspect and _has_other_letters(text):
                    raise wrong_line(path, number, text.split(), f"{want}, in the digits 0 to 9")
                if suspect and _has_gaps(text):
                    raise wrong_line(path, number, [text], f"{want}, and no empty fields")
                fields = text.replace(",", " ").split(None, most)
                if fields:
                    yield number, fields


def _has_other_letters(text: str) -> bool:
    return "_" in text or not text.isascii()


def _has_gaps(text: str) -> bool:
    """Whether a line has an empty field between commas or at an end, which would move the fields after it.

    Of a block of lines: whether one of them may have it.
    """
    if "," not in text:
        return False
    packed = text.replace(" ", "").replace("\t", "").strip("\n").replace("\n", ",").replace("#", ",")
    return packed[0] == "," or packed[-1] == "," or ",," in packed


def wrong_line(path: Path, number: int, fields: list[str], want: str) -> ValueError:
    """The error for a line with other fields than wanted."""
    got = " ".join(fields).strip()
    if any("\udc80" <= letter <= "\udcff" for letter in got):
        return ValueError(f"{path}, line {number}: is not a text file in UTF-8, want {want}")
    return ValueError(f"{path}, line {number}: got {short(got)}, want {want}; a line of comment starts with #")
