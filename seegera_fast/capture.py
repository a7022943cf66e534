"""A training step as CUDA graphs: recorded once, replayed without Python."""

from __future__ import annotations

import torch

from . import checks
from .graph import Graph, check_graph
from .objective import Output
from .seeds import SeedSlots

# Optimisers that a CUDA graph can hold and whose state starts at zero.
OPTIMIZERS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Adadelta)

# Steps before the recording. They compile kernels, choose algorithms and build what a Graph caches.
WARMUP_STEPS = 3


class CapturedStep:
    """Forward, backward and the optimiser's step of a model, recorded as CUDA graphs (see :meth:`SeeGera.capture`).

    There are two of them, so that a loss can be looked at before the weights change. A replay draws and computes the
    same numbers as the eager step with the same seed. Gradients, the loss and its terms stay at fixed addresses, and
    the next replay overwrites them. The weights and the optimiser's state stay at fixed addresses too: after
    ``model.to`` or ``optimizer.load_state_dict`` the step has to be recorded again.

    Args:
        model: a :class:`seegera_fast.SeeGera`.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, graph: Graph) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model: got {type(model).__name__}, want a seegera_fast.SeeGera")
        check_graph(graph)
        self.model = model
        self._modules = list(model.modules())
        self._children = self._current_children()
        # The recording holds addresses only, so the objects at those addresses must live as long as it does.
        self._kept = optimizer, graph
        parameters = list(model.parameters())
        device = parameters[0].device
        check_capturable(device, optimizer)
        self._slots = SeedSlots(device)
        self._warmup = torch.ones((), dtype=torch.float64, device=device)
        model.train()

        def gradients() -> Output:
            output = model(graph, seed=self._slots.root, warmup=self._warmup)
            output.loss.backward()
            return output

        weights = [parameter.detach().clone() for parameter in parameters]
        states = {id(parameter): _copy(optimizer.state.get(parameter, {})) for parameter in parameters}
        self._gradients, self._update = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        side, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
        side.wait_stream(current)
        try:
            with torch.cuda.stream(side):
                for _ in range(WARMUP_STEPS):
                    optimizer.zero_grad(set_to_none=True)
                    gradients()
                    optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            # The default stream of torch.cuda.graph belongs to the first device that recorded in this process, which
            # may be another one.
            with torch.cuda.device(device):
                # Other threads may use the device meanwhile.
                recording = {"stream": side, "capture_error_mode": "thread_local"}
                with torch.cuda.graph(self._gradients, **recording):
                    output = gradients()
                with torch.cuda.graph(self._update, **recording):
                    optimizer.step()
        finally:
            current.wait_stream(side)
            # The steps above changed weights and state. The old values are copied back to the recorded addresses.
            with torch.no_grad():
                for parameter, weight in zip(parameters, weights, strict=True):
                    parameter.copy_(weight)
                    _restore(optimizer.state.get(parameter, {}), states[id(parameter)])
        self._output = Output(output.loss.detach(), output.samples)
        self._recorded = self._addresses()

    def __call__(self, *, seed: int | None = None, warmup: float = 1.0) -> Output:
        """One step.

        Args:
            seed: seed of all draws; None: a new one at each call, in the order in which the eager model takes them.
            warmup: factor t of the regularising terms, in [0, 1].

        Returns:
            The loss and its terms, computed before the weights change. Each call returns the same tensors.

        Raises:
            TypeError, ValueError: an argument of a wrong kind or out of range.
            RuntimeError: the weights or the optimiser's state were moved after the recording.
        """
        output = self.gradients(seed=seed, warmup=warmup)
        self.update()
        return output

    def gradients(self, *, seed: int | None = None, warmup: float = 1.0) -> Output:
        """The part of a step before the weights change. Arguments, result and errors are those of a call."""
        warmup = checks.probability("warmup", warmup, one=True)
        if seed is not None:
            seed = checks.whole("seed", seed, least=-(2**63), most=2**63 - 1)
        if self._current_children() != self._children or self._addresses() != self._recorded:
            raise RuntimeError("capture: weights or the optimizer's state lie elsewhere now, record the step anew")
        if seed is None:
            seed = self.model.next_seed()
        self._slots.fill(seed)
        self._warmup.fill_(warmup)
        self._gradients.replay()
        return self._output

    def update(self) -> None:
        """The optimiser's step, with the gradients of the last call of :meth:`gradients`."""
        self._update.replay()

    # Every replay calls these two. model.parameters() would take ten times as long, mostly to find the modules.

    def _current_children(self) -> list[int]:
        return [id(child) for module in self._modules for child in module._modules.values()]

    def _addresses(self) -> list[int]:
        optimizer, _ = self._kept
        weights = [value for module in self._modules for value in module._parameters.values()]
        states = [value for state in optimizer.state.values() for value in state.values()]
        return [value.data_ptr() for value in (*weights, *states) if isinstance(value, torch.Tensor)]


def recorded_on(device: torch.device) -> bool:
    """Whether the device has CUDA graphs."""
    return device.type == "cuda"


def check_capturable(device: torch.device, optimizer: torch.optim.Optimizer) -> None:
    """Checks that a CUDA graph can hold the step.

    Raises:
        TypeError: ``optimizer`` is not an optimiser.
        ValueError: the device is not a GPU; the optimiser is neither in OPTIMIZERS nor SGD without dampening; or its
            step reads values from the device.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer: got {type(optimizer).__name__}, want a torch.optim.Optimizer")
    if not recorded_on(device):
        raise ValueError(f"model: is on {device}, want a CUDA device: only there is a step recorded")
    plain = isinstance(optimizer, torch.optim.SGD) and not any(group["dampening"] for group in optimizer.param_groups)
    if not plain and type(optimizer) not in OPTIMIZERS:
        names = ", ".join(kind.__name__ for kind in OPTIMIZERS)
        raise ValueError(f"optimizer: got {type(optimizer).__name__}, want {names} or SGD without dampening")
    if not all(group.get("capturable", True) for group in optimizer.param_groups):
        raise ValueError(
            f"optimizer: {type(optimizer).__name__} has capturable=False, want True: its step would read the device"
        )


def _copy(state: dict) -> dict:
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()}


def _restore(state: dict, before: dict) -> None:
    """Restores an optimiser's state of one parameter in place; entries that are missing in ``before`` become zero."""
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            if name in before:
                value.copy_(before[name])
            else:
                value.zero_()
        elif name in before:
            state[name] = before[name]
