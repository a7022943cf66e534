"""Explains failed assertions of the helper modules too, and says which tests share a process."""

import pytest

pytest.register_assert_rewrite("cases", "contract", "slow", "tolerances")

# Files whose tests share something that takes long to make: a build, or the results of another process.
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
    """Long tests come first, so that at the end no process is still busy with a long test while the others wait."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
