"""Whether the calls of a conversation are calls of the tools that its row declares."""

from collections.abc import Sequence

from pipeline_assets.corpus.harmony.message import Message
from pipeline_assets.corpus.harmony.tool_section import FUNCTIONS
from pipeline_assets.corpus.nemotron.json_schema import Budget, fits
from pipeline_assets.corpus.nemotron.tool_calls import read_arguments
from pipeline_assets.corpus.nemotron.tools_catalog import DeclaredTools


def calls_fit_tools(calls: Sequence[Message], tools: DeclaredTools | None) -> bool:
    """Whether each call names a declared tool, with a JSON object for arguments that fits the tool's schema.

    True where nothing is called. A tool that declares no parameters takes any object: what it takes is not known. What
    takes too long to tell, all calls together, doesn't fit.
    """
    if not calls:
        return True
    budget = Budget()
    return tools is not None and all(_fits(call, tools, budget) for call in calls)


def _fits(call: Message, tools: DeclaredTools, budget: Budget) -> bool:
    namespace, _, name = (call.recipient or "").partition(".")
    if namespace != FUNCTIONS or name not in tools.parameters:
        return False
    is_json, arguments = read_arguments(call)
    return is_json and isinstance(arguments, dict) and fits(arguments, tools.parameters[name], budget)
