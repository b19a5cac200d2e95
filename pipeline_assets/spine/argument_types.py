"""Run-time check of argument types in the Python API."""

import functools
import inspect
import operator
import os
from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from pipeline_assets.spine.errors import UsageError

_TYPE_NAMES = {bool: "True or False", int: "an integer", str: "text", Path: "a path", NoneType: "None"}
_ACCEPTED_TYPES = {int: Integral, Path: os.PathLike}  # NumPy has integers of its own
_MAX_PREVIEW_CHARACTERS = 120
P = ParamSpec("P")
R = TypeVar("R")


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function, so that it raises UsageError for an argument of a wrong type.

    An annotation must be a class, a union of classes, or a `Literal`. Items of a generic class, such as
    `Sequence[int]`, are not checked. A bool is not a valid `int`; a text that is empty or has a NUL character is not a
    valid path. Parameters with a `Literal` or without an annotation are not checked.

    NumPy's integers reach the function as `int`, because products of small ones overflow.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__qualname__}(): {error}") from None
        for name, value in bound.arguments.items():
            annotation = signature.parameters[name].annotation
            union = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
            types = [get_origin(kind) or kind for kind in union]
            if Literal in types:  # the function checks its values
                continue
            if isinstance(value, str | Path) and Path in types and (not str(value) or "\0" in str(value)):
                # pathlib would read an empty text as the current folder
                what = "must not have a NUL character" if str(value) else "must not be empty"
                raise UsageError(what, name, "correct it")
            if annotation is not inspect.Parameter.empty and not any(_is_instance(kind, value) for kind in types):
                expected = " or ".join(_TYPE_NAMES.get(kind, f"a {kind.__name__}") for kind in types)
                text = repr(value)
                text = text if len(text) <= _MAX_PREVIEW_CHARACTERS else f"{text[:_MAX_PREVIEW_CHARACTERS]}…"
                is_opened = Path in types and hasattr(value, "folder")
                fix = "pass its folder" if is_opened else "correct it"
                raise UsageError(f"must be {expected}, got {text}", name, fix)
            if int in types:
                bound.arguments[name] = plain_integers(value)
        return function(*bound.args, **bound.kwargs)

    return checked


def plain_integers(value: Any) -> Any:
    """Replace NumPy's integers by `int`, also those in a list, tuple or mapping."""
    if isinstance(value, Mapping):
        return {key: plain_integers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_integers(item) for item in value]
    return operator.index(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _is_instance(expected_type: type, value: object) -> bool:
    if expected_type is int and isinstance(value, bool):
        return False
    return isinstance(value, _ACCEPTED_TYPES.get(expected_type, expected_type))
