"""Turns Ctrl-C and the signals of batch systems into a request to stop, so that work ends after a complete step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# What ends a process that does not expect it: the end of a batch job, of a terminal or a connection, and the warnings
# that Slurm and others can be asked to send before the time is up. Windows has fewer of them.
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)]


# In a block of requests_once: signal -> handler, of those that are ignored until its end.
_ignored: dict[int, Any] | None = None


class Stop:
    """Whether a signal has requested the work to stop."""

    requested = False


@contextmanager
def stop_on_signals(active: bool = True) -> Iterator[Stop]:
    """In the block, the first SIGINT or signal of ENDING is noted, and a SIGINT after that raises a KeyboardInterrupt.

    Further ones change nothing, because one request may come several times: ``timeout`` sends SIGTERM to a process
    and to its group, a batch system sends it to every process of a job, and a trial sends it to itself when its parent
    has ended.

    Signals that are ignored or for which the program has set a handler are left as they are. Outside of the main
    thread, which alone can set handlers, nothing is changed.
    """
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.requested = True

    usual = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(ENDING, signal.SIG_DFL)}
    taken = {}
    try:
        if active and threading.current_thread() is threading.main_thread():
            for number, handler in usual.items():
                if signal.getsignal(number) is handler:
                    taken[number] = signal.signal(number, note)
        yield stop
    finally:
        for number, handler in taken.items():
            if stop.requested and _ignored is not None and number in ENDING:
                signal.signal(number, signal.SIG_IGN)
                _ignored[number] = handler
            else:
                signal.signal(number, handler)


@contextmanager
def requests_once() -> Iterator[None]:
    """In the block, once a signal has ended one of :func:`stop_on_signals`, further ones of ENDING are ignored.

    So what the work has come to is written, though a batch system asks several times. SIGINT still interrupts.
    """
    global _ignored
    before, _ignored = _ignored, {}
    try:
        yield
    finally:
        handlers, _ignored = _ignored, before
        for number, handler in handlers.items():
            signal.signal(number, handler)
