"""Whether the calls of a conversation are calls of the tools that its row declares."""

from collections.abc import Sequence

from pipeline_assets.corpus.harmony.message import Message
from pipeline_assets.corpus.harmony.tool_section import FUNCTIONS
from pipeline_assets.corpus.nemotron.json_schema import MAX_STEPS
from pipeline_assets.corpus.nemotron.tool_calls import read_arguments
from pipeline_assets.corpus.nemotron.tools_catalog import DeclaredTools


def calls_fit_tools(calls: Sequence[Message], tools: DeclaredTools | None) -> bool:
    """Whether each call names a declared tool, with a JSON object for arguments that fits the tool's schema.

    True where nothing is called. A tool that declares no parameters takes any object: what it takes is not known. What
    takes too long to tell, all calls together, doesn't fit.
    """
    steps = 0
    for call in calls:
        namespace, _, name = (call.recipient or "").partition(".")
        if tools is None or namespace != FUNCTIONS or name not in tools.parameters:
            return False
        schema = tools.schema(name)
        steps += schema.steps(len(call.content))
        is_json, arguments = read_arguments(call)
        if not (is_json and isinstance(arguments, dict) and steps <= MAX_STEPS and schema.fits(arguments)):
            return False
    return True
