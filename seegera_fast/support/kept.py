"""Values that an object computes at their first use and then keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, overload

import torch

Value = TypeVar("Value")
Given = ParamSpec("Given")


def lasting(function: Callable[Given, Value]) -> Callable[Given, Value]:
    """Decorates a function whose result outlives the call: it runs outside of torch.inference_mode and torch.func.

    Tensors that are made in torch.inference_mode can never be saved for a backward pass.
    """

    @functools.wraps(function)
    def run(*given: Given.args, **named: Given.kwargs) -> Value:
        with torch.inference_mode(False):
            # What torch.func makes in a transform ends with it.
            if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
                with torch._C._DisableFuncTorch():
                    return function(*given, **named)
            return function(*given, **named)

    return run


class kept(Generic[Value]):
    """Decorates a method as a property that is computed once, outside of torch.inference_mode.

    The value becomes an attribute of the object with the name of the property. :class:`Keeping` drops and shares it.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function = lasting(function)
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> kept[Value]: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> Value: ...

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        value = self.function(instance)
        setattr(instance, self.name, value)
        return value


class Keeping:
    """A class with properties that are :class:`kept`. Pickles and deep copies are made without their values."""

    _kept_names: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        members = {name: member for part in reversed(cls.__mro__) for name, member in vars(part).items()}
        cls._kept_names = frozenset(name for name, member in members.items() if isinstance(member, kept))

    def __getstate__(self) -> dict[str, Any]:
        # Of a copy, since other threads may add values meanwhile.
        return {name: value for name, value in dict(self.__dict__).items() if name not in self._kept_names}

    def _forget(self) -> None:
        """Drops the values that were computed."""
        for name in self._kept_names:
            self.__dict__.pop(name, None)

    def _share(self, other: Keeping, *names: str) -> None:
        """Takes over values that another object has computed."""
        for name in names:
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]
