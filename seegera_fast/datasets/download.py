"""Downloads a file, checks its SHA-256 and moves it into place, or leaves nothing behind."""

from __future__ import annotations

import hashlib
import http.client
import os
import secrets
import ssl
import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_SECONDS = 30
CHUNK_BYTES = 1 << 16


def download(url: str, path: Path, sha256: str) -> None:
    """Fetches ``url`` to ``path``, with a progress bar where standard error is a terminal.

    The file is written beside its place under a name of its own, checked, and renamed; an error or an interruption
    removes it, so that ``path`` is either absent or complete.

    Args:
        url: address of the file.
        path: where it goes; its folder is made.
        sha256: hexadecimal digest that the contents must have.

    Raises:
        ConnectionError: the address cannot be reached or the transfer broke off.
        ValueError: the contents have another SHA-256.
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        digest = _fetch(url, partial, path.name)
        if digest != sha256:
            raise ValueError(f"{url}: the file has SHA-256 {digest}, want {sha256}; it was not kept")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _fetch(url: str, partial: Path, label: str) -> str:
    """Writes the contents of ``url`` to ``partial`` and returns their SHA-256."""
    from tqdm import tqdm

    digest, received = hashlib.sha256(), 0
    with open(partial, "xb") as file:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                length = response.headers.get("Content-Length")
                size = int(length) if length and length.isdigit() else None
                # disable=None: no bar unless standard error is a terminal.
                with tqdm(total=size, desc=label, unit="B", unit_scale=True, disable=None) as bar:
                    while chunk := response.read(CHUNK_BYTES):
                        file.write(chunk)
                        digest.update(chunk)
                        received += len(chunk)
                        bar.update(len(chunk))
        except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, ConnectionError, TimeoutError) as error:
            raise ConnectionError(f"{url}: {error}") from error
    if size is not None and received != size:
        raise ConnectionError(f"{url}: the transfer ended after {received} of {size} bytes")
    return digest.hexdigest()
