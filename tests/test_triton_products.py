"""Products that run side by side: the order in which they are given to streams, recorded by fake streams."""

from __future__ import annotations

import contextlib
import importlib

import pytest
import torch

pytest.importorskip("triton")
products = importlib.import_module("seegera_fast.kernels.triton.common.products")
CUDA = torch.device("cuda", 0)


class Streams:
    """A fake torch.cuda, which records what each stream is given, in order."""

    def __init__(self) -> None:
        self.told, self.made = [], 0
        self.current = self.Stream(CUDA)

    def Stream(self, device):
        self.made += 1
        return Stream(self, f"stream {self.made}", device)

    def current_stream(self, device):
        return self.current

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class Stream:
    def __init__(self, streams, name, device) -> None:
        self.streams, self.name, self.device = streams, name, device

    def wait_stream(self, other):
        self.streams.told.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def streams(monkeypatch):
    streams = Streams()
    monkeypatch.setattr(products.torch, "cuda", streams)
    yield streams
    products.stream_beside.cache_clear()


def call(streams, name):
    return lambda: streams.told.append(f"{name} on {streams.current.name}")


def test_side_by_side(streams):
    """The other streams wait for all earlier work, and later work waits for them."""
    products.at_once(CUDA, *(call(streams, name) for name in "abc"))
    assert streams.told == [
        "stream 2 waits for stream 1",
        "b on stream 2",
        "c on stream 2",
        "a on stream 1",
        "stream 1 waits for stream 2",
    ]
    assert streams.current.name == "stream 1"


def test_a_stream_keeps_the_one_beside_it(streams):
    """The library keeps memory for each stream, so their number must not grow."""
    for _ in range(3):
        products.at_once(CUDA, call(streams, "a"), call(streams, "b"))
    assert streams.made == 2
    with streams.stream(streams.Stream(CUDA)):
        products.at_once(CUDA, call(streams, "a"), call(streams, "b"))
    assert streams.told[-4:] == [
        "stream 4 waits for stream 3",
        "b on stream 4",
        "a on stream 3",
        "stream 3 waits for stream 4",
    ]


@pytest.mark.parametrize("failing", "ab")
def test_an_error_leaves_no_stream_alone(streams, failing):
    """Work on another stream may still read memory that the caller frees."""

    def fail():
        raise ValueError(failing)

    calls = {name: call(streams, name) for name in "ab"} | {failing: fail}
    with pytest.raises(ValueError, match=failing):
        products.at_once(CUDA, *calls.values())
    assert streams.told[0] == "stream 2 waits for stream 1"
    assert streams.told[-1] == "stream 1 waits for stream 2"
    assert streams.current.name == "stream 1"


@pytest.mark.parametrize(("device", "names"), [(CUDA, ""), (CUDA, "a"), (torch.device("cpu"), "abc")])
def test_one_after_the_other(streams, device, names):
    products.at_once(device, *(call(streams, name) for name in names))
    assert streams.told == [f"{name} on stream 1" for name in names]
