"""Tests of the memory that the CPU kernels keep for their next results."""

import copy
import gc
import subprocess
import sys
import threading

import cases
import pytest
import torch
from tolerances import assert_same_bits

import seegera_fast as sf
from seegera_fast import backends

ROWS = 1 << 14  # of 64 float32: 4 MiB

pytestmark = pytest.mark.skipif(backends.CPU.missing is not None, reason="the CPU kernels are not there")


@pytest.fixture(autouse=True)
def empty():
    """Nothing is kept before and after a test."""
    gc.collect()
    backends.release_memory()
    if backends.kept_memory() != 0:
        pytest.fail("memory is kept after it was released")
    yield
    gc.collect()
    backends.release_memory()


def result(rows=ROWS, seed=0):
    return sf.ops.dropout(torch.ones(rows, 1, 64), 0.5, seed=seed)


@pytest.fixture
def keeping():
    """Skips a test where the library does not keep memory: on other systems than Linux, and built for sanitizers."""
    made = result()
    del made
    if not backends.kept_memory():
        pytest.skip("this build keeps no memory")
    backends.release_memory()


def test_a_result_that_no_memory_holds_is_said_with_its_size():
    with pytest.raises(RuntimeError, match=f"not enough memory: a result of an operation takes {2**48} bytes"):
        sf.ops.gcn(None, torch.ones(2**22, 1, 1), torch.ones(1, 2**24), activation="none")


def test_the_next_result_takes_the_memory_of_the_last(keeping):
    first = result()
    size, address = first.numel() * first.element_size(), first.data_ptr()
    assert backends.kept_memory() == 0
    del first
    assert backends.kept_memory() == size
    second = result(seed=1)
    assert (second.data_ptr(), backends.kept_memory()) == (address, 0)
    # One that is a little smaller takes it too, and one that is much smaller does not.
    del second
    smaller = result(ROWS - ROWS // 8)
    assert smaller.data_ptr() == address
    del smaller
    much_smaller = result(ROWS // 2)
    assert much_smaller.data_ptr() != address


def test_no_more_is_kept_than_half_of_what_was_needed_beyond_it(keeping):
    """Whatever sizes come one after the other, used and kept memory are at most 1.5 times the most that was used."""
    most = 0
    for step in range(60):
        sizes = [ROWS + 3977 * ((7 * step + 3 * number) % 23) for number in range(3)]
        held = [result(rows) for rows in sizes]
        used = sum(tensor.numel() * 4 for tensor in held)
        most = max(most, used)
        # A block may be a quarter larger than its tensor.
        assert used + backends.kept_memory() <= 1.5 * 1.25 * most + 3 * 4096
        del held
    backends.release_memory()
    assert backends.kept_memory() == 0


def test_results_do_not_share_memory(keeping):
    held = [result(seed=seed) for seed in range(4)]
    want = [tensor.clone() for tensor in held]
    views = [tensor[10:20] for tensor in held]
    del held[1], held[2]  # the first and the third stay
    more = [result(seed=9) for _ in range(4)]
    for left, number in zip(held, (0, 2), strict=True):
        assert_same_bits(left, want[number])
    for view, whole in zip(views, want, strict=True):
        assert_same_bits(view, whole[10:20])
    assert len({tensor.data_ptr() for tensor in (*held, *more)}) == 6


def test_a_result_outlives_a_release(keeping):
    made = result()
    want = made.clone()
    backends.release_memory()
    assert_same_bits(made, want)
    assert_same_bits(copy.deepcopy(made), want)


def test_results_end_in_other_threads(keeping):
    wrong = []

    def work(number):
        for step in range(30):
            made = result(ROWS + 64 * number, seed=number)
            if not torch.equal(made, result(ROWS + 64 * number, seed=number)):
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_model_takes_what_is_kept_with_it(keeping):
    graph = cases.large_graph().to(dtype=torch.float32)
    model = sf.SeeGera(graph, embedding_dim=256, hidden_dim=256, likelihood="mse", seed=0)
    model(seed=1).loss.backward()
    other = copy.deepcopy(model)
    other(seed=1).loss.backward()
    assert backends.kept_memory() > 0
    del model
    gc.collect()
    assert backends.kept_memory() == 0
    other(seed=1).loss.backward()
    assert backends.kept_memory() > 0
    del other
    gc.collect()
    assert backends.kept_memory() == 0


def test_saving_a_model_leaves_what_is_kept(keeping, tmp_path):
    graph = cases.large_graph().to(dtype=torch.float32)
    model = sf.SeeGera(graph, embedding_dim=256, hidden_dim=256, likelihood="mse", seed=0)
    model(seed=1).loss.backward()
    kept = backends.kept_memory()
    model.save(tmp_path / "model.safetensors")
    assert backends.kept_memory() == kept > 0
    read = sf.SeeGera.load(tmp_path / "model.safetensors", graph)
    del model
    gc.collect()
    read(seed=1).loss.backward()
    assert backends.kept_memory() > 0
    del read
    gc.collect()
    assert backends.kept_memory() == 0


def test_a_training_keeps_nothing(keeping):
    graph = cases.large_graph().to(dtype=torch.float32)
    options = {"embedding_dim": 256, "hidden_dim": 256, "likelihood": "mse", "epochs": 2, "progress": False}
    trained = sf.tasks.embed(graph, **options)
    # The embedding that it returns is made afterwards.
    assert trained.model.graph is graph
    assert backends.kept_memory() <= 8 * graph.num_nodes * 256 * 4


@pytest.mark.slow
def test_processes_that_are_forked_while_a_thread_takes_memory(tmp_path):
    """The lock of the kept memory is free in the new process."""
    program = """
import os, threading, time, warnings, torch, seegera_fast as sf
warnings.simplefilter("ignore")
torch.set_num_threads(1)
ones, ended = torch.ones(1 << 13, 1, 64), False

def work():
    while not ended:
        sf.ops.dropout(ones, 0.5, seed=0)
        sf.backends.release_memory()

thread = threading.Thread(target=work)
thread.start()
for _ in range(60):
    child = os.fork()
    if child == 0:
        made = sf.ops.dropout(ones, 0.5, seed=0)
        del made
        os._exit(0)
    end = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(child, 9)
            print("hangs")
            os._exit(1)
        time.sleep(0.001)
ended = True
thread.join()
print("fine")
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert found.stdout.strip() == "fine", found.stderr
