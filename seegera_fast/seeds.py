"""Seeds: one number from the user, and from it an independent one for each site, where something is drawn."""

from __future__ import annotations

from typing import NamedTuple

import torch

_MASK = (1 << 64) - 1


class Site:
    """The sites of a model's draws: the numbers that :func:`derive_seed` takes, below the seed of a step.

    Layers and epochs are sites too, with their index for a number. A number that changes changes every result.
    """

    # Below the seed of a step.
    STRUCTURE_MASK = 0
    FEATURE_MASK = 1
    ENCODER = 2
    SAMPLES = 3
    DECODER = 4
    NEGATIVES = 5

    # Below ENCODER and SAMPLES: what is encoded, or sampled.
    NODES = 0
    FEATURES = 1

    # Below ENCODER and what is encoded: the branches.
    MEAN = 0
    LOG_VAR = 1

    # Below a branch: the first layer of a stack, whose further layers follow by index; the two layers of a head.
    FIRST_LAYER = 0
    INNER_LAYER = 0
    OUTER_LAYER = 1

    # Below DECODER. Below FEATURE_DECODER its layers by index.
    NODE_DROPOUT = 0
    FEATURE_DROPOUT = 1
    FEATURE_DECODER = 2


class SeedSlots:
    """Seeds at fixed addresses on a device: a recorded step reads them there, and each replay writes new ones.

    Args:
        device: where the step draws.
        capacity: the most sites that a step may have.
    """

    def __init__(self, device: torch.device, capacity: int = 1024) -> None:
        # 16 bytes a slot: Triton compiles a kernel anew for an address that is no multiple of them.
        self._values = torch.zeros((capacity, 2), dtype=torch.int64, device=device)
        self._slots: dict[tuple[int, ...], int] = {}
        # The sites with a slot and those above them, each after the one above it.
        self._sites: dict[tuple[int, ...], None] = {}

    @property
    def root(self) -> SlotSeed:
        """Stands for the seed that the step is given."""
        return SlotSeed(self, ())

    def at(self, path: tuple[int, ...]) -> torch.Tensor:
        """int64 ``[1]``: the slot of a site, which is the same at each call."""
        if path not in self._slots:
            self._slots[path] = len(self._slots)
            self._sites |= dict.fromkeys(path[:length] for length in range(1, len(path) + 1))
        slot = self._slots[path]
        if slot >= self._values.shape[0]:
            raise RuntimeError(f"a step draws at more than {self._values.shape[0]} sites")
        return self._values[slot, :1]

    def fill(self, seed: int) -> None:
        """Writes the seeds that all sites seen so far have under ``seed``, in one copy that is not waited for."""
        # A GPU waits for this, so each site takes one step from the number of the site above it.
        numbers = {(): seed}
        for path in self._sites:
            numbers[path] = _step(numbers[path[:-1]], path[-1])
        slots = [(_signed(numbers[path]), 0) for path in self._slots]
        seeds = torch.tensor(slots, dtype=torch.int64).reshape(-1, 2)
        if self._values.is_cuda:
            seeds = seeds.pin_memory()
        self._values[: len(self._slots)].copy_(seeds, non_blocking=True)


class SlotSeed(NamedTuple):
    """The seed of a site whose number is in a slot."""

    slots: SeedSlots
    path: tuple[int, ...]


def derive_seed(seed: int | torch.Tensor | SlotSeed, *path: int) -> int | torch.Tensor | SlotSeed:
    """The seed of the site ``path`` below ``seed``, by SplitMix64 steps.

    Args:
        seed: an int, an int64 tensor of one element, which is never read on the host, or that of a slot.
        path: members of :class:`Site` and indices of layers or epochs, each below the one before it.

    Returns:
        The same kind as ``seed``; all kinds give the same number.
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
    """The seed as the operators take it: int64 ``[1]``, an int on ``device``, a tensor or slot where it is."""
    if isinstance(seed, SlotSeed):
        return seed.slots.at(seed.path)
    if isinstance(seed, torch.Tensor):
        return seed.reshape(1)
    return torch.full((1,), seed, dtype=torch.int64, device=device)


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _step(seed: int, step: int) -> int:
    """The number of a site from that of the site above it: 64 bits without a sign."""
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
