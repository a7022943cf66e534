"""The files of a folder, and a disk that is nearly full, for tests of what writes files."""

import contextlib
import resource


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@contextlib.contextmanager
def largest_file(size):
    """In the block, no file of this process can get larger."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
