"""The user's errors: one line that says where, what, and what to do next."""

import pickle

import pytest

from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.install_hints import install_hint


def test_an_error_reads_where_then_what_then_the_fix() -> None:
    error = InputError("has 3 bytes, sealed with 4", "data/a.bin", "rebuild it")

    assert str(error) == "data/a.bin: has 3 bytes, sealed with 4; rebuild it"


def test_wrong_use_is_told_from_wrong_input_by_its_type() -> None:
    assert issubclass(UsageError, InputError)


@pytest.mark.parametrize("kind", [InputError, UsageError])
def test_an_error_arrives_from_another_process_as_it_left(kind: type[InputError]) -> None:
    error = kind("`near.threshold` must be <= 1, got 2", RecipeKey("near.threshold"), "correct `near.threshold`")

    arrived = pickle.loads(pickle.dumps(error))

    assert type(arrived) is kind
    assert str(arrived) == "near.threshold: `near.threshold` must be <= 1, got 2; correct `near.threshold`"
    arrived.name_keys(find_option={"near.threshold": "--threshold"}.get)
    assert str(arrived) == "--threshold must be <= 1, got 2; correct --threshold"


def test_a_column_of_the_input_is_not_taken_for_the_option_of_its_name() -> None:
    error = InputError("there is no column `language`", "a.parquet", "set `language` in the recipe")

    error.name_keys(find_option={"language": "--language"}.get)

    assert str(error) == "a.parquet: there is no column `language`; set --language"


def test_an_optional_part_is_installed_from_the_projects_folder_with_its_constraints() -> None:
    assert install_hint("faiss") == (
        "in the project's folder run .venv/bin/python -m pip install -c constraints.txt -e '.[faiss]'"
    )
