"""Calls of operators, and the functions that they are given: whether the arguments are there, before anything is built.

Python's own TypeError names neither the operator as the user knows it nor the remedy; a function with too few
parameters would fail only when the first record comes.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from ottla.streams.errors import TopologyError

P = ParamSpec("P")
R = TypeVar("R")

_BY_NAME: Final = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ANY_NUMBER: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_REMEDIES: Final = {
    "name": "state needs a name, by which it is found again: name='...'",
    "schema": "it says which columns the rows have that are made, such as schema='id long, name string'",
    "subtract": "a function that takes a row away again, because rows of a table change",
}
"""What to say about an argument that is missing, besides its name."""


def operator(method: Callable[P, R]) -> Callable[P, R]:
    """A method that a topology is built with. A call with wrong arguments raises TopologyError."""
    signature = inspect.signature(method)
    name = method.__name__ if method.__name__ != "__init__" else method.__qualname__.split(".")[0]

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            raise TopologyError(f"{name}: {_find_mistake(name, signature, args, kwargs)}") from None
        return method(*args, **kwargs)

    return call


def _find_mistake(
    name: str, signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str:
    """What is wrong with the arguments, in one line with the remedy."""
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    known = [each.name for each in parameters if each.kind in _BY_NAME]
    if unknown := [each for each in kwargs if each not in known]:
        return f"there is no argument {unknown[0]!r}; there are {', '.join(known) or 'none'}"
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        named = [each.name for each in parameters if each.kind == inspect.Parameter.KEYWORD_ONLY]
        if any(each.kind == inspect.Parameter.VAR_KEYWORD for each in parameters):
            named = ["column"]
        return f"too many arguments; give these by name: {name}({', '.join(f'{each}=...' for each in named)})"
    missing = [
        each.name
        for each in parameters
        if each.name not in given and each.default is inspect.Parameter.empty and each.kind not in _ANY_NUMBER
    ]
    return f"it needs {missing[0]}=" + (f": {_REMEDIES[missing[0]]}" if missing[0] in _REMEDIES else "")


def check_function(label: str, what: str, given: object, *arguments: str) -> None:
    """TopologyError unless it can be called with these arguments."""
    if given is None:
        raise TopologyError(f"{label}: it needs {what}=, a function")
    if not callable(given):
        raise TopologyError(f"{label}: {what}={given!r} is not a function")
    if not _can_take(given, len(arguments)):
        raise TopologyError(
            f"{label}: {what} is called with {_describe(arguments)}, which {getattr(given, '__name__', given)!s} does "
            f"not take; change its parameters"
        )


def check_processor(processor: object, base: type) -> None:
    """TopologyError unless it is a class that is a Processor, whose methods can be called."""
    if not isinstance(processor, type) or not issubclass(processor, base):
        raise TopologyError(f"process: {processor!r} is not a subclass of ottla.streams.Processor")
    name = processor.__name__
    if inspect.isabstract(processor):
        raise TopologyError(f"process: {name} does not have the method process(self, row, context); add it")
    for method, parameters in (("process", "self, row, context"), ("on_timer", "self, timer, context")):
        if not _can_take(getattr(processor, method), 3):
            raise TopologyError(f"process: {name}.{method} must be {method}({parameters}); change its parameters")
    if not _can_take(processor, 0):
        raise TopologyError(
            f"process: {name}() is made without arguments, once for each batch; give its __init__ defaults"
        )


def _can_take(function: Callable[..., Any], count: int) -> bool:
    """Whether a function takes so many arguments. Of functions in C it is not always known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _describe(arguments: Sequence[str]) -> str:
    return f"({', '.join(arguments)})" if arguments else "no arguments"
