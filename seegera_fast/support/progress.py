"""Progress of long work on standard error: a bar at a terminal and in a notebook, else a line now and then."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

from tqdm import tqdm

from .report import readable_bytes, readable_seconds

# The time between two lines: at first, and at most. In between it is a twentieth of the time so far, so that the log of
# a long run stays short.
LINE_SECONDS, MOST_LINE_SECONDS = 30.0, 300.0
# The time between two looks of a phase at the clock.
TICK_SECONDS = 1.0


class Steps:
    """Progress of work that consists of steps. Used in a ``with`` block.

    At a terminal and in a notebook it is a bar. Where standard error is a file or a pipe, and on a terminal without a
    cursor (``TERM=dumb``), it is a line after 30 seconds, then at growing intervals of up to 5 minutes.

    Args:
        total: number of steps; None: unknown.
        unit: what a step is, such as "epoch"; "B" for bytes.
        show: False: nothing is shown.
        done: number of steps that were done before.
        name: what the work is.
    """

    def __init__(self, total: int | None, unit: str, *, show: bool, done: int = 0, name: str = "") -> None:
        self.total, self.unit, self.name = total, unit, name
        self.done = self._before = done
        self._show = show and sys.stderr is not None
        self._bar = None
        self._facts: Mapping[str, Any] = {}
        # How many pieces of the next step are done, and of how many.
        self._within: tuple[int, int | None] | None = None
        if self._show:
            self._bar = _bar(total=total, initial=done, unit=unit, unit_scale=unit == "B", desc=name or None)
        self._clock = _Clock()

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, steps: int = 1, **facts: Any) -> None:
        """Notes that steps were done. The facts, by name, are shown until others are given."""
        self.done += steps
        if facts:
            self._facts = facts
        if self._bar is not None:
            if self._within is not None:
                self._bar.n = self.done - steps
            self._bar.update(steps)
            if facts:
                self._bar.set_postfix(facts, refresh=False)
        self._within = None
        self._line_if_due()

    def within(self, done: int, total: int | None) -> None:
        """Notes how much of the next step is done, if it has several pieces."""
        if total == 1:
            return
        self._within = done, total
        if self._bar is not None:
            if total is not None:
                # A whole number as an int, which is shown without a point.
                self._bar.n = self.done + (1 if done == total else round(done / total, 2))
            self._bar.set_postfix({**self._facts, "batch": _of(done, total, "/")}, refresh=False)
            self._bar.update(0)
        self._line_if_due()

    def wait(self, text: str) -> None:
        """Shows what is being done, between two steps."""
        self._facts = {"running": text} if text else {}
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.refresh()
        self._line_if_due()

    def note(self, text: str) -> None:
        """Writes a line that stays."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        elif self._show:
            print(text, file=sys.stderr)

    def _line_if_due(self) -> None:
        if self._show and self._bar is None and self._clock.due():
            print(self._line(), file=sys.stderr, flush=True)

    def _line(self) -> str:
        of = "" if self.total is None else f" of {self._count(self.total)}"
        count = f"{self._count(self.done)}{of}"
        parts = [f"{self.name}: {count}" if self.unit == "B" else f"{self.unit} {count}"]
        parts += [f"{name} {_shown(value)}" for name, value in self._facts.items()]
        steps = self.done - self._before
        if self._within is not None:
            parts.append(f"batch {_of(*self._within)} of the next")
            steps += self._within[0] / (self._within[1] or math.inf)
        if steps:
            each = self._clock.seconds / steps
            parts.append(f"{readable_seconds(self._clock.seconds)} so far")
            if self.total is not None and self.total > self.done:
                parts.append(f"about {readable_seconds(each * (self.total - self._before - steps))} left")
        return ", ".join(parts)

    def _count(self, steps: int) -> str:
        return readable_bytes(steps) if self.unit == "B" else str(steps)


@contextlib.contextmanager
def phase(name: str, *, show: bool) -> Iterator[None]:
    """Shows that the block is at work, if it takes a while, where no steps can be counted.

    At a terminal this is its name and a clock, which go away at its end; else a line as often as those of
    :class:`Steps`.
    """
    if not show or sys.stderr is None:
        yield
        return
    end = threading.Event()
    thread = threading.Thread(target=_tick, args=(name, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _tick(name: str, end: threading.Event) -> None:
    bar, clock = None, _Clock()
    if end.wait(TICK_SECONDS):
        return
    bar = _bar(desc=name, bar_format="{desc}: {elapsed}", leave=False)
    while True:
        if bar is not None:
            bar.refresh()
        elif clock.due():
            print(f"{name}: {readable_seconds(clock.seconds)} so far", file=sys.stderr, flush=True)
        if end.wait(TICK_SECONDS):
            break
    if bar is not None:
        bar.close()


class _Clock:
    """Says when a line is due."""

    def __init__(self) -> None:
        self._start = self._last = monotonic()

    @property
    def seconds(self) -> float:
        return monotonic() - self._start

    def due(self) -> bool:
        """Whether it is time for a line, which the caller then writes."""
        now = monotonic()
        if now - self._last < min(max(LINE_SECONDS, (now - self._start) / 20), MOST_LINE_SECONDS):
            return False
        self._last = now
        return True


def _bar(**options: Any) -> Any:
    """A bar where standard error shows one; None: it doesn't."""
    if _in_notebook():
        from tqdm import notebook

        # Without ipywidgets, the bar is made of text.
        kind = tqdm if notebook.IProgress is None else notebook.tqdm
        return kind(file=sys.stderr, **options)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return tqdm(file=sys.stderr, dynamic_ncols=True, **options)
    return None


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _of(done: int, total: int | None, word: str = " of ") -> str:
    return f"{done}" if total is None else f"{done}{word}{total}"


def _shown(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
