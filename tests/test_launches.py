"""What a training step launches on a GPU by Triton: no more than before."""

import collections
import importlib

import cases
import pytest
import torch
from configurations import SMALL
from torch.utils._python_dispatch import TorchDispatchMode

import seegera_fast as sf
from seegera_fast import backends
from seegera_fast.registry import OPERATORS
from seegera_fast.seeds import SeedSlots


class Launches(TorchDispatchMode):
    """Counts what a step launches on a GPU: kernels of Triton, and operations of torch that write something.

    Launches are counted by operator of the library; "torch" stands for those between operators. An operation of torch
    is counted once, though it may be several launches.
    """

    def __init__(self):
        super().__init__()
        self.counts, self._operator, self._interpreting = collections.Counter(), "torch", False

    def count_kernels(self, monkeypatch):
        kind = type(importlib.import_module("seegera_fast.kernels.triton.common.dropout").dropout_kernel)
        prepare = kind.__getitem__

        def counted(kernel, grid):
            launch = prepare(kernel, grid)

            def run(*arguments, **options):
                self.counts[self._operator] += 1
                # The interpreter itself calls operations of torch, which are not counted.
                self._interpreting = True
                launch(*arguments, **options)
                self._interpreting = False

            return run

        monkeypatch.setattr(kind, "__getitem__", counted)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._interpreting:
            return function(*args, **kwargs)
        library, name = function._schema.name.split("::")
        if library == "seegera_fast":
            module = importlib.import_module(f"seegera_fast.kernels.triton.{name.removesuffix('_backward')}")
            before, self._operator = self._operator, name
            with self:
                out = getattr(module, name)(**OPERATORS[name].named(args, kwargs))
            self._operator = before
            return out
        out = function(*args, **kwargs)
        given = {tensor.untyped_storage().data_ptr() for tensor in tensors_of((args, kwargs))}
        made = [tensor for tensor in tensors_of(out) if tensor.untyped_storage().data_ptr() not in given]
        written = any(tensor.numel() for tensor in made) and "empty" not in name
        self.counts[self._operator] += written or function._schema.is_mutable
        return out


def tensors_of(tree):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


# The largest numbers of launches in a step with the layers of Cora's v3 preset, on a graph with hubs. With the CUDA
# library, sparse products, masks and noisy_gcn need fewer. For "torch" it is two more than with torch 2.13, because
# other versions divide some operations differently.
MOST_LAUNCHES = {
    "torch": 39,
    "draw_subset": 3,
    "mask_edges": 3,
    "noisy_gcn": 21,
    "noisy_gcn_backward": 23,
    "gcn": 28,
    "gcn_backward": 39,
    "sparse_matmul": 24,
    "reparameterize": 2,
    "reparameterize_backward": 2,
    "dropout": 6,
    "decoder_input": 6,
    "decoder_input_backward": 8,
    "link_likelihood": 9,
    "link_likelihood_backward": 1,
    "feature_likelihood": 11,
    "feature_likelihood_backward": 2,
    "standard_normal_density": 4,
    "standard_normal_density_backward": 2,
    "mixture_density": 6,
    "mixture_density_backward": 2,
    "importance_bound": 1,
    "importance_bound_backward": 1,
}


@pytest.mark.skipif(not backends.interpreted(), reason="needs Triton's interpreter")
def test_a_step_by_triton_has_no_more_launches_than_before(monkeypatch):
    """On a GPU each launch takes microseconds of a step of four milliseconds, and most read or write much memory."""
    graph = cases.large_graph().to(dtype=torch.float32)
    layers = {"encoder_layers": 2, "decoder_layers": 3}
    model = sf.SeeGera(graph, **SMALL, **layers, structure_masking_rate=0.3, dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    slots, warmup = SeedSlots(torch.device("cpu")), torch.ones((), dtype=torch.float64)

    def run():
        optimizer.zero_grad(set_to_none=True)
        model(seed=slots.root, warmup=warmup).loss.backward()
        optimizer.step()

    launches = Launches()
    with sf.use_backend("triton"):
        # The first step computes what the graph caches.
        run()
        launches.count_kernels(monkeypatch)
        with launches:
            run()
    more = {name: count for name, count in launches.counts.items() if count > MOST_LAUNCHES.get(name, 0)}
    assert more == {}, f"of {launches.counts.total()} launches; at most {MOST_LAUNCHES}"
    assert launches.counts.keys() == MOST_LAUNCHES.keys()
