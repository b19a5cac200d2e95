"""Conversations and the rows that chat templates render from them."""

from collections.abc import Callable
from typing import Any

from pipeline_assets.corpus.chat_templates.template import ChatTemplate
from pipeline_assets.corpus.harmony.encode import AssistantAll
from pipeline_assets.corpus.nemotron.conversation import RowConversation, read_conversation
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.tools import declared_tools

Load = Callable[..., ChatTemplate]
DAY = "2026-01-31"
ALL = AssistantAll(has_analysis=True, has_calls=True)
QUESTION = {"role": "user", "content": "2 + 2?"}
LOOKUP = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": {"word": "x y", "limit": 3}}}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is it?"},
    {"role": "assistant", "content": "", "reasoning_content": "I look it up.", "tool_calls": [LOOKUP]},
    {"role": "tool", "content": "four", "tool_call_id": "a"},
    {"role": "assistant", "content": "It is four.", "reasoning_content": "Four."},
]


def chat(*messages: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return {"messages": [*messages], **columns}


def rendered(row: dict[str, Any], template: ChatTemplate, domain: Any = "chat_if", **settings: Any) -> RowConversation:
    """Render a source row."""
    rules = RowsRecipe.from_mapping({"template": {"path": "."}, **settings}, "the test")
    return read_conversation(row, declared_tools(row), rules, domain, template)
