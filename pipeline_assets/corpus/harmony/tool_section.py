"""Tools, and the `# Tools` section that shows them to the model.

The source is openai/harmony, docs/format.md, "Function calling".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipeline_assets.corpus.harmony.json_text import JsonValue
from pipeline_assets.corpus.harmony.object_types import with_object_types
from pipeline_assets.corpus.harmony.refusal import Reason, Refusal
from pipeline_assets.corpus.harmony.tool_types import typescript_type

FUNCTIONS = "functions"


@dataclass(frozen=True)
class FunctionTool:
    """A function that can be called.

    Attributes:
        parameters: its arguments as JSON Schema; None if it takes none.
    """

    name: str
    description: str
    parameters: JsonValue


@dataclass(frozen=True)
class ToolNamespace:
    """Tools under one name; without any, its description says how it is used."""

    name: str
    description: str | None
    tools: tuple[FunctionTool, ...]

    @cached_property
    def text(self) -> str:
        """Its part of the section; made once, as whole datasets show the same tools.

        Raises:
            Refusal: a schema that can't be rendered.
        """
        return "\n".join(_namespace_lines(self))


def function_namespace(tools: Sequence[FunctionTool]) -> ToolNamespace:
    """The namespace of a developer's own functions, called on the commentary channel as `functions.NAME`."""
    return ToolNamespace(FUNCTIONS, None, tuple(tools))


def tool_section(namespaces: Sequence[ToolNamespace]) -> str:
    """The section, namespaces by their names, tools in their own order.

    It equals openai-harmony's of tools whose schemas went through `with_object_types`.

    Raises:
        Refusal: two namespaces of one name, or a schema that can't be rendered.
    """
    names = [namespace.name for namespace in namespaces]
    if twice := sorted(name for name in set(names) if names.count(name) > 1):
        raise Refusal(Reason.NAMESPACE_TWICE, f"the namespace {twice[0]!r} is there {names.count(twice[0])} times")
    ordered = sorted(namespaces, key=lambda namespace: namespace.name)
    return "\n\n".join(["# Tools", *(one.text for one in ordered)])


def _namespace_lines(namespace: ToolNamespace) -> Iterator[str]:
    yield f"## {namespace.name}\n"
    comment = "// " if namespace.tools else ""
    yield from (f"{comment}{line}" for line in _lines(namespace.description or ""))
    if not namespace.tools:
        return
    yield f"namespace {namespace.name} {{\n"
    for tool in namespace.tools:
        yield from (f"// {line}" for line in _lines(tool.description))
        schema = with_object_types(tool.parameters)
        argument = "" if schema is None else f"_: {typescript_type(schema)}"
        yield f"type {tool.name} = ({argument}) => any;\n"
    yield f"}} // namespace {namespace.name}"


def _lines(text: str) -> list[str]:
    """Lines as Rust splits them: at a line feed, with the carriage return before it; the last may be without one."""
    lines = text.split("\n")
    last = lines.pop()
    return [line.removesuffix("\r") for line in lines] + ([last] if last else [])
