"""Writes files so that they are either complete or not there, and keeps a file or folder for one run."""

from __future__ import annotations

import glob
import os
import platform
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError as error:
    raise ImportError("seegera_fast: this system has no locks of POSIX, want Linux, such as that of WSL") from error

# How the names of temporary files and folders end, and those of folders that are being replaced.
SUFFIX, FORMER = ".part", ".former"
# What such a name has before its end, as a pattern.
TOKEN = "[0-9a-f]" * 8


class Unwritable(OSError):
    """A file or folder can't be written. The message names it and the cause."""

    def __init__(self, name: str | Path, cause: OSError | str) -> None:
        reason = cause if isinstance(cause, str) else cause.strerror or str(cause)
        super().__init__(f"{name} can't be written: {reason}")
        self.errno = None if isinstance(cause, str) else cause.errno
        self._given = f"{name}", cause

    def __reduce__(self) -> tuple[type[Unwritable], tuple[str, OSError | str]]:
        # Pickled for the other processes of a run, which raise it too.
        return type(self), self._given


class InUse(OSError):
    """Another run has what this one wants for itself. The message names it and the other run."""


def hold(descriptor: int) -> bool:
    """Locks an open file or folder until it is closed or the process ends. False: another process has locked it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def left_behind(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the paths that no process has locked, which killed processes left; none on a file system without locks."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            with suppress(OSError):
                if hold(descriptor):
                    yield path
        finally:
            os.close(descriptor)


def held(path: Path) -> int | None:
    """Opens and locks what was just made at ``path``; None: another process has removed it as left behind."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        taken = not hold(descriptor)
    except OSError:
        # Without locks no process takes it for left behind.
        return descriptor
    if not taken:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
    os.close(descriptor)
    return None


def remove_unfinished(path: Path) -> None:
    """Removes the temporary files and folders of ``path`` that killed processes left."""
    for aside in _left_beside(path, SUFFIX):
        _remove(aside)


def _left_beside(target: Path, suffix: str) -> Iterator[Path]:
    # Exactly the names of _beside, since another target may be named graph.old where this one is graph.
    return left_behind(target.parent.glob(f".{glob.escape(target.name)}.{TOKEN}{suffix}"))


def _remove(aside: Path) -> None:
    """Removes a temporary file or folder; in a folder that can't be written it stays."""
    with suppress(OSError):
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink(missing_ok=True)


def require_writable(name: str, folder: Path) -> None:
    """Raises an :class:`Unwritable` that has this name if no file can be made in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Unwritable(name, error) from error


def make_folder(folder: Path) -> None:
    """Makes a folder where there is none, and raises an :class:`Unwritable` if no file can be made in it."""
    name = f"the folder {folder}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unwritable(name, error) from error
    require_writable(name, folder)


def require_file(path: Path, name: str | None = None) -> None:
    """Raises an :class:`Unwritable`, by another name if one is given, if something else than a file is at a path."""
    if path.is_dir():
        raise Unwritable(name or path, "it is a folder")
    if path.exists() and not path.is_file():
        raise Unwritable(name or path, "it is a device or a pipe, which a file would replace")


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Opens a temporary binary file that is renamed to ``path`` when the block ends, or removed if the block raises.

    It can be read, too. If ``path`` is a symbolic link, the file that it leads to is replaced, and the link stays.
    Temporary files that killed processes left are removed. The block should do nothing but write the file: its
    OSErrors, but for those of a connection, become an :class:`Unwritable` that names the file.

    Raises:
        Unwritable: the file can't be written.
    """
    require_file(path)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    remove_unfinished(target)
    descriptor = aside = None
    try:
        while descriptor is None:
            aside = _beside(target)
            aside.touch(exist_ok=False)
            descriptor = held(aside)
        with open(aside, "w+b") as file:
            yield file
        os.replace(aside, target)
    except (Unwritable, ConnectionError):
        # Of another file in the block, which has its name already, or of what the block reads from.
        raise
    except OSError as error:
        raise Unwritable(path, error) from error
    finally:
        if descriptor is not None:
            os.close(descriptor)
            _remove(aside)


