"""Ctrl-C and SIGTERM as a wish to stop, for work that ends at a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether someone wishes the work to stop."""

    requested = False


@contextmanager
def stop_on_signals(active: bool = True) -> Iterator[Stop]:
    """Within the block, the first SIGINT or SIGTERM is noted, and a SIGINT after it raises a KeyboardInterrupt.

    A further SIGTERM is the same wish: ``timeout`` sends it to a process and to its group, a batch system to every
    process of a job, and a trial sends it to itself when its parent has ended.

    A signal that is ignored or that the program handles in a way of its own is left alone, and so are all of them in a
    thread other than the main one, which can't set handlers.
    """
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.requested = True

    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    taken = {}
    try:
        if active and threading.current_thread() is threading.main_thread():
            for number, handler in usual.items():
                if signal.getsignal(number) is handler:
                    taken[number] = signal.signal(number, note)
        yield stop
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
