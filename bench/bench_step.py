"""A training step of the library and of the two contenders in plain PyTorch: ``pytest bench/bench_step.py``."""

import pytest
from steps import STEPS, Step, check_same_numbers, configuration, load


@pytest.mark.parametrize("contender", ["seegera_fast", "sparse", "dense"])
@pytest.mark.parametrize("name", ["cora", "cora sampled"])
def bench_step(benchmark, name, contender):
    dataset, fields = STEPS[name]
    graph = load(dataset)
    config = configuration(dataset, **fields)
    if contender == "seegera_fast":
        check_same_numbers(graph, config)
    benchmark.group = name
    benchmark.pedantic(Step(contender, graph, config), rounds=5, warmup_rounds=1)
