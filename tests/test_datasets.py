"""Loading data sets: the real files, names, options and folders, and the digits graph."""

import os
from pathlib import Path

import pytest
import torch
from disk import files_in
from tiny_data import TINY_FEATURES, load_tiny, write_planetoid

import seegera_fast as sf
from seegera_fast.datasets import registry

STATISTICS = {  # nodes, undirected edges, features, classes
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
    "photo": (7650, 119081, 745, 8),
    "computers": (13752, 245861, 767, 10),
    "cs": (18333, 81894, 6805, 15),
    "physics": (34493, 247962, 8415, 5),
    "digits": (1797, 12339, 64, 10),
}


def data_root() -> Path:
    """The folder of the real files, which may not exist."""
    return Path(os.environ.get("SEEGERA_DATA") or "no folder").expanduser()


def real(*names: str) -> list:
    """Parameters for the data sets; those without files are skipped."""
    cases = []
    for name in names:
        data_set = registry.DATA_SETS[name]
        there = all((data_root() / data_set.folder / file).is_file() for file in data_set.sha256)
        reason = f"no files of {name} under SEEGERA_DATA"
        cases.append(pytest.param(name, marks=pytest.mark.skipif(not there, reason=reason)))
    return cases


class TestRealFiles:
    @pytest.mark.parametrize("name", real(*STATISTICS))
    def test_statistics(self, name, recwarn):
        graph = sf.datasets.load(name, data_root(), download=False)
        classes = torch.unique(graph.labels[graph.labels >= 0]).numel()
        assert (graph.num_nodes, graph.num_edges, graph.num_features, classes) == STATISTICS[name]
        assert graph.name == name
        assert not recwarn.list

    @pytest.mark.parametrize("name", real("cora", "citeseer", "pubmed"))
    def test_public_split(self, name):
        graph = sf.datasets.load(name, data_root(), download=False)
        train, valid, test = (graph.masks[key] for key in ("train", "valid", "test"))
        classes = STATISTICS[name][3]
        assert [int(mask.sum()) for mask in (train, valid, test)] == [20 * classes, 500, 1000]
        assert not ((train & valid) | (train & test) | (valid & test)).any()
        assert torch.bincount(graph.labels[train]).tolist() == [20] * classes

    @pytest.mark.parametrize("name", real("citeseer"))
    def test_isolated_nodes_have_no_label_and_no_features(self, name):
        graph = sf.datasets.load(name, data_root(), download=False)
        unknown = graph.labels < 0
        assert int(unknown.sum()) == 15
        assert not any(bool((mask & unknown).any()) for mask in graph.masks.values())
        assert not graph.features.to_dense()[unknown].any()

    @pytest.mark.parametrize("name", real("cs", "physics"))
    def test_counts_are_kept(self, name):
        values = sf.datasets.load(name, data_root(), download=False).features.values
        assert values.max() > 1
        assert torch.equal(values, values.round())


class TestLoad:
    def test_names(self):
        assert set(sf.datasets.names()) >= set(STATISTICS)

    @pytest.mark.parametrize(
        ("name", "nearest"), [("coar", "cora"), ("pubmde", "pubmed"), ("Fysics", "physics"), ("zzz", "cora, citeseer")]
    )
    def test_unknown_name(self, name, nearest):
        with pytest.raises(ValueError, match=rf"name: got '{name}', which is no data set; .*{nearest}"):
            sf.datasets.load(name)

    def test_capitals_do_not_matter(self, tmp_path):
        write_planetoid(tmp_path)
        assert load_tiny(tmp_path, "Cora").name == "cora"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"name": 3}, "name: got 3, want a string"),
            ({"name": "cora", "root": 3}, "root: got 3, want a path"),
            ({"name": "digits", "dtype": torch.float16}, "dtype: got torch.float16"),
            ({"name": "digits", "dtype": "float32"}, "dtype: got 'float32'"),
        ],
    )
    def test_wrong_kinds(self, arguments, message):
        with pytest.raises(TypeError, match=message):
            sf.datasets.load(**arguments)

    def test_normalize_features(self, tmp_path):
        write_planetoid(tmp_path)
        features = load_tiny(tmp_path, normalize_features=True, dtype=torch.float64).features.to_dense()
        expected = torch.from_numpy(TINY_FEATURES).double()
        sums = expected.sum(dim=1, keepdim=True)
        assert torch.equal(features, torch.where(sums > 0, expected * (1 / sums), expected))
        assert features.sum(dim=1).tolist() == pytest.approx([1, 1, 0, 1, 1, 1, 1, 0])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dtype(self, tmp_path, dtype):
        write_planetoid(tmp_path)
        graph = load_tiny(tmp_path, dtype=dtype)
        assert graph.dtype == graph.features.dtype == dtype

    def test_root_comes_before_the_variable_and_the_variable_before_the_cache(self, tmp_path, monkeypatch):
        given, variable, cache = tmp_path / "given", tmp_path / "variable", tmp_path / "cache"
        monkeypatch.setattr("platformdirs.user_cache_path", lambda name: cache / name)
        monkeypatch.setenv("SEEGERA_DATA", str(variable))
        assert registry.data_root(str(given)) == given
        assert registry.data_root() == variable
        monkeypatch.setenv("SEEGERA_DATA", "")
        assert registry.data_root() == cache / "seegera_fast"
        monkeypatch.setenv("SEEGERA_DATA", "~/graphs")
        assert registry.data_root() == Path.home() / "graphs"

    def test_variable_is_used(self, tmp_path, monkeypatch):
        write_planetoid(tmp_path)
        monkeypatch.setenv("SEEGERA_DATA", str(tmp_path))
        assert sf.datasets.load("cora", download=False).num_nodes == 8

    def test_missing_files_are_named(self, tmp_path):
        folder = write_planetoid(tmp_path)
        (folder / "ind.cora.tx").unlink()
        (folder / "ind.cora.graph").unlink()
        with pytest.raises(FileNotFoundError) as raised:
            load_tiny(tmp_path)
        assert f"cora: files missing in {folder}: ind.cora.tx, ind.cora.graph;" in str(raised.value)

    def test_every_file_has_a_digest(self):
        digests = [digest for data_set in registry.DATA_SETS.values() for digest in data_set.sha256.values()]
        assert len(digests) == len(set(digests)) == 3 * 8 + 4
        assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)


@pytest.fixture(scope="module")
def digits():
    return sf.datasets.load("digits", dtype=torch.float64)


class TestDigits:
    def test_features_and_labels(self, digits):
        features = digits.features.to_dense()
        assert (features.min(), features.max()) == (0, 1)
        assert torch.equal(features * 16, (features * 16).round())
        assert torch.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]

    def test_needs_no_files(self, tmp_path):
        assert sf.datasets.load("digits", tmp_path, download=False).num_nodes == 1797
        assert files_in(tmp_path) == []

    def test_edges_are_the_ten_nearest_of_either_end(self, digits):
        features = digits.features.to_dense()
        distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
        distance.fill_diagonal_(torch.inf)
        nearest = distance.sort(dim=1, stable=True).indices[:, :10]
        expected = torch.zeros(distance.shape, dtype=torch.bool).scatter_(1, nearest, value=True)
        assert torch.equal(digits.adjacency.to_dense().bool(), expected | expected.T)
