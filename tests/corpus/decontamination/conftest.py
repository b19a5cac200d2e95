"""Fixtures for tests of decontamination."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from decontamination_build import decontaminate, items_set, recipe, write_corpus

from pipeline_assets.spine.artifact import Artifact

Decontaminated = Callable[..., Artifact]


@pytest.fixture
def decontaminated(tmp_path: Path) -> Decontaminated:
    """Return a function that decontaminates texts under a changed recipe.

    Documents and items are named by their numbers. Items are one set, `quiz`, or several sets as mappings by name.
    """

    def run(
        documents: Sequence[str], items: Sequence[str] | Mapping[str, Mapping[str, str]], **changes: Any
    ) -> Artifact:
        named = (
            items if isinstance(items, Mapping) else {"quiz": {f"q{number}": text for number, text in enumerate(items)}}
        )
        sets = [items_set(tmp_path / "sets", name, own) for name, own in named.items()]
        corpus = write_corpus(tmp_path, {f"d{number}": text for number, text in enumerate(documents)}, 3)
        return decontaminate(tmp_path, corpus, sets, recipe(**changes))

    return run
