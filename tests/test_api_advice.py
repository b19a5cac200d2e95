"""Advice in errors of the Python API names arguments, not options of commands."""

from pathlib import Path

import pytest
from stage_a_build import NO_COMMIT, local_source
from stage_a_sources import write_recipe

from corpusmill import run
from pipeline_assets.spine.errors import InputError


def test_errors_name_the_arguments_that_help(tmp_path: Path) -> None:
    def write(domain: str) -> str:
        source = local_source(tmp_path, "notes", [{"text": "A note.", "key": "note-1"}]) | {"domain": domain}
        return str(write_recipe(tmp_path, NO_COMMIT, lambda content: content.update(sources=[source]), "notes"))

    corpus = run(write("letters"), tmp_path, workers=0)["stage_a/normalized"][0]

    with pytest.raises(InputError, match=r"; use `row`$"):
        corpus.trace(token=0)
    with pytest.raises(InputError, match=r"; set another `name` in the recipe, or run with `replace=True`$"):
        run(write("diaries"), tmp_path, workers=0)
    with pytest.raises(InputError, match=r"or a recipe of a data root other than .*, pass `data`$"):
        run("none", tmp_path)
