"""A machine with little memory, for tests of what reads files."""

import contextlib
import resource
from pathlib import Path

# What reading a file of a few kilobytes may take, in bytes.
MOST_MEMORY = 200 * 2**20


@contextlib.contextmanager
def little_memory():
    """Ends a request for much memory with a MemoryError, instead of the machine's end."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * MOST_MEMORY, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
