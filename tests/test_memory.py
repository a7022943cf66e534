"""Memory that is freed and soon needed again."""

import os
import platform
import subprocess
import sys
import threading

import pytest

import seegera_fast as sf
from seegera_fast.support import memory

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the thresholds")

PROGRAM = """
import resource, sys, torch
import seegera_fast as sf

def faults(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        a, b = torch.ones(3_000_000), torch.ones(6_000_000)
        del a, b
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps

def resident():
    return int(open("/proc/self/status").read().partition("VmRSS:")[2].split()[0]) / 1024

torch.set_num_threads(1)
plain = faults(4)
with sf.keep_memory():
    with sf.keep_memory():
        faults(2)
    kept, within = faults(4), resident()
print(plain, kept, within - resident(), faults(4))
"""


def run(**variables):
    environment = {name: value for name, value in os.environ.items() if name not in memory._CHOSEN}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**environment, **variables}, capture_output=True, text=True, check=True
    )
    return map(float, done.stdout.split())


def test_a_step_does_not_fetch_the_memory_of_the_one_before_again():
    plain, kept, given_back, after = run()
    # 34 MiB in pages of 4 KiB. Large pages come with fewer faults.
    if plain < 1000:
        pytest.skip(f"this system gives large pages: {plain} faults a step")
    assert kept < 0.02 * plain
    assert given_back > 30
    assert after > 1000


def test_thresholds_of_the_user_stay():
    plain, kept, _, _ = run(MALLOC_MMAP_THRESHOLD_="65536")
    assert kept == pytest.approx(plain, rel=0.5)


class Library:
    """Stands in for the C library; `largest` is the largest threshold that it accepts."""

    def __init__(self, largest=2**31):
        self.largest, self.calls = largest, []

    def mallopt(self, parameter, value):
        self.calls.append((parameter, value))
        return int(value <= self.largest)

    def malloc_trim(self, pad):
        self.calls.append("trim")


def test_the_last_of_several_threads_sets_the_thresholds_back(monkeypatch):
    library = Library()
    monkeypatch.setattr(memory, "_glibc", lambda: library)
    inside, leave = threading.Event(), threading.Event()

    def other():
        with sf.keep_memory():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)

    def fail():
        with sf.keep_memory():
            thread.start()
            inside.wait(60)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert library.calls == [(memory._MMAP_THRESHOLD, 2**31 - 1), (memory._TRIM_THRESHOLD, -1)]
    leave.set()
    thread.join()
    assert library.calls[2:] == [*memory._USUAL.items(), "trim"]


def test_an_older_glibc_gets_the_largest_threshold_that_it_accepts(monkeypatch):
    library = Library(largest=2**25)
    monkeypatch.setattr(memory, "_glibc", lambda: library)
    with sf.keep_memory():
        assert library.calls[1:] == [(memory._MMAP_THRESHOLD, 2**25), (memory._TRIM_THRESHOLD, -1)]
    monkeypatch.setattr(memory, "_glibc", lambda: refusing)
    refusing = Library(largest=0)
    # Without the first, the second would only keep glibc from adapting.
    with sf.keep_memory():
        assert memory._TRIM_THRESHOLD not in [parameter for parameter, _ in refusing.calls]


@pytest.mark.parametrize(("value", "set_"), [("glibc.malloc.mmap_threshold=65536", True), ("glibc.rtld.nns=4", False)])
def test_only_settings_of_malloc_count(value, set_, monkeypatch):
    for name in memory._CHOSEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GLIBC_TUNABLES", value)
    assert (memory._glibc() is None) == set_
