"""Text files with one record per line: how a line is split into fields. Within quotes a record may go on in the next.

A file is one of numbers as long as each line is. Then blanks part the fields, or commas, which may be in a part of the
lines only (a line with both, such as ``0 1,5``, is refused, since that comma may be a decimal one); and ``#`` starts a
comment anywhere in a line, where lines of comment start with it. In any other file one separator parts the fields: that
of the first record, which is a tab, a comma or a semicolon if it has one, else blanks. A first record with a tab or a
comma tells decimal commas, and words of digits with blanks, from numbers; one with ``#`` right after a number tells
words such as ``1#a``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..support.hints import short
from .lines import BLOCK, COMMENTS, NUMERIC, texts

NUMBERS = re.compile(r"[0-9.eE+\-, \t]*")
SEPARATORS = ("\t", ",", ";")
EXCEL = re.compile(r'"?sep=.?"?', re.IGNORECASE)
BLANKS = re.compile(r"[ \t\n]+")
# Blanks within a field, where commas part the fields.
WITHIN = re.compile(r"[^, \t][ \t]+[^, \t]")
# A field in quotes, in which two quotes stand for one, or a field without; then what parts it from the next.
QUOTED = r'"((?:[^"]|"")*)"'
# A line that doesn't close the quote that its last field begins with, without its other fields in quotes.
OPEN = re.compile(r'(?:^|[\t,; ])"[^"]*$')
FIELDS = {
    **{sep: re.compile(rf"[ ]*(?:{QUOTED}[ ]*|([^{sep}\"]*))({sep}|$)") for sep in SEPARATORS},
    " ": re.compile(rf'(?:{QUOTED}|([^ \t"]+))([ \t]+|$)'),
}


@dataclass(frozen=True, slots=True)
class Block:
    """Records of one width.

    Attributes:
        fields: all fields, record after record. None stands for a field that a shorter record lacks.
        width: the number of fields of a record.
        lines: the line number of each record.
    """

    fields: list[str | None]
    width: int
    lines: range | np.ndarray

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, place: int) -> list[str | None]:
        return self.fields[place :: self.width]

    def record(self, number: int) -> list[str]:
        return [field for field in self.fields[number * self.width : (number + 1) * self.width] if field is not None]

    def after(self, number: int) -> Block:
        """The records from ``number`` on."""
        return Block(self.fields[number * self.width :], self.width, self.lines[number:])


class TextFile:
    """The records of a text file, which may be compressed by gzip.

    Args:
        path: the file.
        want: what a line should hold, for messages.
        widths: the numbers of fields that records may have; others, and None: as many as the first record.
        separator: one letter, " " for blanks, or None: that of the first record.
        encoding: None: UTF-8.
        comments: the letters that start a line of comment.

    Attributes:
        path, want: the arguments.
        first, second: the fields of the first two records, or None.
        first_line: the line of the first record.
        size, done: the number of bytes of the file (None: it is a pipe), and how many were read.
        titles: the names of the columns; None: there are none, or they are not known yet. Who reads the file sets them.
        comments_inside: the number of lines of comment after the first record, in a file that is not one of numbers.
    """

    unit = "B"

    def __init__(
        self,
        path: Path,
        want: str,
        *,
        widths: tuple[int, ...] = (),
        separator: str | None = None,
        encoding: str | None = None,
        comments: str = COMMENTS,
    ) -> None:
        self.path, self.want = path, want
        self.comments_inside = 0
        self.titles: list[str] | None = None
        self.first: list[str] | None = None
        self.second: list[str] | None = None
        self._comments, self._widths, self._separator = comments, widths, separator
        # Whether all lines so far are numbers; None: there is no line yet.
        self._numbers = None if separator is None else False
        # The first line that is split in another way if the file turns out not to be one of numbers.
        self._mixed = 0
        # The beginning of a record that the next block of lines goes on with, and its line.
        self._begun: tuple[int, str] | None = None
        self.size, self.done = path.stat().st_size if path.is_file() else None, 0
        self._blocks = self._split(texts(path, encoding, comments, want, self._note))
        self._head = next(self._blocks, None)
        if self._head is not None:
            self.first, self.first_line = self._head.record(0), self._head.lines[0]
            self.second = self._head.record(1) if len(self._head) > 1 else None

    def _note(self, done: int) -> None:
        self.done = done

    def place(self, line: int) -> str:
        return f"{self.path}, line {line}"

    def wrong(self, line: int, fields: list[str], want: str | None = None) -> ValueError:
        """The error for a record with other fields than wanted."""
        return ValueError(
            f"{self.place(line)}: got {short(' '.join(fields).strip())}, want {want or self.want}"
            + (f"; a line of comment starts with {self._comments[0]}" if self._comments else "")
        )

    def below(self, place: int) -> list[str]:
        """The fields of a column below the first record, as far as the first block of lines has them."""
        return self._head.fields[self._head.width + place :: self._head.width]

    def blocks(self, skip: int = 0) -> Iterator[Block]:
        """The records after the first ``skip`` (0 or 1). They are read once."""
        head, self._head = self._head, None
        if head is not None and len(head) > skip:
            yield head.after(skip)
        head = None
        yield from self._blocks

    def _split(self, blocks: Iterator[tuple[int, str]]) -> Iterator[Block]:
        started = False
        for line, text in blocks:
            if self._begun is not None:
                (line, before), self._begun = self._begun, None
                text = before + text
            started = started or self._start(self._records(line, text))
            block = started and (self._at_once(line, text) or self._one_by_one(self._records(line, text)))
            if block:
                yield block
        if self._begun is not None:
            raise self._not_closed(*self._begun)

    def _records(self, first: int, text: str) -> Iterator[tuple[int, str]]:
        """The lines, and each record that goes on within quotes as if it were one; it has the number of its first."""
        begun, parts, length = first, [], 0
        for line, part in enumerate(text.split("\n")[:-1], first):
            if not parts and not self._opens(part):
                yield line, part
                continue
            begun = begun if parts else line
            parts.append(part)
            length += len(part)
            if length > BLOCK:
                raise self._not_closed(begun, parts[0])
            if len(parts) > 1 and part.count('"') % 2:
                yield begun, "\n".join(parts)
                parts, length = [], 0
        self._begun = (begun, "\n".join([*parts, ""])) if parts else None

    def _opens(self, line: str) -> bool:
        """Whether a line ends within quotes."""
        if line.count('"') % 2 == 0 or line[0] in self._comments or self._numbers_of(line) is not None:
            return False
        return bool(OPEN.search(re.sub(QUOTED, "", line)))

    def _not_closed(self, line: int, text: str) -> ValueError:
        opened = text.partition("\n")[0]
        return self.wrong(line, [opened], f"{self.want}; a quote is opened there, and not closed in the lines below")

    def _start(self, records: Iterator[tuple[int, str]]) -> bool:
        """Finds the first record and by it the separator and the number of fields; False: there is no record yet."""
        for line, record in records:
            if not record.strip(" \t") or record[0] in self._comments:
                continue
            bare = self._without_comment(record)
            if not bare.strip(" \t"):
                continue
            if EXCEL.fullmatch(record):
                raise self.wrong(line, [record], f"{self.want}: leave out this line for Excel, separator= states it")
            if self._numbers is None:
                self._numbers = bool(NUMBERS.fullmatch(bare)) and (bare == record or bare[-1] in " \t")
            if self._separator is None:
                outside = re.sub(QUOTED, "", bare if self._numbers else record).strip(" \t")
                found = [separator for separator in SEPARATORS if separator in outside]
                if not self._numbers and found[-2:] == [",", ";"] and "\t" not in found:
                    raise ValueError(
                        f"{self.place(line)}: got both commas and semicolons, want {self.want}; the separator is "
                        "stated, as in separator=';', and decimals are written with a point"
                    )
                self._separator = found[0] if found else " "
            # A column without a name, as pandas writes that of the index, stands in a header.
            self._numbers = self._numbers and self._numbers_of(record) is not None and bare.lstrip(" \t")[0] != ","
            fields = self._fields(line, record)
            if fields:
                if len(fields) not in self._widths:
                    self._widths = (len(fields),)
                return True
        return False

    def _at_once(self, line: int, text: str) -> Block | None:
        """The records of a block of lines that are all of the usual kind; None: they are not."""
        if any(f"\n{letter}" in text or text[0] == letter for letter in self._comments) or "\n\n" in text:
            return None
        content = text.encode()
        separator, blanks = self._separator, " " in text or "\t" in text
        if self._numbers:
            if content.translate(None, NUMERIC) or ("," in text and blanks) or "\t\t" in text:
                return None
            separator = "," if "," in text else " "
        if separator == " ":
            width = None if '"' in text else _words_per_line(content)
            if width in self._widths:
                fields = text.split() if text.isascii() else [field for field in BLANKS.split(text) if field]
                return self._regular(line, fields, width)
            return None
        width = _fields_per_line(content, separator)
        if width not in self._widths:
            return None
        fields = text[:-1].replace("\n", separator).split(separator)
        if blanks:
            fields = [field.strip(" \t") for field in fields]
        if '"' in text:
            quoted = sum(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)
            if 2 * quoted != text.count('"'):
                return None
            fields = [field[1:-1] if field[:1] == '"' else field for field in fields]
        return None if self._numbers and "" in fields else self._regular(line, fields, width)

    @staticmethod
    def _regular(line: int, fields: list[str], width: int) -> Block:
        return Block(fields, width, range(line, line + len(fields) // width))

    def _one_by_one(self, lines: Iterator[tuple[int, str]]) -> Block | None:
        records, numbers = [], []
        for line, text in lines:
            if text and text[0] in self._comments:
                self.comments_inside += bool(records or self.first) and not self._numbers
                continue
            fields = self._fields(line, text)
            if fields:
                self._check_width(line, fields)
                records.append(fields)
                numbers.append(line)
        if not records:
            return None
        width = max(map(len, records))
        if any(len(record) < width for record in records):
            records = [[*record, *[None] * (width - len(record))] for record in records]
        # They are kept to the end, and as Python's integers they would take five times as much.
        contiguous = numbers[-1] - numbers[0] == len(numbers) - 1
        lines = range(numbers[0], numbers[-1] + 1) if contiguous else np.array(numbers)
        return Block([field for record in records for field in record], width, lines)

    def _check_width(self, line: int, fields: list[str]) -> None:
        if len(fields) not in self._widths:
            columns = " or ".join(map(str, self._widths))
            raise self.wrong(line, fields, f"{self.want} ({len(fields)} columns, want {columns} as in the lines above)")

    def _fields(self, line: int, text: str) -> list[str]:
        """The fields of one line; of an empty line, and of one that is a comment, none."""
        if self._numbers:
            bare = self._numbers_of(text)
            if bare is not None:
                return self._fields_of_numbers(line, bare, text)
            if self._separator == " " and NUMBERS.fullmatch(self._without_comment(text)):
                raise self.wrong(
                    line,
                    [text],
                    f"{self.want}, parted by blanks or by commas; separator=' ' keeps commas within fields",
                )
            # This line is of words, and so is the file.
            if self._mixed:
                raise self.wrong(
                    line,
                    [text],
                    f"{self.want}, or one separator in all lines, which line {self._mixed} is not split by",
                )
            self._numbers = False
        if not text.strip(" \t"):
            return []
        if '"' in text:
            return self._fields_with_quotes(line, text)
        if self._separator == " ":
            return BLANKS.split(text.strip(" \t"))
        return _parted(text, self._separator)

    def _without_comment(self, text: str) -> str:
        return text.partition("#")[0] if "#" in self._comments else text

    def _numbers_of(self, text: str) -> str | None:
        """A line of numbers without its comment; None: it is another line."""
        bare = self._without_comment(text)
        within = "," in bare and WITHIN.search(bare)
        return bare if NUMBERS.fullmatch(bare) and not within else None

    def _fields_of_numbers(self, line: int, bare: str, text: str) -> list[str]:
        fields = BLANKS.split(bare.replace(",", " ").strip(" \t"))
        if ("," in bare and "" in _parted(bare, ",")) or "\t\t" in bare.strip(" \t"):
            raise self.wrong(line, [text], f"{self.want}, and no empty fields")
        if fields == [""]:
            return []
        if not self._mixed:
            strict = BLANKS.split(text.strip(" \t")) if self._separator == " " else _parted(text, self._separator)
            if strict != fields:
                self._mixed = line
        return fields

    def _fields_with_quotes(self, line: int, text: str) -> list[str]:
        fields, at, end = [], 0, None
        text = text.strip(" \t") if self._separator == " " else text
        while at < len(text) or end == self._separator != " ":
            found = FIELDS[self._separator].match(text, at)
            if found is None or not found.group():
                if found is not None and at == len(text):
                    fields.append("")
                    break
                raise self.wrong(line, [text], f"{self.want}, with quotes only around whole fields")
            inside, plain, end = found.groups()
            fields.append(plain.strip(" \t") if inside is None else inside.replace('""', '"'))
            at = found.end()
        return fields


def _parted(text: str, separator: str) -> list[str]:
    return [field.strip(" \t") for field in text.split(separator)]


def _words_per_line(content: bytes) -> int | None:
    """The number of words in each line, between blanks; None: the lines differ, or some are empty."""
    letters = np.frombuffer(content, np.uint8)
    blank = letters <= 32
    starts = ~blank
    starts[1:] &= blank[:-1]
    counts = np.diff(np.cumsum(starts, dtype=np.int32)[letters == 10], prepend=0)
    return int(counts[0]) if (counts == counts[0]).all() else None


def _fields_per_line(content: bytes, separator: str) -> int | None:
    """The number of fields in each line; None: the lines differ."""
    letters = np.frombuffer(content, np.uint8)
    parts = letters[(letters == ord(separator)) | (letters == 10)]
    lines = content.count(b"\n")
    width = parts.size // lines
    if width * lines != parts.size:
        return None
    grid = parts.reshape(lines, width) == 10
    return width if grid[:, -1].all() and not grid[:, :-1].any() else None
