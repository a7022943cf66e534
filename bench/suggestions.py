"""How good suggested links and their probabilities are: hidden links found, calibration, and what deviations tell.

    python bench/suggestions.py                              # Cora and CiteSeer, five seeds: half an hour on two cores
    python bench/suggestions.py --data cora --seeds 1        # three minutes
    python bench/suggestions.py --render                     # the page anew from the measurements

Each run trains a model with the paper's settings and split, and asks for links with `top_links`. The links for training
and validation are known, those for testing are hidden.

    found@k             share of the hidden links among the first k suggestions of either of their nodes
    calibration error   expected calibration error on the test part, in 10 bins, before and after calibration
    deviation           of the probability over 64 draws, mean over suggestions that are hidden links and over others

The hidden links that are found are compared with those that are found by sorting all pairs; the script ends with an
error if they differ. Writes suggestions.json, after each run, and suggestions.md to the folder. What suggestions.json
has is not measured again. With `--checkpoints`, a run that was interrupted goes on, and one that was trained is only
measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import seegera_fast as sf
from seegera_fast.support.atomic import written_aside

FIRST = (1, 10, 50)
# Suggestions whose deviations are compared: of each node, and of the whole graph.
PER_NODE, WHOLE = 10, 1000
DRAWS = 64
HEAD = """\
## Suggested links

SeeGera-v3 with the paper's settings on 70/20/10: means and standard deviations over the seeds. The links for training
and validation are known, those for testing are hidden. "found@k" is the share of the hidden links among the first k
suggestions of either of their nodes; it is the same as by sorting all pairs, in every run. "error" is the expected
calibration error on the test part, in 10 bins, before and after calibration on the validation part. "deviation" is that
of the probability over 64 draws from the posterior, for suggestions that are hidden links and for others.
`bench/suggestions.py` measures all of this.
"""


def found(pairs: torch.Tensor, hidden: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The pairs ``[m, 2]`` that are hidden links."""
    return {(min(pair), max(pair)) for pair in pairs.tolist()} & hidden


def by_sorting(scores: torch.Tensor, k: int, known: sf.Graph) -> torch.Tensor:
    """``[n k, 2]``: the suggestions of each node from all its scores ``[n, n]``."""
    scores = scores.clone().fill_diagonal_(-torch.inf)
    scores[known.adjacency.row, known.adjacency.col] = -torch.inf
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return torch.stack([torch.arange(len(scores))[:, None].expand_as(best), best], dim=2).flatten(0, 1)


def deviations(model: sf.SeeGera, pairs: torch.Tensor, hidden: set[tuple[int, int]]) -> dict[str, float | None]:
    """Mean deviation of the suggestions that are hidden links, and of the others."""
    right = torch.tensor([(min(pair), max(pair)) in hidden for pair in pairs.tolist()])
    deviation = model.link_scores(pairs, draws=DRAWS).deviation
    groups = {"right": deviation[right], "wrong": deviation[~right]}
    return {name: float(group.mean()) if len(group) else None for name, group in groups.items()}


def run(data: str, seed: int, checkpoints: Path | None) -> dict[str, Any]:
    """Trains a model and measures its suggestions."""
    graph = sf.datasets.load(data)
    checkpoint = None
    if checkpoints is not None:
        path = checkpoints / f"{data}-{seed}.safetensors"
        checkpoint = sf.Checkpoint(path, resume=path.exists())
    result = sf.tasks.link_prediction(graph, seed=seed, progress=True, checkpoint=checkpoint)
    model, split = result.model, result.split
    known = graph.with_edges(torch.cat([split.train.edges(), split.valid_pos]))
    hidden = {tuple(pair) for pair in split.test_pos.tolist()}
    embedding = model.embed().double()
    scores = embedding @ embedding.T
    shares = {}
    for k in FIRST:
        suggested = found(model.top_links(k, known=known).pairs, hidden)
        if suggested != found(by_sorting(scores, k, known), hidden):
            raise RuntimeError(f"{data}, seed {seed}: top_links finds other hidden links than sorting all pairs")
        shares[str(k)] = len(suggested) / len(hidden)
    return {
        "data": data,
        "seed": seed,
        "epochs": result.epochs,
        "auc": result.auc,
        "ap": result.ap,
        "found": shares,
        "calibration error": {name: part.error for name, part in result.reliability.items()},
        "deviation per node": deviations(model, model.top_links(PER_NODE, known=known).pairs, hidden),
        "deviation of the whole": deviations(model, model.top_links(WHOLE, per_node=False, known=known).pairs, hidden),
        "processor": sf.backends.instruction_set(),
    }


def spread(values: Sequence[float], digits: int, scale: float = 1.0) -> str:
    """Mean and standard deviation."""
    scaled = [scale * value for value in values]
    mean = f"{statistics.fmean(scaled):.{digits}f}"
    return mean if len(scaled) == 1 else f"{mean} ± {statistics.stdev(scaled):.{digits}f}"


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The section of the page of results."""
    columns = ["data", "seeds", *(f"found@{k}, %" for k in FIRST), "error before", "error after", "largest after"]
    for suggestions in (f"{PER_NODE} per node", f"{WHOLE:,} of the whole graph"):
        columns += [f"deviation, {suggestions}: right", "wrong"]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for data in dict.fromkeys(entry["data"] for entry in runs):
        part = [entry for entry in runs if entry["data"] == data]
        errors = {name: [entry["calibration error"][name] for entry in part] for name in ("plain", "calibrated")}
        cells = [data, str(len(part))]
        cells += [spread([entry["found"][str(k)] for entry in part], 1, 100) for k in FIRST]
        cells += [spread(errors["plain"], 3), spread(errors["calibrated"], 3), f"{max(errors['calibrated']):.3f}"]
        for name in ("deviation per node", "deviation of the whole"):
            for group in ("right", "wrong"):
                values = [entry[name][group] for entry in part if entry[name][group] is not None]
                cells.append(spread(values, 4) if values else "none")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([HEAD, *lines, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cora", "citeseer"], help="data sets (cora citeseer)")
    parser.add_argument("--seeds", type=int, default=5, metavar="COUNT", help="number of seeds, from 0 (5)")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), metavar="FOLDER", help="(docs/results)")
    parser.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="where the runs keep their states (nowhere)")
    parser.add_argument("--render", action="store_true", help="writes the page anew; measures nothing")
    options = parser.parse_args(arguments)
    for folder in (options.out, options.checkpoints):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    record = options.out / "suggestions.json"
    runs = json.loads(record.read_text()) if record.exists() else []
    measured = {(entry["data"], entry["seed"]) for entry in runs}
    missing = [(data, seed) for seed in range(options.seeds) for data in options.data if (data, seed) not in measured]
    for data, seed in [] if options.render else missing:
        runs.append(run(data, seed, options.checkpoints))
        print(json.dumps(runs[-1]), flush=True)
        with written_aside(record) as file:
            file.write((json.dumps(runs, indent=1) + "\n").encode())
    if not runs:
        parser.error(f"{record}: holds no run")
    with written_aside(options.out / "suggestions.md") as file:
        file.write(page(sorted(runs, key=lambda entry: entry["data"] != "cora")).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
