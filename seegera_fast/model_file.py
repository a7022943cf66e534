"""The file of a model: its configuration, sizes and weights, and what it knows of the graph it was built with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import IO, Any

import torch

from .calibration import Calibration
from .config import SeeGeraConfig, checked_fields
from .graph import Graph
from .matching import fixed_nodes, has_identity_features
from .support import arguments, tensor_file
from .support.arguments import FLOATING, MOST_INT
from .support.hints import quoted
from .support.json_fields import Fields, parse
from .support.report import readable_bytes

FORMAT = "seegera_fast.SeeGera/1"
FLAGS = ("weighted", "normalize_features")
SIZES = ("num_nodes", "num_features")
LARGEST = {"seed": 2**63 - 1, **dict.fromkeys(SIZES, MOST_INT)}


@dataclass(frozen=True)
class ModelHeader:
    """What a model has besides its weights and its graph, and the header of its file says.

    Attributes:
        identity_features: whether the model's graph was given no features, so that each node is one.
        node_digest: the digest of the nodes' names, if the model knows its nodes one by one and they have names.
        weighted: whether the edges of the model's graph have weights; None: not known, as earlier versions did not
            write it.
        normalize_features: whether a task divided each row of the features by the sum of its absolute values; None:
            not known.
    """

    config: SeeGeraConfig
    seed: int
    num_nodes: int
    num_features: int
    calibration: Calibration | None = None
    feature_names: tuple[str, ...] | None = None
    identity_features: bool = False
    node_digest: str | None = None
    weighted: bool | None = None
    normalize_features: bool | None = None


def header_of(config: SeeGeraConfig, seed: int, graph: Graph) -> ModelHeader:
    """The header of a new model for a graph."""
    identity = has_identity_features(graph)
    return ModelHeader(
        config,
        seed,
        graph.num_nodes,
        graph.num_features,
        feature_names=None if graph.feature_names is None else tuple(graph.feature_names),
        identity_features=identity,
        node_digest=graph.node_digest if identity or fixed_nodes(config) else None,
        weighted=graph.weights is not None,
    )


def write(
    file: IO[bytes], header: ModelHeader, weights: Mapping[str, torch.Tensor], model: Mapping[str, torch.Tensor]
) -> None:
    """Writes a model to an open file. The same model gives the same bytes.

    Args:
        model: tensors of the names and shapes that the configuration has, by name.

    Raises:
        TypeError, ValueError: a weight could not be read again (its name, dtype, device, NaN), or the file, which is
            the ``path`` of :meth:`SeeGera.save`, is not open for writing bytes. Weights are checked before all else.
    """
    for name, tensor in weights.items():
        arguments.dense(name, tensor)
        arguments.dtype(name, tensor.dtype)
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name}: got NaN or infinite weights, want finite ones")
    _check_names(weights, model)
    dtypes = {tensor.dtype for tensor in weights.values()}
    if len(dtypes) > 1:
        raise TypeError(f"weights: got {' and '.join(sorted(map(str, dtypes)))}, want one dtype")
    texts = {"format": FORMAT, "config": json.dumps(asdict(header.config))}
    texts |= {name: str(getattr(header, name)) for name in LARGEST}
    if header.calibration is not None:
        texts["calibration"] = json.dumps(asdict(header.calibration))
    if header.feature_names is not None:
        texts["feature_names"] = json.dumps(list(header.feature_names))
    if header.identity_features:
        texts["identity_features"] = "true"
    if header.node_digest is not None:
        texts["node_digest"] = header.node_digest
    texts |= {name: json.dumps(getattr(header, name)) for name in FLAGS if getattr(header, name) is not None}
    try:
        tensor_file.write(file, weights, texts)
    except (TypeError, ValueError) as error:
        # A text file gives a TypeError, one that is closed or open for reading a ValueError.
        kind = TypeError if isinstance(error, TypeError) else ValueError
        wanted = "a binary file that is open for writing"
        raise kind(f"path: got {type(file).__name__} ({error}), want {wanted}") from error


def _check_names(weights: Mapping[str, torch.Tensor], model: Mapping[str, torch.Tensor]) -> None:
    """Checks that weights are those of a configuration, since others could not be read again.

    Raises:
        ValueError: a weight is missing, too much, or of another shape.
    """
    hint = "undo torch's pruning and parametrizations first, and keep layers of your own in a file of their own"
    for name in {**model, **weights}:
        if name not in weights or name not in model:
            what = "has no weight of this name" if name not in weights else "is no weight of this configuration"
            raise ValueError(f"{name}: {what}; {hint}")
        if weights[name].shape != model[name].shape:
            got, wanted = tuple(weights[name].shape), tuple(model[name].shape)
            raise ValueError(f"{name}: got shape {got}, want {wanted}, as the configuration has it")


def read_header(file: tensor_file.TensorFile) -> ModelHeader:
    """Reads the header of an open file.

    Raises:
        ValueError: it is not the header of a model; the message names the file and the field.
    """
    found = file.texts.get("format")
    if found != FORMAT:
        raise ValueError(f"{file.path} has format {quoted(found)}, want {FORMAT!r}")
    missing = [key for key in ("config", *LARGEST) if key not in file.texts]
    if missing:
        raise ValueError(f"{file.path} lacks {', '.join(missing)} in its header")
    try:
        config = _read_config(parse(file.texts["config"]), len(file.entries))
        numbers = {name: _read_int(name, file.texts[name]) for name in LARGEST}
        calibration = _read_calibration(file.texts.get("calibration"))
        names = _read_feature_names(file.texts.get("feature_names"), numbers["num_features"])
        identity = _read_text("identity_features", file.texts.get("identity_features"), "true") is not None
        digest = _read_text("node_digest", file.texts.get("node_digest"), "[0-9a-f]{64}")
        flags = {name: _read_flag(name, file.texts.get(name)) for name in FLAGS}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file.path} has a header that isn't that of a model ({error})") from error
    known = {"calibration": calibration, "feature_names": names, **flags}
    return ModelHeader(config, **numbers, **known, identity_features=identity, node_digest=digest)


def _read_config(content: Any, tensors: int) -> SeeGeraConfig:
    given = {name: content[name] for name in Fields("config", content)}
    checked_fields(given, [field.name for field in fields(SeeGeraConfig)])
    config = SeeGeraConfig(**given)
    # Each layer has a tensor, so a file with far fewer is refused before so many layers are made.
    has_decoder = config.feature_side and config.decoder != "inner_product"
    for name in ("encoder_layers", *["decoder_layers"] * has_decoder):
        if getattr(config, name) > max(tensors, 1000):
            raise ValueError(f"{name}: got {getattr(config, name)}, but the file has {tensors} tensors")
    return config


def _read_calibration(text: str | None) -> Calibration | None:
    if text is None:
        return None
    content = Fields("calibration", parse(text))
    names = [field.name for field in fields(Calibration)]
    content.have(names)
    return Calibration(**{name: content.number(name) for name in names})


def _read_feature_names(text: str | None, count: int) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = parse(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"feature_names: got {quoted(names)}, want a list of strings")
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"feature_names: got {len(set(names))} different names, want {count}, one per feature")
    return tuple(names)


def _read_text(name: str, text: str | None, pattern: str) -> str | None:
    if text is not None and not re.fullmatch(pattern, text):
        raise ValueError(f"{name}: got {quoted(text)}, want {pattern}")
    return text


def _read_flag(name: str, text: str | None) -> bool | None:
    found = _read_text(name, text, "true|false")
    return None if found is None else found == "true"


def _read_int(name: str, text: str) -> int:
    least = -LARGEST[name] - 1 if name == "seed" else 1
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not least <= int(text) <= LARGEST[name]:
        raise ValueError(f"{name}: got {quoted(text)}, want an int from {least} to {LARGEST[name]}")
    return int(text)


def check_draws(file: tensor_file.TensorFile, header: ModelHeader, graph: Graph) -> None:
    """Checks that the noise of all draws for all nodes of a graph fits in the device's memory.

    It has to, in whatever blocks the nodes are embedded, and so have the draws of one node.

    The number of draws is in no tensor's shape, so a wrong one would be noticed only when the memory runs out.

    Raises:
        ValueError: it does not fit.
    """
    if graph.device.type == "cuda":
        memory = torch.cuda.get_device_properties(graph.device).total_memory
    else:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    config = header.config
    draws, itemsize = config.num_importance_samples, min(entry.dtype.itemsize for entry in file.entries.values())
    needed = draws * max(graph.num_nodes * config.noise_dim, config.embedding_dim) * itemsize
    # A single draw is no mistake.
    if draws > 1 and needed > memory:
        raise ValueError(
            f"{file.path} has num_importance_samples {draws} in its header: so many draws of {graph.num_nodes} nodes "
            f"take at least {readable_bytes(needed)}, and {graph.device} has {readable_bytes(memory)}"
        )


def read_weights(file: tensor_file.TensorFile, model: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Reads the weights of a model, after a check that the file has those of its configuration and no others.

    Args:
        model: tensors of the model's names and shapes, by name.

    Raises:
        ValueError: a tensor is missing, too much, of another shape or dtype, or not finite.
    """
    dtypes = {entry.dtype for entry in file.entries.values()}
    # Models of earlier versions had empty weights for noise of width 0.
    found = {name: entry for name, entry in file.entries.items() if name in model or 0 not in entry.shape}
    for name in {**model, **found}:
        if name not in found:
            raise ValueError(f"{file.path} lacks the tensor {name}")
        if name not in model:
            raise ValueError(f"{file.path} has a tensor {quoted(name)}, which its configuration has not")
        entry = found[name]
        shape = tuple(model[name].shape)
        if entry.shape != shape or entry.dtype not in FLOATING:
            raise ValueError(f"{file.path} has {name} as {entry}, want torch.float32 or torch.float64 {shape}")
    if len(dtypes) > 1:
        raise ValueError(f"{file.path} has tensors of {' and '.join(sorted(map(str, dtypes)))}, want one dtype")
    return {name: file.tensor(name) for name in model}
