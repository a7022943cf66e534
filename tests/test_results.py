"""Tables of results beside the paper's figures, and the page of results."""

from __future__ import annotations

import copy
import math
import shutil
from pathlib import Path

import pytest
from trials import record

from seegera_fast.experiments import matrix, page, summary
from seegera_fast.experiments.protocols import METHODS, PAPER_TASKS, TASKS
from seegera_fast.experiments.trials import RATES, read_records
from seegera_fast.support.tables import read_tables

# A second copy of the paper's tables: mean and deviation on Cora, CiteSeer, PubMed, Photo, Computers, CS and Physics,
# and of nf on Cora, CiteSeer and CS.
PAPER = """
    link auc sigvae: 94.10 0.68, 92.88 0.74, 85.89 0.54, 94.98 0.86, 91.14 1.10, 95.26 0.36, 98.76 0.23
    link auc v1: 94.95 0.72, 96.75 0.54, 97.07 2.20, 98.40 0.08, 96.87 0.29, 97.82 0.11, 98.95 0.06
    link auc v2: 95.37 0.60, 96.81 0.51, 97.79 0.22, 98.47 0.05, 97.28 0.00, 97.83 0.11, 98.97 0.04
    link auc v3: 95.50 0.71, 97.04 0.47, 97.87 0.20, 98.64 0.05, 97.70 0.19, 98.42 0.13, 99.03 0.05
    link ap sigvae: 94.79 0.71, 94.21 0.53, 85.02 0.49, 94.53 0.93, 91.23 1.04, 94.93 0.37, 98.85 0.12
    link ap v1: 95.53 0.54, 97.10 0.49, 97.25 2.07, 98.32 0.09, 96.73 0.31, 98.30 0.11, 99.10 0.09
    link ap v2: 95.90 0.49, 97.17 0.46, 97.89 0.21, 98.37 0.09, 97.15 0.00, 98.33 0.10, 99.13 0.06
    link ap v3: 95.92 0.68, 97.33 0.46, 97.87 0.20, 98.48 0.06, 97.50 0.15, 98.53 0.18, 99.18 0.04
    attribute mse nf: 1.91e-3 3.78e-5, 5.15e-4 1.02e-6, 2.14 0.07
    attribute mse v1: 1.90e-3 8.18e-5, 4.87e-4 2.62e-6, 4.21e-4 4.70e-5, 0.22 0.00, 0.23 0.14, 2.12 0.06, 2.15 0.05
    attribute mse v2: 1.89e-3 8.13e-5, 4.86e-4 2.24e-6, 3.68e-4 7.11e-6, 0.21 0.01, 0.23 0.01, 2.08 0.07, 2.14 0.03
    attribute mse v3: 1.89e-3 8.13e-5, 4.84e-4 2.96e-6, 3.66e-4 7.34e-6, 0.21 0.01, 0.22 0.00, 1.93 0.07, 2.14 0.03
    node accuracy v1: 82.9 0.4, 71.7 0.6, 78.9 0.9, 92.53 0.41, 88.44 0.24, 93.72 0.29, 95.40 0.10
    node accuracy v2: 84.0 0.4, 73.0 0.8, 80.4 0.4, 92.70 0.42, 88.39 0.26, 93.83 0.22, 95.39 0.08
    node accuracy v3: 84.3 0.4, 73.0 0.8, 80.4 0.4, 92.81 0.45, 88.39 0.26, 93.84 0.11, 95.39 0.08
"""


def test_papers_figures():
    found = copy.deepcopy(read_tables(summary.PAPER))
    assert {task: set(scores) for task, scores in found.items()} == {
        name: {score.name for score in TASKS[name].scores} for name in PAPER_TASKS
    }
    for scores in found.values():
        for methods in scores.values():
            assert set(methods) <= set(METHODS)
            for figures in methods.values():
                assert set(figures) <= set(matrix.PAPER_DATA)
                assert all(len(figure) == 2 and figure[0] > 0 and figure[1] >= 0 for figure in figures.values())
    for line in PAPER.strip().splitlines():
        (task, score, method), figures = (part.split() for part in line.split(":"))
        data = ("cora", "citeseer", "cs") if method == "nf" else matrix.PAPER_DATA
        pairs = [[float(number) for number in pair.split()] for pair in " ".join(figures).split(",")]
        assert found[task][score].pop(method) == dict(zip(data, pairs, strict=True))
    assert not any(methods for scores in found.values() for methods in scores.values())


