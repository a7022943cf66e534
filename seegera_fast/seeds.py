"""Seeds. A site is a point of the program that draws numbers; its seed is derived from the seed of the user."""

from __future__ import annotations

from typing import NamedTuple

import torch

_MASK = (1 << 64) - 1


class Site:
    """The numbers of a model's sites, which form a path for :func:`derive_seed`.

    A path may also have the index of an epoch or of a layer. Changing a number here changes every result.
    """

    # Below the seed of a step.
    STRUCTURE_MASK = 0
    FEATURE_MASK = 1
    ENCODER = 2
    SAMPLES = 3
    DECODER = 4
    NEGATIVES = 5
    # Above these, where each rank of several processes draws its own numbers.
    RANK = 6
    # Below the seed of an epoch that has batches: the order of their parts, and with its number each batch.
    BATCHES = 7

    # Below ENCODER and SAMPLES: what is encoded or sampled.
    NODES = 0
    FEATURES = 1

    # Below NODES and FEATURES of the encoder: its two branches.
    MEAN = 0
    LOG_VAR = 1

    # Below a branch: the first layer of a stack (its other layers have their index), or the two layers of a head.
    FIRST_LAYER = 0
    INNER_LAYER = 0
    OUTER_LAYER = 1

    # Below DECODER. Below FEATURE_DECODER, each layer has its index.
    NODE_DROPOUT = 0
    FEATURE_DROPOUT = 1
    FEATURE_DECODER = 2


class SeedSlots:
    """Seeds at fixed addresses on a device. A recorded step reads them there, and each replay writes new ones.

    Args:
        device: the device of the step.
        capacity: the largest number of sites that a step may have.
    """

    def __init__(self, device: torch.device, capacity: int = 1024) -> None:
        # A slot has 16 bytes, because Triton compiles a kernel again for an address that is not a multiple of 16.
        self._values = torch.zeros((capacity, 2), dtype=torch.int64, device=device)
        self._slots: dict[tuple[int, ...], int] = {}
        # The sites with a slot and all sites above them, in an order in which each follows the one above it.
        self._sites: dict[tuple[int, ...], None] = {}

    @property
    def root(self) -> SlotSeed:
        """The seed of the step, whose value is set by :meth:`fill`."""
        return SlotSeed(self, ())

    def at(self, path: tuple[int, ...]) -> torch.Tensor:
        """int64 ``[1]``: the slot of a site, the same tensor memory at each call."""
        if path not in self._slots:
            self._slots[path] = len(self._slots)
            self._sites |= dict.fromkeys(path[:length] for length in range(1, len(path) + 1))
        slot = self._slots[path]
        if slot >= self._values.shape[0]:
            raise RuntimeError(f"a step draws at more than {self._values.shape[0]} sites")
        return self._values[slot, :1]

    def fill(self, seed: int) -> None:
        """Writes the seeds of all sites seen so far, derived from ``seed``, in one asynchronous copy."""
        # A GPU waits for this loop, so each site's number is derived in one step from that of the site above it.
        numbers = {(): seed}
        for path in self._sites:
            numbers[path] = _step(numbers[path[:-1]], path[-1])
        slots = [(_signed(numbers[path]), 0) for path in self._slots]
        seeds = torch.tensor(slots, dtype=torch.int64, device="cpu").reshape(-1, 2)
        if self._values.is_cuda:
            seeds = seeds.pin_memory()
        self._values[: len(self._slots)].copy_(seeds, non_blocking=True)


class SlotSeed(NamedTuple):
    """The seed of a site that is stored in a slot."""

    slots: SeedSlots
    path: tuple[int, ...]


def derive_seed(seed: int | torch.Tensor | SlotSeed, *path: int) -> int | torch.Tensor | SlotSeed:
    """Derives the seed of the site ``path`` from ``seed``, by a SplitMix64 step for each number of the path.

    Args:
        seed: an int, an int64 tensor of one element (which is never read on the host), or a SlotSeed.
        path: members of :class:`Site`, and indices of epochs and layers, from the top down.

    Returns:
        A seed of the same kind. All kinds give the same number.
    """
    if isinstance(seed, SlotSeed):
        return SlotSeed(seed.slots, seed.path + path)
    for step in path:
        if isinstance(seed, torch.Tensor):
            seed = _mix_tensor(seed + _signed((step + 1) * 0x9E3779B97F4A7C15))
        else:
            seed = _signed(_step(seed, step))
    return seed


def seed_tensor(seed: int | torch.Tensor | SlotSeed, device: torch.device) -> torch.Tensor:
    """Converts a seed to what the operators take: int64 ``[1]``. An int goes to ``device``; others stay on theirs."""
    if isinstance(seed, SlotSeed):
        return seed.slots.at(seed.path)
    if isinstance(seed, torch.Tensor):
        return seed.reshape(1)
    return torch.full((1,), seed, dtype=torch.int64, device=device)


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _step(seed: int, step: int) -> int:
    """The number of a site, from the number of the site above it: 64 bits, unsigned."""
    value = (seed + (step + 1) * 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mix_tensor(value: torch.Tensor) -> torch.Tensor:
    value = (value ^ _shift(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def _shift(value: torch.Tensor, by: int) -> torch.Tensor:
    """Logical shift to the right: int64 shifts copy the sign."""
    return (value >> by) & ((1 << (64 - by)) - 1)
