"""Harmony's built-in tools with the wording of openai-harmony 0.0.8."""

from pipeline_assets.corpus.harmony.message import JsonValue
from pipeline_assets.corpus.harmony.prompt import FunctionTool, ToolNamespace

_STRING: JsonValue = {"type": "string"}
_LINE: JsonValue = {"type": "number", "default": -1}

BROWSER = ToolNamespace(
    "browser",
    """Tool for browsing.
The `cursor` appears in brackets before each browsing display: `[{cursor}]`.
Cite information from the tool using the following format:
`【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.
Do not quote more than 10 words directly from the tool output.
sources=web (default: web)""",
    (
        FunctionTool(
            "search",
            "Searches for information related to `query` and displays `topn` results.",
            {
                "type": "object",
                "properties": {"query": _STRING, "topn": {"type": "number", "default": 10}, "source": _STRING},
                "required": ["query"],
            },
        ),
        FunctionTool(
            "open",
            """Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, \
showing `num_lines` lines.
Valid link ids are displayed with the formatting: `【{id}†.*】`.
If `cursor` is not provided, the most recent page is implied.
If `id` is a string, it is treated as a fully qualified URL associated with `source`.
If `loc` is not provided, the viewport will be positioned at the beginning of the document or centered on the most \
relevant passage, if available.
Use this function without `id` to scroll to a new location of an opened page.""",
            {
                "type": "object",
                "properties": {
                    "id": {"type": ["number", "string"], "default": -1},
                    "cursor": _LINE,
                    "loc": _LINE,
                    "num_lines": _LINE,
                    "view_source": {"type": "boolean", "default": False},
                    "source": _STRING,
                },
            },
        ),
        FunctionTool(
            "find",
            "Finds exact matches of `pattern` in the current page, or the page given by `cursor`.",
            {"type": "object", "properties": {"pattern": _STRING, "cursor": _LINE}, "required": ["pattern"]},
        ),
    ),
)

PYTHON = ToolNamespace(
    "python",
    """Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. This \
tool should be used for internal reasoning, but not for code that is intended to be visible to the user (e.g. when \
creating plots, tables, or files).

When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook \
environment. python will respond with the output of the execution or time out after 120.0 seconds. The drive at \
'/mnt/data' can be used to save and persist user files. Internet access for this session is UNKNOWN. Depends on the \
cluster.""",
    (),
)
