"""Untrusted templates end in bounded time and memory, with an error in one line."""

import contextlib
import datetime
import itertools
import resource
import time

import jinja2
import pytest
from peak_memory import forget_peak, own_peak_mib

from pipeline_assets.corpus.chat_templates.sandbox import TemplateSandbox
from pipeline_assets.spine.errors import InputError

CHATS = [{"role": "user", "content": "x"}]
STEPS = "the template takes too many steps"
MEMORY = "needs more than 256 MiB for one row"
NESTED = "nested or calls itself too deeply"
GROW = "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x | length }}"
OTHER_FILE = "a chat template cannot include, import or extend another file"
HOSTILE = {
    "nested loops": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", STEPS),
    "long range": ("{{ range(1000000000000) | list }}", "Range too big"),
    "multiplied text": ('{{ "a" * 1000000000 }}', "* of large numbers"),
    "multiplied list": ("{{ [0] * 100000000 }}", MEMORY),
    "rounding": ("{{ 1 | round(200000000, 'ceil') }}", "cannot round to more than 100 digits"),
    "division": ("{{ (('f' * 20000000) | int(0, 16)) // (('f' * 10000000) | int(0, 16)) > 1 }}", "// of large numbers"),
    "search": ("{{ ('a' * 4000000).rfind('b' ~ 'a' * 2000000) }}", "cannot search or strip more than 1,000 characters"),
    "strip": ("{{ ('a' * 40000000).strip('b' * 4000000) }}", "cannot search or strip more than 1,000 characters"),
    "trim": ("{{ ('a' * 40000000) | trim('b' * 4000000) }}", "cannot search or strip more than 1,000 characters"),
    "power": ("{{ 9 ** 9 ** 9 }}", "** of large numbers"),
    "padded text": ('{{ "x" | center(1000000000) }}', MEMORY),
    "method that pads": ('{{ "x".ljust(1000000000) }}', MEMORY),
    "formatted width": ('{{ "%1000000000d" % 1 }}', MEMORY),
    "format method": ('{{ "{:1000000000}".format(1) }}', MEMORY),
    "indented JSON": ("{{ [[1]] | tojson(indent=1000000000) }}", MEMORY),
    "recursive macro": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NESTED),
    "branching macro": (
        "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        STEPS,
    ),
    "recursive loop": ("{% for a in [[[1]]] recursive %}{{ loop([a]) }}{% endfor %}", NESTED),
    "doubled text": (GROW.replace("STEP", "ns.x ~ ns.x"), MEMORY),
    "doubled list": (GROW.replace("STEP", "[ns.x, ns.x]"), STEPS),
    "doubled dict": (GROW.replace("STEP", "dict(a=ns.x, b=ns.x)"), STEPS),
    "compared lists": (
        "{% set ns = namespace(x=1, y=1) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        STEPS,
    ),
    "doubled arguments": (
        "{% set ns = namespace(t=1) %}{% macro m() %}{% set ns.t = varargs %}{% endmacro %}"
        "{% for i in range(60) %}{{ m(ns.t, ns.t) }}{% endfor %}",
        STEPS,
    ),
    "filtered range": ("{% set a = 'a' * 10000 %}{{ range(99999) | map('string') | select('in', a) | list }}", STEPS),
    "nested source": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", NESTED),
    "long source": (" " * (1 << 20) + " ", "longer than 1,048,576 characters"),
    "include": ("\n{% include 'x' %}", f"line 2: {OTHER_FILE}"),
    "import": ("{% import 'x' as y %}", OTHER_FILE),
    "import of a name": ("{% from 'x' import y %}", OTHER_FILE),
    "extension": ("{% extends 'x' %}", OTHER_FILE),
    "class": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "class by filter": ("{{ (''|attr('__class__')).__mro__ }}", "unsafe"),
    "namespace with a dunder": ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "'__class__'"),
    "callable namespace": ("{{ namespace(**{'__call__': 1}) }}", "'__call__'"),
    "changed messages": ("{{ messages.append(1) }}", "unsafe"),
    "random text": ("{{ lipsum() }}", "'lipsum' is undefined"),
    "random choice": ("{{ [1, 2] | random }}", "No filter named 'random'"),
    "address of an object": ("{{ namespace(a=1) }}", "cannot write a _Namespace"),
    "clock": ("{{ strftime_now('%Y') }}", "'strftime_now' is undefined"),
    "error of Python": ("{{ 1 / 0 }}", "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_template_ends_in_bounded_time_and_memory(name: str) -> None:
    source, message = HOSTILE[name]
    forget_peak()
    limits, before, started = resource.getrlimit(resource.RLIMIT_AS), own_peak_mib(), time.monotonic()

    with pytest.raises((jinja2.TemplateError, InputError)) as caught:
        sandbox = TemplateSandbox(None)
        sandbox.render(sandbox.compile_source(source), {"messages": CHATS})

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 20
    assert own_peak_mib() - before < 600
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


def test_steps_grow_with_the_row() -> None:
    source = "{% for a in messages %}{% for b in messages[:80] %}{% endfor %}{% endfor %}done"
    sandbox = TemplateSandbox(None)

    assert sandbox.render(sandbox.compile_source(source), {"messages": CHATS * 2000}) == "done"


def test_date_is_read_from_the_recipe() -> None:
    sandbox = TemplateSandbox(datetime.date(2026, 1, 31))

    template = sandbox.compile_source('{{ strftime_now("%d %b %Y") }}')

    assert sandbox.render(template, {}) == "31 Jan 2026"


@pytest.mark.parametrize(("clock", "is_limited"), [("thread_time", True), ("monotonic", False), ("time", False)])
def test_only_the_run_time_of_the_process_is_limited(
    clock: str, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, hours = TemplateSandbox(None), itertools.count(0, 3600)
    template = sandbox.compile_source("{% for message in messages %}{{ message.role }} {% endfor %}")
    monkeypatch.setattr(time, clock, lambda: next(hours))

    with pytest.raises(InputError, match="needs more than 20 s") if is_limited else contextlib.nullcontext():
        assert sandbox.render(template, {"messages": CHATS}).startswith("user ")
