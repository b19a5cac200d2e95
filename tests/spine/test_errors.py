"""Errors for users: one line with place, problem and fix."""

import pickle

import pytest

from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.install_hints import install_hint


def test_error_text_is_place_then_problem_then_fix() -> None:
    error = InputError("has 3 bytes, sealed with 4", "data/a.bin", "rebuild it")

    assert str(error) == "data/a.bin: has 3 bytes, sealed with 4; rebuild it"


@pytest.mark.parametrize("kind", [InputError, UsageError])
def test_error_is_unchanged_by_pickling(kind: type[InputError]) -> None:
    error = kind("`near.threshold` must be <= 1, got 2", RecipeKey("near.threshold"), "correct `near.threshold`")

    arrived = pickle.loads(pickle.dumps(error))

    assert type(arrived) is kind
    assert str(arrived) == "near.threshold: `near.threshold` must be <= 1, got 2; correct `near.threshold`"
    arrived.name_keys(find_option={"near.threshold": "--threshold"}.get)
    assert str(arrived) == "--threshold must be <= 1, got 2; correct --threshold"


def test_input_column_is_not_renamed_to_the_option_of_its_name() -> None:
    error = InputError("there is no column `language`", "a.parquet", "set `language` in the recipe")

    error.name_keys(find_option={"language": "--language"}.get)

    assert str(error) == "a.parquet: there is no column `language`; set --language"


@pytest.mark.parametrize("what", ["unknown key `name`", "expected only the section `pack`, got `name` too"])
def test_wrong_key_of_a_file_is_not_renamed_to_an_option(what: str) -> None:
    error = UsageError(what, "web.yaml", "remove it")

    error.name_keys(find_option={"name": "--out-dir"}.get)

    assert str(error) == f"web.yaml: {what}; remove it"


def test_install_hint_of_an_extra_uses_the_constraints_of_the_project() -> None:
    assert install_hint("faiss") == (
        "in the project's folder run .venv/bin/python -m pip install -c constraints.txt -e '.[faiss]'"
    )
