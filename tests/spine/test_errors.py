"""The user's errors: one line that says where, what, and what to do next."""

import pickle

import pytest

from pipeline_assets.spine.errors import InputError, UsageError, key
from pipeline_assets.spine.install_hints import install_hint


def test_an_error_reads_where_then_what_then_the_fix() -> None:
    error = InputError("has 3 bytes, sealed with 4", "data/a.bin", "rebuild it")

    assert str(error) == "data/a.bin: has 3 bytes, sealed with 4; rebuild it"


def test_wrong_use_is_told_from_wrong_input_by_its_type() -> None:
    assert issubclass(UsageError, InputError)


@pytest.mark.parametrize("kind", [InputError, UsageError])
def test_an_error_arrives_from_another_process_as_it_left(kind: type[InputError]) -> None:
    error = kind("wrong", "here", f"mend {key('near.threshold')}")

    arrived = pickle.loads(pickle.dumps(error))

    assert type(arrived) is kind
    assert (arrived.what, arrived.where, arrived.fix) == ("wrong", "here", "mend `near.threshold`")
    arrived.name_keys(option_of={"near.threshold": "--threshold"}.get)
    assert str(arrived) == "here: wrong; mend --threshold"


def test_an_optional_part_is_installed_from_the_projects_folder_with_its_constraints() -> None:
    assert install_hint("faiss") == (
        "in the project's folder run .venv/bin/python -m pip install -c constraints.txt -e '.[faiss]'"
    )
