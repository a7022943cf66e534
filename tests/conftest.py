"""Failures in the shared helpers are explained like those in the tests; which tests share a process."""

import pytest

pytest.register_assert_rewrite("cases", "contract", "slow", "tolerances")

# Files whose tests share what takes long to make: a build, or the results of a process of its own.
TOGETHER = (
    "test_packaging.py",
    "test_cuda_on_cpu.py",
    "test_templates.py",
    "test_triton_blocks.py",
    "test_triton_common.py",
    "test_triton_sparse_matmul.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Runs each of these files in one process. The mark xdist_group of pytest-xdist 3.8 does nothing under pytest 9."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            name = nodeid.partition("::")[0].rpartition("/")[2]
            return name if name in TOGETHER else nodeid

    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config, items):
    """Of several processes none is left alone with a long test at the end: these come first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
