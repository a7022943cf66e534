"""The data sets by name: the folders of their files, the addresses to download from, and their readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..graph import Graph
from ..sparse_matrix import SparseMatrix
from ..support import arguments
from ..support.hints import nearest
from ..support.progress import phase
from .arrays import RawGraph
from .digits import build_digits
from .download import download as download_file
from .npz import read_npz
from .planetoid import PARTS, read_planetoid

ROOT_VARIABLE = "SEEGERA_DATA"
OTHER_FOLDER = f"set root= or {ROOT_VARIABLE} to a folder that"
PLANETOID_SOURCE = "https://github.com/kimiyoung/planetoid/raw/master/data/"
BENCHMARK_SOURCE = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"


@dataclass(frozen=True)
class DataSet:
    """One entry of the registry.

    Attributes:
        folder: the folder of the files, relative to the root.
        read: reads the raw graph from that folder.
        source: the address to which the file names are appended.
        sha256: digest of each file at ``source``, by file name. A file that is already on disk may be another edition.
    """

    folder: str
    read: Callable[[Path], RawGraph]
    source: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)


def _planetoid(folder: str, key: str, digests: str) -> DataSet:
    files = {f"ind.{key}.{part}": digest for part, digest in zip(PARTS, digests.split(), strict=True)}
    return DataSet(f"Planetoid/{folder}/raw", lambda path: read_planetoid(path, key), PLANETOID_SOURCE, files)


def _benchmark(folder: str, file: str, digest: str) -> DataSet:
    return DataSet(f"{folder}/raw", lambda path: read_npz(path / file), BENCHMARK_SOURCE, {file: digest})


# The digests of Planetoid's files, in the order of PARTS.
DATA_SETS: dict[str, DataSet] = {
    "cora": _planetoid(
        "Cora",
        "cora",
        """
        23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab
        94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1
        b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a
        41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad
        9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543
        2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71
        58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d
        297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875
        """,
    ),
    "citeseer": _planetoid(
        "CiteSeer",
        "citeseer",
        """
        d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6
        8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924
        539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21
        55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce
        2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668
        f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95
        d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7
        2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4
        """,
    ),
    "pubmed": _planetoid(
        "PubMed",
        "pubmed",
        """
        fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33
        e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3
        4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d
        ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd
        508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e
        0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e
        5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9
        b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5
        """,
    ),
    "photo": _benchmark(
        "Amazon/Photo",
        "amazon_electronics_photo.npz",
        "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
    ),
    "computers": _benchmark(
        "Amazon/Computers",
        "amazon_electronics_computers.npz",
        "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
    ),
    "cs": _benchmark(
        "Coauthor/CS",
        "ms_academic_cs.npz",
        "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
    ),
    "physics": _benchmark(
        "Coauthor/Physics",
        "ms_academic_phy.npz",
        "e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375",
    ),
    "digits": DataSet("", lambda path: build_digits()),
}


def names() -> list[str]:
    """The names that :func:`load` knows."""
    return list(DATA_SETS)


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    normalize_features: bool = False,
    download: bool = True,
    dtype: torch.dtype = torch.float32,
    progress: bool = True,
) -> Graph:
    """A data set as a graph: simple, undirected, with all its nodes.

    | name      |  nodes |   edges | features | values of the features |
    | --- | ---: | ---: | ---: | --- |
    | cora      |  2,708 |   5,278 |    1,433 | 0 and 1 |
    | citeseer  |  3,327 |   4,552 |    3,703 | 0 and 1 |
    | pubmed    | 19,717 |  44,324 |      500 | TF-IDF |
    | photo     |  7,650 | 119,081 |      745 | 0 and 1 |
    | computers | 13,752 | 245,861 |      767 | 0 and 1 |
    | cs        | 18,333 |  81,894 |    6,805 | counts |
    | physics   | 34,493 | 247,962 |    8,415 | counts |
    | digits    |  1,797 |  12,339 |       64 | grey levels in [0, 1]: scikit-learn's 0 to 16 divided by 16 |

    The three citation graphs carry Planetoid's public split in ``graph.masks``. The label -1 means unknown: 15
    isolated nodes of citeseer, which are in no mask and whose feature rows are zero.

    Args:
        name: one of :func:`names`.
        root: folder with the files, laid out as ``Planetoid/Cora/raw/ind.cora.x``, ``Amazon/Photo/raw/*.npz``,
            ``Coauthor/CS/raw/*.npz``. None: the environment variable SEEGERA_DATA, else the user's cache folder.
        normalize_features: divide each row of the features by the sum of its absolute values (a zero row stays zero).
        download: download missing files and check their SHA-256. Files that exist are read without that check.
        dtype: torch.float32 or torch.float64, of the features and the graph.
        progress: show on stderr what takes long: a bar for a download, or a line now and then where stderr is no
            terminal.

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: an unknown name; a file that is refused or corrupt or does not fit the others; a download with a
            wrong SHA-256.
        FileNotFoundError: files are missing and ``download`` is False.
        ConnectionError: files are missing and cannot be downloaded.
        OSError: files are missing and their folder cannot be written.

    Example:
        >>> import seegera_fast as sf
        >>> sf.datasets.load("digits")
        Graph('digits': 1797 nodes, 12339 edges, 64 features, torch.float32, cpu)
    """
    arguments.text("name", name)
    if root is not None:
        arguments.path("root", root)
    normalize_features = arguments.flag("normalize_features", normalize_features)
    download, progress = arguments.flag("download", download), arguments.flag("progress", progress)
    arguments.dtype("dtype", dtype)
    key = name.lower()
    data_set = DATA_SETS.get(key)
    if data_set is None:
        raise ValueError(f"name: got {arguments.shown(name)}, which is no data set; {nearest(key, DATA_SETS)}")
    # A data set without files needs no folder, so that a machine without one has it too.
    folder = data_root(root) / data_set.folder if data_set.sha256 else Path()
    _provide(key, data_set, folder, download, progress)
    with phase(f"reading {key}", show=progress):
        raw = data_set.read(folder)
    features = SparseMatrix.from_any(raw.features, name=f"{folder}: features", dtype=dtype)
    if normalize_features:
        features = features.row_normalized
    graph = Graph(raw.adjacency, features, raw.labels, masks=raw.masks, name=key, dtype=dtype)
    graph.data_set = key
    return graph


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the data sets: ``root``, else the variable SEEGERA_DATA, else the user's cache folder.

    Raises:
        OSError: it would be in the user's home folder, and there is none.
    """
    if root is not None:
        return Path(arguments.path("root", root))
    chosen = os.environ.get(ROOT_VARIABLE)
    if chosen:
        return Path(arguments.path(ROOT_VARIABLE, chosen))
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("seegera_fast")
    except RuntimeError:
        folder = None
    # Without a home, some versions of platformdirs leave the "~" in the path.
    if folder is None or not folder.is_absolute():
        raise OSError(
            f"the data sets have no folder, because no home folder is known (HOME); {OTHER_FOLDER} has or can take them"
        )
    return folder


def _provide(name: str, data_set: DataSet, folder: Path, download: bool, progress: bool) -> None:
    """Downloads the files of the data set that are not in the folder, or raises an error that names them."""
    missing = [file for file in data_set.sha256 if not (folder / file).is_file()]
    if not missing:
        return
    message = f"{name}: files missing in {folder}: {', '.join(missing)}"
    if not download:
        raise FileNotFoundError(f"{message}; download=True fetches them from {data_set.source}")
    for file in missing:
        try:
            download_file(data_set.source + file, folder / file, data_set.sha256[file], progress=progress)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise ConnectionError(
                    f"{message}. The download failed ({error}). Copy the files there, or {OTHER_FOLDER} has them"
                ) from error
            raise OSError(f"{message}, and can't be written there ({error}); {OTHER_FOLDER} can take them") from error
