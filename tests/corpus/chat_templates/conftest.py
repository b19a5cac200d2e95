"""Chat templates of five families."""

from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model
from rendered_chats import DAY

from pipeline_assets.corpus.chat_templates.template import ChatTemplate, ChatTemplateFiles, load_template


@pytest.fixture
def family(tmp_path: Path) -> Any:
    """Return a function that loads the template of a family."""

    def load(name: str, **options: Any) -> ChatTemplate:
        return load_template(ChatTemplateFiles(save_chat_model(tmp_path / name, name, **options), f"test/{name}", DAY))

    return load
