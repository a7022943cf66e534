"""Downloads a file and checks its SHA-256. A download that fails leaves no file."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from ..support.atomic import written_aside
from ..support.progress import Steps

TIMEOUT_SECONDS = 30
CHUNK_BYTES = 1 << 16


def download(url: str, path: Path, sha256: str, *, progress: bool = True) -> None:
    """Downloads ``url`` to ``path``.

    The file is written under a temporary name in the same folder, checked, and renamed. An error or an interruption
    removes the temporary file. So ``path`` is either complete or not there.

    Args:
        url: address of the file.
        path: where to store the file; its folder is made if it is missing.
        sha256: hexadecimal digest that the contents must have.
        progress: show progress on stderr.

    Raises:
        ConnectionError: the address cannot be reached, or the transfer broke off.
        ValueError: the contents have another SHA-256.
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as file:
        digest = _fetch(url, file, path.name, progress)
        if digest != sha256:
            raise ValueError(f"{url}: the file has SHA-256 {digest}, want {sha256}; it was not kept")


def _fetch(url: str, file: IO[bytes], label: str, progress: bool) -> str:
    """Writes the contents of ``url`` to a file and returns their SHA-256."""
    digest, received = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            size = int(length) if length and length.isdigit() else None
            with Steps(size, "B", show=progress, name=label) as steps:
                while chunk := response.read(CHUNK_BYTES):
                    file.write(chunk)
                    digest.update(chunk)
                    received += len(chunk)
                    steps.advance(len(chunk))
    except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, ConnectionError, TimeoutError) as error:
        raise ConnectionError(f"{url}: {error}") from error
    if size is not None and received != size:
        raise ConnectionError(f"{url}: the transfer ended after {received} of {size} bytes")
    return digest.hexdigest()