def test_means_deviations_and_differences():
    records = [record(0.95, seed=1), record(0.97, seed=2), record(0.0, seed=3, failure="epoch 9: link became NaN")]
    auc, ap = summary.rows(records)
    assert (auc.score, ap.score) == ("auc", "ap")
    assert auc.mean == pytest.approx(96.0)
    assert auc.deviation == pytest.approx(math.sqrt(2))
    assert (auc.trials, auc.failed, auc.seconds, auc.epochs, auc.peak_memory) == (2, 1, 11.5, 3, 2**21)
    assert auc.difference == pytest.approx(0.5)
    assert auc.reached
    (single, _) = summary.rows(records[:1])
    assert (single.deviation, single.difference) == (None, pytest.approx(-0.5))
    assert [row.paper for row in summary.rows([record(0.9, data="digits")])] == [None, None]


@pytest.mark.parametrize(
    ("keys", "score", "reached"),
    [
        ({}, 0.9479, True),
        ({}, 0.9478, False),
        ({}, 0.99, True),
        ({"task": "attribute"}, 1.97e-3, True),
        ({"task": "attribute"}, 1.98e-3, False),
        ({"task": "attribute"}, 1e-3, True),
        ({"task": "attribute", "data": "physics"}, 2.17, True),
        ({"task": "attribute", "data": "physics"}, 2.18, False),
        ({"task": "attribute", "data": "citeseer"}, 4.84e-4 + 2.95e-6, True),
        ({"task": "attribute", "data": "citeseer"}, 4.84e-4 + 2.97e-6, False),
        ({"task": "attribute", "data": "photo", "method": "v1"}, 0.22, True),
        ({"task": "attribute", "data": "photo", "method": "v1"}, 0.221, False),
        ({"data": "digits"}, 0.9, None),
    ],
)
def test_what_reaches_the_paper(keys, score, reached):
    assert summary.rows([record(score, **keys)])[0].reached is reached


def test_markdown_says_what_is_not_the_papers_protocol():
    plain = [record(0.9501, seed=seed) for seed in range(2)]
    text = summary.markdown(summary.rows(plain))
    assert "## Link prediction" in text
    assert "| cora | SeeGera-v3 | paper | AUC | 95.50 ± 0.71 | 95.01 ± 0.00 | -0.49 | yes | 2 | 0 | 3 |" in text
    assert "Not the paper's protocol" not in text
    assert "Failed" not in text
    others = [record(0.9, epochs=2), record(0.5, failure="epoch 1"), record(1.912e-3, task="attribute", method="v1")]
    text = summary.markdown(summary.rows([*plain, *others]))
    assert "**Not the paper's protocol:**" in text
    assert "| cora | SeeGera-v3 (epochs=2) | paper |" in text
    assert "Failed trials" in text
    assert "| cora | SeeGera-v1 | paper | MSE | 1.90e-03 ± 8.18e-05 | 1.91e-03 | +1.20e-05 | yes |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_what_was_cut_off_is_apart():
    whole, cut = record(0.95), record(0.9, epochs=3)
    assert (whole.cut_off, cut.cut_off) == (False, True)
    # A rehearsal that early stopping ended before its limit was not cut off, nor what may train for longer.
    assert not record(0.9, epochs=4).cut_off
    longer = record(0.9, task="node", epochs=501)
    longer.content["epochs"] = 501
    assert not longer.cut_off
    table = summary.rows([whole, cut])
    first, _, second = summary.markdown(table).partition("Cut off after fewer epochs than the paper allows:")
    assert "| SeeGera-v3 | paper | AUC |" in first
    assert "epochs=3" not in first
    assert "SeeGera-v3 (epochs=3) | paper | AUC |" in second
    panels = page._dots(table)
    assert list(panels) == ["cora, AUC (%)", "cora, AP (%)", "cora, AUC (%), cut off", "cora, AP (%), cut off"]
    assert panels["cora, AUC (%)"] == {
        "paper": {"SeeGera-v3": (95.5, 0.71)},
        "ours, 70/20/10": {"SeeGera-v3": (pytest.approx(95.0), None)},
    }


