"""Files of models: the same bytes for the same model, and nothing that is damaged or foreign is taken for one."""

import io
import json
import math
import os
import stat
import sys

import pytest
import safetensors.torch
import torch
from disk import largest_file
from small_model import WIDTHS, graph
from tolerances import assert_same_bits
from torch.nn.utils import prune

import seegera_fast as sf
from seegera_fast import tasks
from seegera_fast.support import atomic, hints, json_fields, tensor_file


def parts_of(path):
    """The header of a file as JSON, and the bytes of its tensors."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def write_parts(path, header, tensors):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + tensors)


def refused(path, *words):
    """Asserts that the file is refused by its name and these words, in one line."""
    with pytest.raises(ValueError, match=r"path: .*model\.safetensors") as caught:
        sf.SeeGera.load(path, graph())
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


# --- writing ---------------------------------------------------------------------------------------------------------


def test_identical_runs_write_identical_bytes(tmp_path):
    for name in "ab":
        fields = {"epochs": 3, "progress": False, **WIDTHS}
        tasks.link_prediction(graph(), seed=4, **fields).model.save(tmp_path / name)
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    header, _ = parts_of(tmp_path / "a")
    names = list(header)[1:]
    assert names == sorted(names)


def test_it_is_in_the_safetensors_format(path, tmp_path):
    model = sf.SeeGera.load(path, graph())
    with safetensors.safe_open(path, framework="pt") as file:
        texts = file.metadata()
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert sorted(texts) == ["config", "format", "num_features", "num_nodes", "seed", "weighted"]
    assert sorted(found) == sorted(model.state_dict())
    safetensors.torch.save_file(found, tmp_path / "theirs", texts)
    theirs = sf.SeeGera.load(tmp_path / "theirs", graph())
    for name, tensor in model.state_dict().items():
        assert_same_bits(found[name], tensor, name=name)
        assert_same_bits(theirs.state_dict()[name], tensor, name=name)


def test_tensors_of_any_shape_and_dtype_read_as_they_were_written(tmp_path):
    tensors = {
        "a": torch.arange(3.0),
        "b": torch.arange(6, dtype=torch.float64).reshape(2, 3).t(),
        "c": torch.zeros(0, 4),
        "d": torch.tensor(1.5),
        "e": torch.tensor([True, False, True]),
        "é": torch.arange(5, dtype=torch.int16),
    }
    with open(tmp_path / "t", "wb") as file:
        tensor_file.write(file, tensors, {"x": 'quotes " and é'})
    file = tensor_file.read(tmp_path / "t")
    found = {name: file.tensor(name) for name in file.entries}
    assert file.texts == {"x": 'quotes " and é'}
    library = safetensors.torch.load_file(tmp_path / "t")
    assert sorted(found) == sorted(library) == sorted(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
        assert torch.equal(library[name], tensor)


def test_an_open_file(path):
    content = io.BytesIO()
    sf.SeeGera.load(path).save(content)
    assert content.getvalue() == path.read_bytes()


def test_a_file_has_the_mode_of_any_file_and_is_locked_while_it_is_written(tmp_path, monkeypatch):
    replace, locked = os.replace, []

    def looking(aside, path):
        descriptor = os.open(aside, os.O_RDONLY)
        locked.append(not atomic.hold(descriptor))
        os.close(descriptor)
        replace(aside, path)

    monkeypatch.setattr(atomic.os, "replace", looking)
    before = os.umask(0o027)
    try:
        sf.SeeGera(graph(), **WIDTHS).save(tmp_path / "m")
        checkpoint = sf.Checkpoint(tmp_path / "c", every=1)
        tasks.link_prediction(graph(), epochs=2, progress=False, checkpoint=checkpoint, **WIDTHS)
    finally:
        os.umask(before)
    # The model, and the state after each of two epochs.
    assert locked == [True, True, True]
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "mc"} == {0o640}


def test_a_file_that_cannot_be_written_is_named_with_the_cause(path):
    model, before = sf.SeeGera.load(path), path.read_bytes()
    with largest_file(2000), pytest.raises(OSError, match=r"model\.safetensors can't be written: File too large"):
        model.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    with pytest.raises(OSError, match=r"absent.m can't be written: No such file"):
        model.save(path.parent / "absent" / "m")


def test_a_stream_that_takes_no_bytes_is_named_with_the_reason(path):
    model, before = sf.SeeGera.load(path), path.read_bytes()
    with open(path, "rb") as reading, open(path.with_name("closed"), "wb") as closed:
        closed.close()
        for stream, error in ((io.StringIO(), TypeError), (reading, ValueError), (closed, ValueError)):
            with pytest.raises(error, match=r"^path: got .*, want a binary file that is open for writing$"):
                model.save(stream)
    assert path.read_bytes() == before


class Slow(io.RawIOBase):
    """A file without a buffer that takes a few bytes at a time, and none once it has ``room`` of them."""

    def __init__(self, room):
        super().__init__()
        self.room, self.content = room, b""

    def writable(self):
        return True

    def write(self, data):
        taken = bytes(data[: min(100, self.room - len(self.content))])
        self.content += taken
        return len(taken) or None


def test_a_file_that_takes_a_part_at_a_time_gets_all(path):
    model, whole = sf.SeeGera.load(path), Slow(10**9)
    model.save(whole)
    assert whole.content == path.read_bytes()
    with pytest.raises(OSError, match="takes no more bytes"):
        model.save(Slow(1234))


def pruned(model):
    prune.random_unstructured(model.node_mean.first, "weight", amount=0.3)
    return model


def with_a_head(model):
    model.head = torch.nn.Linear(2, 3)
    return model


def wider(model):
    model.node_mean.first.weight = torch.nn.Parameter(torch.zeros(3, 99))
    return model


def poisoned(model):
    with torch.no_grad():
        model.node_mean.first.weight[1, 2] = float("nan")
    return model


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (poisoned, ValueError, r"node_mean\.first\.weight: got NaN or infinite weights"),
        (lambda model: model.to("meta"), ValueError, r"weight: is on meta"),
        (lambda model: model.half(), TypeError, r"weight: got torch\.float16, want torch\.float32 or"),
        (lambda model: model.node_mean.first.float() and model, TypeError, r"weights: got .*, want one dtype"),
        (pruned, ValueError, r"node_mean\.first\.weight: has no weight of this name; undo torch's pruning"),
        (with_a_head, ValueError, r"head\.weight: is no weight of this configuration; .* file of their own"),
        (wider, ValueError, r"node_mean\.first\.weight: got shape \(3, 99\), want \("),
    ],
)
def test_weights_that_could_not_be_read_again_are_not_written(path, change, error, words):
    before, stream = path.read_bytes(), io.BytesIO()
    model = change(sf.SeeGera.load(path))
    for target in (path, stream):
        with pytest.raises(error, match=words):
            model.save(target)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert stream.getvalue() == b""


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(path, value):
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, framework="pt") as file:
        texts = file.metadata()
    tensors["node_mean.first.weight"][1, 2] = value
    safetensors.torch.save_file(tensors, path, texts)
    refused(path, "has NaN or infinite numbers in its tensor node_mean.first.weight")


def test_two_dtypes_in_one_file_are_refused(path):
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, framework="pt") as file:
        texts = file.metadata()
    tensors["node_mean.first.weight"] = tensors["node_mean.first.weight"].float()
    safetensors.torch.save_file(tensors, path, texts)
    refused(path, "has tensors of torch.float32 and torch.float64, want one dtype")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_importance_samples", 200_000, "num_importance_samples: got 200000, want 1 to 65536"),
        ("encoder_layers", 10**9, "encoder_layers: got 1000000000, but the file has 15 tensors"),
        ("hidden_dim", 2**31 - 1, "has node_mean.first.weight as torch.float64 (9, 5), want"),
        ("embedding_dim", "4", "embedding_dim: got '4', want an int"),
        ("feature_side", "false", "feature_side: got 'false', want True or False"),
        ("negatives", [1], "negatives: got list, want an int"),
        ("variant", None, "variant: got None"),
        ("more", 1, "more: is not a field"),
    ],
)
def test_a_wrong_field_of_the_configuration_is_refused(path, field, value, words):
    header, tensors = parts_of(path)
    config = {**json.loads(header["__metadata__"]["config"]), field: value}
    header["__metadata__"]["config"] = json.dumps(config)
    write_parts(path, header, tensors)
    refused(path, words)


def test_widths_whose_product_no_tensor_can_have_are_refused(path):
    header, tensors = parts_of(path)
    config = json.loads(header["__metadata__"]["config"])
    config.update(hidden_dim=2**31 - 1, embedding_dim=2**31 - 1)
    header["__metadata__"]["config"] = json.dumps(config)
    write_parts(path, header, tensors)
    refused(path, "has widths in its header that no tensor can have")


def test_draws_for_which_there_is_no_memory_are_refused(path, monkeypatch):
    header, tensors = parts_of(path)
    config = {**json.loads(header["__metadata__"]["config"]), "num_importance_samples": 60_000}
    header["__metadata__"]["config"] = json.dumps(config)
    write_parts(path, header, tensors)
    sf.SeeGera.load(path, graph())
    monkeypatch.setattr("seegera_fast.model_file.os.sysconf", lambda name: 2**11)
    refused(path, "num_importance_samples 60000 in its header: so many draws of 17 nodes take at least 39 MiB")
    sf.SeeGera.load(path)
    # Without noise, nodes are embedded one after the other in the memory for one.
    sf.SeeGera(graph(), num_importance_samples=60_000, noise_dim=0, **WIDTHS).save(path)
    sf.SeeGera.load(path, graph())


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("seed", "1_0"),
        ("seed", "²"),
        ("seed", str(2**63)),
        ("seed", "9" * 5000),
        ("num_nodes", "0"),
        ("num_nodes", "-3"),
        ("num_nodes", str(10**12)),
        ("num_features", " 12"),
    ],
)
def test_a_wrong_number_in_the_header_is_refused(path, field, text):
    header, tensors = parts_of(path)
    header["__metadata__"][field] = text
    write_parts(path, header, tensors)
    refused(path, f"{field}: got '{text[:20]}", "want an int from")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"dropout": NaN}', "got the number 'NaN', want finite ones"),
        ('{"dropout": 1e999}', "got the number '1e999', want finite ones"),
        ('{"dropout": 0.1, "dropout": 0.2}', "got the name 'dropout' twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"dropout": ' + "9" * 5000 + "}", "that isn't that of a model"),
        ("[]", "config: got [], want an object"),
        ("null", "config: got None, want an object"),
    ],
)
def test_json_by_the_letter(path, text, words):
    header, tensors = parts_of(path)
    header["__metadata__"]["config"] = text
    write_parts(path, header, tensors)
    refused(path, words)


FIRST = "decoder.last.weight"


def entry(header, **changes):
    return {**header, FIRST: {**header[FIRST], **changes}}


@pytest.mark.parametrize(
    "change",
    [
        lambda header: [],
        lambda header: {**header, "__metadata__": 3},
        lambda header: {**header, "__metadata__": {"format": 3}},
        lambda header: {**header, FIRST: []},
        lambda header: {**header, FIRST: {"dtype": "F32"}},
        lambda header: entry(header, dtype="F9"),
        lambda header: entry(header, dtype="F4"),
        lambda header: entry(header, dtype="F32"),
        lambda header: entry(header, shape=[5, -9]),
        lambda header: entry(header, shape=[5.0, 9]),
        lambda header: entry(header, shape=[True, 45]),
        lambda header: entry(header, shape=[10**30, 0]),
        lambda header: entry(header, data_offsets=[0]),
        lambda header: entry(header, data_offsets=[0, 2.5]),
        lambda header: entry(header, data_offsets=[4, 364]),
        lambda header: entry(header, data_offsets=[10**30, 10**30 + 360]),
        lambda header: {key: header[key] for key in header if key != FIRST},
    ],
)
def test_a_wrong_header_is_refused(path, change):
    header, tensors = parts_of(path)
    assert header[FIRST]["data_offsets"] == [0, 360]
    write_parts(path, change(header), tensors)
    refused(path, "is not a safetensors file")


def test_a_cut_or_longer_file_is_refused(path):
    content = path.read_bytes()
    for length in (0, 7, 8, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        refused(path, "is not a safetensors file")
    path.write_bytes(content + b"\0")
    refused(path, "is not a safetensors file")
    path.write_bytes(b"\xff" * 8 + content)
    refused(path, "is not a safetensors file")
    write_parts(path, b"\xff\xfe", b"")
    refused(path, "is not a safetensors file")


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    refused(tmp_path / "model.safetensors", "is not a regular file")


def test_a_long_value_is_cut_in_the_message():
    assert len(hints.quoted("x" * 10**6)) < 70
    assert hints.quoted(10**5000) == "an int of 16610 bits"
    assert hints.quoted([0] * 10**6) == "a list of 1000000"


@pytest.mark.parametrize("number", [1.7e308, 1.75e308, -1.797e308, sys.float_info.max, 10**308, 0, -5, 0.5])
def test_numbers_within_the_range_of_floats(number):
    assert json_fields.is_number(number)
    assert json_fields.Fields("file", {"loss": number}).number("loss") == number


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 10**309, -(10**400), True, "1", None])
def test_what_is_no_number_within_the_range_of_floats(number):
    assert not json_fields.is_number(number)
    with pytest.raises(ValueError, match=r"^file: loss: got .*, want a number$"):
        json_fields.Fields("file", {"loss": number}).number("loss")


def test_a_model_that_was_loaded_in_inference_mode_can_be_trained(path):
    with torch.inference_mode():
        model = sf.SeeGera.load(path)
    model(graph()).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
