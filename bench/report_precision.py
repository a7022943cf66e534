"""The section of `make bench` on the precisions of products: the same work at highest, high and medium, in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from reporter import Record
from steps import Step, configuration, load, medians

import seegera_fast as sf
from seegera_fast import precision

CPU = torch.device("cpu")
# Relative errors of a step's value and gradient, as norms.
ERRORS = {"high": 2e-5, "medium": 1e-2}


def has_amx() -> bool:
    """Whether this is a processor with AMX, for which some bars are others."""
    return sf.backends.bfloat16_products() == "mkl"


def at(name: str, call: Callable[[], object]) -> Callable[[], object]:
    """The call with PyTorch set to a precision."""

    def run() -> None:
        with precision.at(name):
            call()

    return run


def at_each(calls: dict[str, Callable[[], object]], rounds: int) -> dict[tuple[str, str], float]:
    """Median seconds of each call at each precision, taken in turn."""
    chosen = {(name, level): at(level, call) for name, call in calls.items() for level in precision.PRECISIONS}
    return medians(chosen, rounds)


def ratios(record: Record, work: str, seconds: dict[str, float], bars: dict[str, float]) -> None:
    """The rows of a work at each precision; one that is not fast here is the same program as highest."""
    for level, value in seconds.items():
        record.row(work, f"s, {level}", value)
    for level in ("high", "medium"):
        if level not in precision.fast("cpu", CPU):
            record.note(f"{work}: {level} is computed as highest here")
        elif level in bars:
            record.at_least(
                work, f"{level}: times faster than highest", seconds["highest"] / seconds[level], bars[level]
            )
        else:
            record.row(work, f"{level}: times faster than highest", seconds["highest"] / seconds[level])


def precisions(record: Record) -> None:
    graph, config = load("cora"), configuration("cora")
    errors(record, graph, config)
    calls = {"step, cora": Step("seegera_fast", graph, config), "sparse": Step("sparse", graph, config)}
    seconds = at_each(calls, rounds=5)
    ours = {level: seconds["step, cora", level] for level in precision.PRECISIONS}
    ratios(
        record, "precision: step, cora", ours, {"high": 1.4, "medium": 2.2} if has_amx() else {"high": 1, "medium": 1}
    )
    for level in precision.PRECISIONS:
        record.row("precision: step, cora", f"s, sparse at {level}", seconds["sparse", level])
    record.at_least(
        "precision: step, cora",
        "medium: times faster than sparse at medium",
        seconds["sparse", "medium"] / ours["medium"],
        3 if has_amx() else 2.2,
    )
    z = (torch.randn(graph.num_nodes, 1, 512) / 512**0.25).requires_grad_()

    def likelihood() -> None:
        torch.autograd.grad(sf.ops.link_likelihood(z, graph.adjacency, pos_weight=10.0).sum(), z)

    work = "link_likelihood, cora, d = 512"
    found = {level: value for (_, level), value in at_each({work: likelihood}, rounds=5).items()}
    ratios(record, f"precision: {work}", found, {"medium": 3} if has_amx() else {"medium": 1})
    for dataset in ("photo", "computers", "cs", "physics"):
        step = Step("seegera_fast", load(dataset), configuration(dataset, negatives="edges"))
        levels = ("highest", "medium")
        found = medians({level: at(level, step) for level in levels}, rounds=3)
        ratios(record, f"precision: step, {dataset} sampled", found, {"medium": 1.6} if has_amx() else {"medium": 1})


def errors(record: Record, graph: sf.Graph, config: sf.SeeGeraConfig) -> None:
    """How far value and gradient of a step without masks are from those of float64, for the same weights and draws."""
    config = replace(config, structure_masking_rate=0.0, feature_masking_rate=0.0)
    model = sf.SeeGera(graph, config, seed=0)
    exact = sf.SeeGera(graph.to(dtype=torch.float64), config, seed=0)
    exact.load_state_dict({name: value.double() for name, value in model.state_dict().items()})

    def outcome(of: sf.SeeGera) -> tuple[torch.Tensor, torch.Tensor]:
        of.zero_grad()
        loss = of(seed=3).loss
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in of.parameters() if p.grad is not None])
        return loss.detach().double(), gradient.double()

    want = outcome(exact)
    for level in precision.PRECISIONS:
        with precision.at(level):
            got = outcome(model)
        for name, value, expected in zip(("value", "gradient"), got, want, strict=True):
            error = float((value - expected).norm() / expected.norm())
            report: Callable[..., Any] = record.row
            if level in ERRORS:
                report = partial(record.at_most, limit=ERRORS[level])
            report("precision: step, cora", f"{level}: relative error of the {name}", error)
