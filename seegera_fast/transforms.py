"""Operators inside of torch.func: grad, vmap, jacrev, functional_call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad

# What torch dispatches to the transforms by.
TRANSFORMS = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode


def active() -> bool:
    """Whether the caller is inside of torch.func.grad, torch.vmap, torch.func.jvp or their like."""
    if torch._C._are_functorch_transforms_active():
        # Where they are switched off for a while, as by ``lasting``, tensors are plain ones.
        return not torch._C._dispatch_tls_is_dispatch_key_excluded(TRANSFORMS)
    return forward_ad._current_level >= 0


def wants_gradient(tensor: torch.Tensor | None) -> bool:
    """Whether a gradient of the tensor may be asked for.

    Inside of a transform every tensor may have one: a tensor of torch.vmap does not say what the tensor in it needs.
    """
    return tensor is not None and torch.is_grad_enabled() and (tensor.requires_grad or active())


def without_autograd(arguments: tuple[Any, ...]) -> bool:
    """Whether autograd has nothing to do in an operator's call, and nobody else may ask it for more.

    What users run in ``__torch_function__``, of a tensor or of a mode, may have gradients of its own.
    """
    return not (
        torch.compiler.is_compiling()
        or torch.overrides.has_torch_function(arguments)
        or (torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments))
    )


def function_of(
    name: str,
    forward: Callable[..., Any],
    run: Callable[..., Any],
    setup_context: Callable[..., None] | None,
    backward: Callable[..., Any],
    axes: Mapping[int, int],
    result_axes: tuple[int, ...] | None,
) -> type[torch.autograd.Function]:
    """Makes the autograd.Function of an operator, which torch.func can transform, unlike the operator itself.

    Args:
        name: of the operator, for messages.
        forward: calls the operator on plain tensors.
        run: calls the operator inside of the transforms that are left.
        setup_context, backward: those of the operator's registered derivative.
        axes: number of an argument -> its axis of draws, along which the operator computes each draw on its own.
        result_axes: the axis of draws of each result; None: there are none, and batches run one after the other.
    """

    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
        if result_axes is not None and all(dim is None or number in axes for number, dim in enumerate(in_dims)):
            return folded(info.batch_size, in_dims, given, result_axes)
        rows = [
            run(*[value if dim is None else value.select(dim, row) for value, dim in zip(given, in_dims, strict=True)])
            for row in range(info.batch_size)
        ]
        if isinstance(rows[0], torch.Tensor):
            return torch.stack(rows), 0
        return tuple(torch.stack(column) for column in zip(*rows, strict=True)), (0,) * len(rows[0])

    def folded(
        size: int, in_dims: tuple[int | None, ...], given: tuple[Any, ...], result_axes: tuple[int, ...]
    ) -> tuple[Any, Any]:
        """One call for the whole batch, with more draws."""
        flat = list(given)
        for number, axis in axes.items():
            value, dim = given[number], in_dims[number]
            if value is not None:
                value = value.unsqueeze(axis) if dim is None else value.movedim(dim, axis)
                flat[number] = value.expand(*value.shape[:axis], size, *value.shape[axis + 1 :]).flatten(axis, axis + 1)
        found = run(*flat)
        if isinstance(found, torch.Tensor):
            return found.unflatten(result_axes[0], (size, -1)), result_axes[0]
        return tuple(
            part.unflatten(axis, (size, -1)) for part, axis in zip(found, result_axes, strict=True)
        ), result_axes

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if setup_context is not None:
            setup_context(ctx, inputs, output)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(
            f"{name}: has no forward-mode derivative (jvp, jacfwd, hessian), want torch.func.grad, vjp or jacrev; "
            "seegera_fast.use_backend('reference') has one"
        )

    members = {"jvp": jvp, "forward": forward, "setup_context": setup, "backward": backward, "vmap": vmap}
    return type(name, (torch.autograd.Function,), {key: staticmethod(f) for key, f in members.items()})