def _beside(target: Path, suffix: str = SUFFIX) -> Path:
    """A new name for a temporary file or folder beside another."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}{suffix}")


@contextmanager
def folder_aside(path: Path, require_replaceable: Callable[[Path], None]) -> Iterator[Path]:
    """Makes a temporary folder that is renamed to ``path`` when the block ends, or removed if the block raises.

    The rules of :func:`written_aside` for symbolic links, and for what killed processes left, hold. A folder that such
    a process had moved away to replace it is put back first.

    Args:
        require_replaceable: raises an error if what is at the path may not be replaced. It is asked before the block
            and after it. An empty folder always may.

    Raises:
        Unwritable: the folder can't be made or renamed. OSErrors of the block are left as they are.
    """
    target = Path(os.path.realpath(path))

    def require_free() -> None:
        if not _is_free(target):
            require_replaceable(target)

    descriptor = aside = None
    try:
        with _named(path):
            for former in _left_beside(target, FORMER):
                _put_back(former, target)
            require_free()
            remove_unfinished(target)
            while descriptor is None:
                aside = _beside(target)
                aside.mkdir()
                descriptor = held(aside)
        yield aside
        with _named(path):
            require_free()
            _replace_folder(aside, target)
    finally:
        if descriptor is not None:
            os.close(descriptor)
            _remove(aside)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unwritable(path, error) from error


def _is_free(target: Path) -> bool:
    """Whether a folder can be renamed to a path: nothing is there, or an empty folder."""
    return not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir()))


def _replace_folder(aside: Path, target: Path) -> None:
    """Renames a folder, also where another one is. No system call replaces a folder that holds files.

    A process that is killed in between leaves the former folder under another name, and the next one puts it back.
    """
    if _is_free(target):
        os.replace(aside, target)
        return
    former = _beside(target, FORMER)
    # Others see by the lock that this process is at work.
    descriptor = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):
            hold(descriptor)
        os.replace(target, former)
        try:
            os.replace(aside, target)
        finally:
            _put_back(former, target)
    finally:
        os.close(descriptor)


def _put_back(former: Path, target: Path) -> None:
    """Renames a folder that was moved away to what it was; where another has taken its place, it is removed."""
    if _is_free(target):
        os.replace(former, target)
    else:
        _remove(former)


@dataclass(frozen=True)
class Lock:
    """The lock of a run that is :func:`alone`.

    Attributes:
        path: the file of the lock.
        name: what it protects, for messages.
        works: False: the file system has no locks, so that another run is not noticed.
        descriptor: that of the open file.
    """

    path: Path
    name: str
    works: bool
    descriptor: int

    def require_kept(self) -> None:
        """Raises an :class:`Unwritable` if another run has a lock of this path.

        This happens when the folder of the lock is removed and another run makes it anew.
        """
        try:
            found = os.stat(self.path)
        except OSError:
            return
        if not self._is(found):
            raise Unwritable(self.name, "it was removed, and another run has made it anew")

    def remove(self) -> None:
        """Removes the file, if it is still the one that was locked here, and then unlocks it."""
        with suppress(OSError):
            if self._is(os.stat(self.path)):
                self.path.unlink()
        with suppress(OSError):
            # A forked child may have the descriptor too, and closing it here alone would not unlock.
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def _is(self, found: os.stat_result) -> bool:
        return os.path.samestat(os.fstat(self.descriptor), found)


@contextmanager
def alone(path: Path, name: str) -> Iterator[Lock]:
    """In the block, no other run is in such a block with the same lock. A run is a process, or a thread of this one.

    On a file system without locks the block is entered in any case.

    Args:
        path: a file, which is removed at the end of the block. The next run removes it if this one is killed.
        name: what the lock protects, for messages.

    Raises:
        InUse: another run is in the block.
        Unwritable: the file can't be made.
    """
    lock = None
    while lock is None:
        lock = _locked(path, name)
    try:
        yield lock
    finally:
        lock.remove()


def _locked(path: Path, name: str) -> Lock | None:
    """Opens and locks the file of a lock; None: its last user has removed it in between."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise Unwritable(name, error) from error
    works = True
    try:
        free = hold(descriptor)
    except OSError:
        # Without locks runs can't tell that there is another one.
        free, works = True, False
    if not free:
        other = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise InUse(f"{name} is in use by another run" + (f": {other}" if other else ""))
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            _sign(descriptor)
            return Lock(path, name, works, descriptor)
    os.close(descriptor)
    return None


def _sign(descriptor: int) -> None:
    """Writes into the file of a lock who has it. On a full disk it stays empty."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
