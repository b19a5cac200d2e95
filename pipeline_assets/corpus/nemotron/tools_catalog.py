"""The tools that a row declares, and their id, by which a catalogue keeps each list once."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from pipeline_assets.corpus.harmony.json_text import JsonValue
from pipeline_assets.corpus.harmony.tool_section import FunctionTool, ToolNamespace, function_namespace
from pipeline_assets.corpus.nemotron.json_schema import Schema
from pipeline_assets.corpus.nemotron.presence import Row, canonical_text, is_there
from pipeline_assets.corpus.nemotron.row_fault import RowFault, RowReason
from pipeline_assets.corpus.readers.row_faults import is_nested_within

# Larger lists are read each time: so what is kept stays below some tens of megabytes.
_CACHED_BYTES = 64 << 10


@dataclass(frozen=True, eq=False)
class DeclaredTools:
    """A list of tools.

    Attributes:
        tools_id: hex sha256 of `canonical`.
        canonical: the list as it came, as canonical JSON: its order counts, that of keys does not. What the catalogue
            has under the id.
        namespace: what the developer message shows, keys of schemas in the row's own order.
        parameters: JSON Schema of each tool's arguments, by its name; of several with one name, the last.
        schemas: those of tools that were called, ready for values.
    """

    tools_id: str
    canonical: str
    namespace: ToolNamespace
    parameters: Mapping[str, JsonValue]
    schemas: dict[str, Schema] = field(default_factory=dict)

    def schema(self, name: str) -> Schema:
        """Of a tool's arguments."""
        if name not in self.schemas:
            self.schemas[name] = Schema(self.parameters[name])
        return self.schemas[name]


def declared_tools(row: Row) -> DeclaredTools | None:
    """The tools of a row's column `tools`, a list or its JSON text; None if there are none.

    Raises:
        RowFault: `malformed_tools`: it is no list of functions with names.
    """
    tools = given_tools(row)
    if tools is None:
        return None
    encoded = msgspec.json.encode(tools)
    return _read(encoded) if len(encoded) <= _CACHED_BYTES else _read.__wrapped__(encoded)


def given_tools(row: Row) -> JsonValue:
    """The column `tools` as it came, or of its JSON text; None if nothing is there.

    Raises:
        RowFault: `malformed_tools`: it is text, but not JSON.
    """
    tools = row.get("tools")
    if isinstance(tools, str) and is_there(tools):
        try:
            tools = msgspec.json.decode(tools)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RowFault(RowReason.MALFORMED_TOOLS, f"the column is text, but not JSON: {error}") from None
    return tools if is_there(tools) else None


@lru_cache(maxsize=128)
def _read(encoded: bytes) -> DeclaredTools:
    tools = msgspec.json.decode(encoded)
    if not is_nested_within(tools):
        raise RowFault(RowReason.NESTED_TOO_DEEP, "the tools of the row")
    if not isinstance(tools, list):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tools is {type(tools).__name__}")
    functions = [_function(number, tool) for number, tool in enumerate(tools)]
    canonical = canonical_text(tools)
    return DeclaredTools(
        hashlib.sha256(canonical.encode("utf-8")).hexdigest(),
        canonical,
        function_namespace(functions),
        {function.name: function.parameters for function in functions},
    )


def _function(number: int, tool: JsonValue) -> FunctionTool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tool {number} has no `function`")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tool {number} has no name")
    if is_there(description) and not isinstance(description, str):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"the description of {name:.80} is {type(description).__name__}")
    return FunctionTool(name, description if isinstance(description, str) else "", function.get("parameters"))
