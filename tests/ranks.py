"""Runs a function in several processes that are connected as torchrun connects them."""

import multiprocessing
import os
import pickle
import tempfile
import traceback
from typing import NamedTuple

import torch

# The processes are forked from one that has imported all of this and has run nothing, which takes milliseconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["numpy", "pytest", "scipy.sparse", "sklearn.metrics", "torch", "seegera_fast"])
# A machine may be busy with other things.
SECONDS = 300


class Outcome(NamedTuple):
    """What the function returned, or the error that it raised, and the exit status of its process."""

    value: object
    error: Exception | None
    trace: str
    status: int


def run(function, *arguments, size=2, connect=True, agent=True):
    """Calls ``function(rank, *arguments)`` in each of ``size`` processes, and returns the outcomes by rank.

    With ``connect=False`` the function has to connect them itself, by the environment that torchrun would give it, and
    in the store that torchrun offers, which outlives a connection. With ``agent=False`` there is no such store.
    """
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {"WORLD_SIZE": f"{size}", "MASTER_ADDR": store.host, "MASTER_PORT": f"{store.port}"}
    environment["TORCHELASTIC_RUN_ID"] = "none"
    if agent:
        environment["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    else:
        # The process 0 makes its own, with the port that is free now.
        del store
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting") if connect else None
        pipes = [CONTEXT.Pipe(duplex=False) for _ in range(size)]
        processes = [
            CONTEXT.Process(target=_work, args=(rank, size, meeting, environment, pipe, function, arguments))
            for rank, (_, pipe) in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        for _, pipe in pipes:
            pipe.close()
        try:
            return [_outcome(process, pipe) for process, (pipe, _) in zip(processes, pipes, strict=True)]
        finally:
            for process in processes:
                process.kill()


def values(outcomes):
    """What the function returned in each process, where it has raised nothing."""
    for rank, outcome in enumerate(outcomes):
        assert outcome.status == 0, f"process {rank} has status {outcome.status}\n{outcome.trace}"
    return [outcome.value for outcome in outcomes]


def _outcome(process, pipe):
    value, error, trace = None, None, ""
    if not pipe.poll(SECONDS):
        raise TimeoutError(f"process {process.name} did not end in {SECONDS} s")
    try:
        value, error, trace = pickle.loads(pipe.recv_bytes())
    except EOFError:
        trace = "it was killed"
    process.join(SECONDS)
    return Outcome(value, error, trace, process.exitcode)


def _work(rank, size, meeting, environment, pipe, function, arguments):
    os.environ.update(environment, RANK=f"{rank}", LOCAL_RANK=f"{rank}")
    torch.set_num_threads(1)
    value, error, trace = None, None, ""
    try:
        if meeting is not None:
            torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
        value = function(rank, *arguments)
    except Exception as found:
        error, trace = found, traceback.format_exc()
    # Not send(), with which tensors would stay in the memory of this process, which ends.
    pipe.send_bytes(pickle.dumps((value, error, trace)))
    pipe.close()
    # Without the end of Python, in which a process would wait for one that is gone.
    os._exit(1 if error is not None else 0)
