"""The names of arguments in messages: those of the function that the user has called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_NAMES: ContextVar[Mapping[str, str]] = ContextVar("names", default={})  # noqa: B039 - nobody changes it


@contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """Gives errors and warnings of the block another name of the argument that they begin with.

    Args:
        names: what the block calls an argument -> what the user has given, such as another argument or a file.
    """
    outer = _NAMES.get()
    token = _NAMES.set({**outer, **{name: outer.get(given, given) for name, given in names.items()}})
    try:
        yield
    except (TypeError, ValueError) as error:
        message = _renamed(str(error), names)
        if message == str(error):
            raise
        raise type(error)(message) from error
    finally:
        _NAMES.reset(token)


def renamed(message: str) -> str:
    """A warning with the names that the blocks around it give to arguments."""
    return _renamed(message, _NAMES.get())


def _renamed(message: str, names: Mapping[str, str]) -> str:
    argument, separator, reason = message.partition(": ")
    return f"{names.get(argument, argument)}{separator}{reason}"
