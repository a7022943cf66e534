"""Makes pytest run the functions bench_* of the files bench_*.py, for each case and each contender."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from operations import CONTENDERS, words


def pytest_generate_tests(metafunc):
    description = getattr(metafunc.function, "description", None)
    if description is not None:
        metafunc.parametrize("case", description.cases, ids=lambda case: words(case) or "whole")
        metafunc.parametrize("contender", CONTENDERS)