def test_rows_name_their_machine_and_precision():
    records = [record(0.95), record(0.95, seed=1), record(0.9, precision="medium")]
    records[1].content["machine"] = {**records[1].content["machine"], "processor": "Another"}
    text = summary.markdown(summary.rows(records))
    assert "| highest | A, B |" in text
    assert "| medium | A |" in text
    assert "- A: A Processor (avx2, 2 threads), operations on cpu, Linux x86_64; seegera-fast 1, torch 1" in text
    assert "- B: Another (avx2, 2 threads)" in text


def test_grids_of_masking_rates_have_tables_of_their_own(tmp_path):
    rates = [(0.0, 0.0), (0.3, 0.0), (0.3, 0.5)]
    records = [
        record(0.9 + index / 100, seed=seed, **dict(zip(RATES, pair, strict=True)))
        for index, pair in enumerate(rates)
        for seed in range(2)
    ]
    text = summary.markdown(summary.rows(records))
    assert "cora, paper split, SeeGera-v3: AUC (%), over the masking rates (machine A):" in text
    assert "| features masked | 0 of the links masked | 0.3 of the links masked |" in text
    assert "| 0 | 90.00 ± 0.00 (2) | 91.00 ± 0.00 (2) |" in text
    assert "| 0.5 | – | 92.00 ± 0.00 (2) |" in text
    assert "Not the paper's protocol" not in text
    # A pair of its own is a row, other fields make a grid of their own, and a cell that failed is not hidden.
    rates_of = dict(zip(RATES, (0.3, 0.5), strict=True))
    others = [record(0.8, method="v2", **rates_of), record(0.7, dropout=0.9, **rates_of)]
    others.append(record(0.0, failure="epoch 1", **dict(zip(RATES, (0.0, 0.5), strict=True))))
    text = summary.markdown(summary.rows([*records, *others]))
    assert "| cora | SeeGera-v2 (feature_masking_rate=0.5, structure_masking_rate=0.3) | paper | AUC |" in text
    assert "| cora | SeeGera-v3 (dropout=0.9, feature_masking_rate=0.5, structure_masking_rate=0.3) | paper" in text
    assert "| 0.5 | – (0, 1 failed) | 92.00 ± 0.00 (2) |" in text
    assert "Not the paper's protocol" in text
    # A grid stays whole if early stopping ended some of its cells before the limit that cut off the others.
    cut = [record(0.9, epochs=3, **dict(zip(RATES, pair, strict=True))) for pair in rates]
    cut[0].content["epochs"] = 2
    assert [each.cut_off for each in cut] == [False, True, True]
    (panel,) = (cells for title, cells in summary.grids(summary.rows(cut)).items() if "AUC" in title)
    assert panel == dict.fromkeys(rates, pytest.approx(90.0))
    path = tmp_path / "page.md"
    page.write_page(path, [*records, others[-1]])
    assert f"{len(records)} trials, " in path.read_text()
    assert "of training in all, and 1 that failed. Each" in path.read_text()
    assert sorted(file.name for file in (tmp_path / "page").iterdir()) == ["link-rates.png"]
    assert "](page/link-rates.png)" in path.read_text()


def test_the_page_in_docs_is_that_of_its_records(tmp_path):
    docs = Path(__file__).resolve().parents[1] / "docs"
    folder = tmp_path / "results"
    folder.mkdir()
    for text in (docs / "results").glob("*.md"):
        shutil.copy(text, folder)
    page.write_page(tmp_path / "results.md", read_records(docs / "results" / "trials"))
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == (docs / "results.md").read_text(encoding="utf-8")
    pictures = {file.name for file in folder.glob("*.png")}
    assert pictures == {file.name for file in (docs / "results").glob("*.png")}
