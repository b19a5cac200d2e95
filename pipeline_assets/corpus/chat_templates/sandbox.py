"""Sandbox for chat templates, which are untrusted programs.

A rendered text equals the result of `apply_chat_template` in transformers, whose Jinja environment is reproduced here.
A template cannot read files or the clock. If a template takes too many steps for a row, the row is refused. The
build stops if a template takes too much time or memory, because both depend on the machine.
"""

import contextlib
import datetime
import functools
import json
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_round, do_trim
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from pipeline_assets.spine.errors import InputError

_MAX_SOURCE_CHARACTERS = 1 << 20  # the longest published templates have 30,000
_MAX_STEPS, _STEPS_PER_PART = 50_000, 100  # loops, macros, filters and tests; more for each value of the row
_MAX_SECONDS = 20.0  # CPU time of a row, because a stopped process spends none
_MAX_BYTES = 1 << 28  # memory of a row
_MAX_BITS = 1 << 14  # of a divided number
_MAX_DIGITS = 100  # to which a number is rounded; methods other than the default compute this power of ten
# Methods whose time grows with the product of two lengths, so that no step count or clock stops a call.
_PRODUCT_METHODS = ("rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip")
_MAX_ARGUMENT_CHARACTERS = 1000
# Filters that choose at random, print addresses, or take more than linear time.
_REMOVED_FILTERS = ("random", "pprint", "urlize", "striptags", "wordwrap", "xmlattr", "groupby")


class _StepCountInserter(NodeTransformer):
    """Transformer that makes templates count iterations, macro calls and list items.

    Each part of a new list, tuple or dict counts as a step, because `x = [x, x]` in a loop doubles the number of parts
    in each iteration. If a template includes, imports or extends another file, the transformer raises SecurityError.
    """

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends):
            what = f"line {node.lineno}: a chat template cannot include, import or extend another file"
            raise SecurityError(what)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block):
            node.body.insert(0, nodes.ExprStmt(_call_node("charge_steps", nodes.Const(1))).set_lineno(node.lineno))
        is_new = isinstance(node, nodes.List | nodes.Tuple | nodes.Dict) and getattr(node, "ctx", "load") == "load"
        is_variadic = isinstance(node, nodes.Name) and node.name in ("varargs", "kwargs")
        return _call_node("charge_parts", node) if is_new or is_variadic else node


def _call_node(name: str, *arguments: Any) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), [*arguments], [], None, None)


