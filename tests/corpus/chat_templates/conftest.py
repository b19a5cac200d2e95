"""Chat templates of five families and rows rendered by them."""

from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model

from pipeline_assets.corpus.chat_templates.template import ChatTemplate, ChatTemplateFiles, load_template
from pipeline_assets.corpus.nemotron.conversation import RowConversation, read_conversation
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.tools import declared_tools

DAY = "2026-01-31"


@pytest.fixture
def family(tmp_path: Path) -> Any:
    """Return a function that loads the template of a family."""

    def load(name: str, **options: Any) -> ChatTemplate:
        return load_template(ChatTemplateFiles(save_chat_model(tmp_path / name, name, **options), f"test/{name}", DAY))

    return load


def rendered(row: dict[str, Any], template: ChatTemplate, domain: Any = "chat_if", **settings: Any) -> RowConversation:
    """Render a source row."""
    rules = RowsRecipe.from_mapping({"template": {"path": "."}, **settings}, "the test")
    return read_conversation(row, declared_tools(row), rules, domain, template)
