"""What tests of suggestions share: a small graph's tables with names of all kinds, and what is in a table."""

import csv

import numpy as np

import seegera_fast as sf

SMALL = ["--set", "embedding_dim=6", "--set", "hidden_dim=8", "--set", "likelihood=mse", "--quiet"]
NAMES = ["Ann", "Bob", "Zoë", "林檎", 'O"Neil', "a,b", "</script>", "x y", "NA", "1", "q", "r", "s", "t", "u", "v"]


def write_friends(folder):
    """Writes that graph's tables; gives the options that name them."""
    draws = np.random.default_rng(0).random((len(NAMES), len(NAMES)))
    near = np.add.outer(np.arange(16) // 8, -(np.arange(16) // 8)) == 0
    with open(folder / "friends.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["from", "to"])
        writer.writerows(
            [NAMES[i], NAMES[j]] for i in range(16) for j in range(i) if draws[i, j] < (0.8 if near[i, j] else 0.1)
        )
    with open(folder / "people.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "tall", "city", "chess"])
        writer.writerows([name, i % 2, ["Bern", "Rome"][i // 8], int(i % 3 == 0)] for i, name in enumerate(NAMES))
    return ["--edges", folder / "friends.csv", "--features", folder / "people.csv", "--categories", "city"]


def graph_of(files):
    return sf.Graph.from_table(files[1], files[3], categories=["city"])


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