class _GenerationTag(Extension):
    """Tag `generation`, which encloses answers of the model and renders them as usual."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class _Namespace(Namespace):
    def __init__(self, *values: Any, **attributes: Any) -> None:
        super().__init__()
        for name, value in dict(*values, **attributes).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"a namespace cannot have {name!r}")
        super().__setitem__(name, value)


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja environment of one template.

    The function `strftime_now` formats `date`, and is undefined if `date` is None.
    """

    intercepted_binops = frozenset({"*", "**", "//", "%", "/"})

    def __init__(self, date: datetime.date | None) -> None:
        tags = [_GenerationTag, loopcontrols]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=tags, optimized=False, finalize=_check_output)
        self._steps, self._deadline = _MAX_STEPS, float("inf")
        filters = self.filters | {"trim": _trim, "round": _round}
        self.filters = {name: self._count_calls(call) for name, call in filters.items() if name not in _REMOVED_FILTERS}
        self.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
        self.tests = {name: self._count_calls(call) for name, call in self.tests.items()}
        self.globals = {"range": self.globals["range"], "dict": lambda **items: self.charge_parts(items)}
        self.globals |= {"namespace": _Namespace, "raise_exception": _raise_exception}
        if date is not None:
            self.globals["strftime_now"] = datetime.datetime.combine(date, datetime.time()).strftime

    def compile_source(self, source: str) -> jinja2.Template:
        """Compile a template; raise `jinja2.TemplateError` if it is invalid."""
        if len(source) > _MAX_SOURCE_CHARACTERS:
            raise SecurityError(f"the template is longer than {_MAX_SOURCE_CHARACTERS:,} characters")
        with _limit_memory():
            return self.from_string(source)

    def render(self, template: jinja2.Template, values: Mapping[str, Any]) -> str:
        """Render a template with `values` as its variables.

        Raises:
            jinja2.TemplateError: The template's code fails or takes too many steps.
            InputError: The template needs too much time or memory.
        """
        self._steps = _MAX_STEPS + _STEPS_PER_PART * _count_parts(values, 1 << 40)
        self._deadline = time.thread_time() + _MAX_SECONDS
        with _limit_memory():
            return template.render(values)

    def charge_steps(self, steps: int) -> None:
        """Count steps; raise SecurityError if too many, InputError if time has run out."""
        self._steps -= steps
        if self._steps < 0:
            raise SecurityError("the template takes too many steps")
        if time.thread_time() > self._deadline:
            raise _limit_error(f"{_MAX_SECONDS:.0f} s")

    def charge_parts(self, value: Any) -> Any:
        self.charge_steps(_count_parts(value, self._steps))
        return value

    def _count_calls(self, function: Any) -> Callable[..., Any]:
        @functools.wraps(function)  # which keeps the mark of functions that take the environment
        def counted(*values: Any, **named: Any) -> Any:
            self.charge_steps(1)
            return function(*values, **named)

        return counted

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _StepCountInserter().visit(super()._parse(source, name, filename))
        return tree

    def call(__self, __context: Context, __function: Any, *values: Any, **named: Any) -> Any:  # noqa: N805
        """Call a function; SecurityError for a long argument of a `_PRODUCT_METHODS`."""
        if isinstance(getattr(__function, "__self__", None), str) and __function.__name__ in _PRODUCT_METHODS:
            _check_lengths(*values, *named.values())
        return super().call(__context, __function, *values, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Evaluate `*` and divisions; raise SecurityError for `**` and large numbers."""
        numbers = [part for part in (left, right) if isinstance(part, int)]
        is_large = any(abs(n) > _MAX_BYTES if operator == "*" else n.bit_length() > _MAX_BITS for n in numbers)
        if operator == "**" or is_large:
            raise SecurityError(f"{operator} of large numbers")
        return super().call_binop(context, operator, left, right)


def _check_lengths(*values: Any) -> None:
    if any(isinstance(value, str) and len(value) > _MAX_ARGUMENT_CHARACTERS for value in values):
        raise SecurityError(f"cannot search or strip more than {_MAX_ARGUMENT_CHARACTERS:,} characters")


def _trim(value: Any, chars: str | None = None) -> str:
    _check_lengths(chars)
    return do_trim(value, chars)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > _MAX_DIGITS:
        raise SecurityError(f"cannot round to more than {_MAX_DIGITS} digits")
    return do_round(value, precision, method)


def _check_output(value: Any) -> Any:
    if not isinstance(value, str | int | float | list | tuple | dict | jinja2.Undefined | type(None)):
        raise SecurityError(f"cannot write a {type(value).__name__}")
    return value


def _count_parts(value: Any, limit: int) -> int:
    """Count a value and all values nested in it, with repeats; stop at `limit` + 1."""
    rest, count = [value], 0
    while rest and count <= limit:
        item, count = rest.pop(), count + 1
        rest += item.values() if isinstance(item, Mapping) else item if isinstance(item, list | tuple) else ()
    return count


def _limit_error(limit: str) -> InputError:
    return InputError(f"needs more than {limit} for one row", "chat template", "use another template")


@contextlib.contextmanager
def _limit_memory() -> Iterator[None]:
    """Limit the memory of a `with` block on Linux.

    Exceptions in the block become the errors that `TemplateSandbox.render` raises.
    """
    limits, pages = resource.getrlimit(resource.RLIMIT_AS), Path("/proc/self/statm")
    try:
        if pages.exists():
            limit = int(pages.read_text().split()[0]) * resource.getpagesize() + _MAX_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit if limits[1] < 0 else min(limit, limits[1]), limits[1]))
        yield
    except (jinja2.TemplateError, InputError):
        raise
    except MemoryError:
        raise _limit_error(f"{_MAX_BYTES >> 20} MiB") from None
    except RecursionError:
        raise jinja2.TemplateError("the template is nested or calls itself too deeply") from None
    except Exception as error:  # the code of a template can raise any
        raise jinja2.TemplateError(f"{type(error).__name__}: {error}") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
