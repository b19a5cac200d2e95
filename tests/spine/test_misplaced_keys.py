"""Errors for a key that a recipe has in another section."""

from typing import Annotated, Literal

import pydantic
import pytest

from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.section import RecipeSection


class Filters(RecipeSection):
    min_words: int = 0


class Notes(RecipeSection):
    kind: Literal["notes"]
    filters: Filters | None = None
    name: str = ""


class Dump(RecipeSection):
    kind: Literal["dump"]
    languages: dict[str, Filters] = pydantic.Field(default_factory=dict)


class Pack(RecipeSection):
    rows: int = 0
    seed: str = ""


class Corpus(RecipeSection):
    name: str = ""
    seen: str = ""
    row: int = 0
    sources: list[Annotated[Notes | Dump, pydantic.Field(discriminator="kind")]] = pydantic.Field(default_factory=list)
    pack: Pack = Pack()
    train: Pack = Pack()
    valid: Pack = Pack()
    test: Pack = Pack()


NOTES, DUMP = {"kind": "notes"}, {"kind": "dump"}
BELOW_FIRST, BELOW_SECOND = (
    f"did you mean `sources.{number}.filters.min_words` or `sources.{number}.languages.NAME.min_words`?"
    for number in range(2)
)


@pytest.mark.parametrize(
    ("content", "key", "fix"),
    [
        ({"min_words": 3}, "min_words", BELOW_FIRST),
        ({"sources": [NOTES, NOTES | {"min_words": 3}]}, "sources.1.min_words", BELOW_SECOND),
        ({"pack": {"min_words": 3}}, "pack.min_words", BELOW_FIRST),
        ({"pack": {"seen": "x"}}, "pack.seen", "did you mean `seen` at the top level?"),  # `seed` is less likely
        ({"pack": {"row": 3}}, "pack.row", "did you mean `rows` or `row` at the top level?"),
    ],
)
def test_the_nearest_sections_with_the_key_are_named(content: dict[str, object], key: str, fix: str) -> None:
    error = refusal(content)

    assert (error.what, error.fix) == (f"unknown key `{key}`", fix)


def test_a_key_of_many_sections_is_compared_only_with_its_siblings() -> None:
    assert refusal({"rows": 3}).fix == "did you mean `row`?"
    assert refusal({"sources": [DUMP | {"rows": 3}]}).fix == "remove it; known keys: kind, languages"


def test_a_key_of_another_kind_of_source_is_not_sought_elsewhere() -> None:
    assert refusal({"sources": [DUMP | {"name": "x"}]}).fix == "remove it; known keys: kind, languages"


def test_a_misplaced_key_does_not_stand_for_a_missing_one() -> None:
    class Week(RecipeSection):
        seen: str
        pack: Pack = Pack()

    with pytest.raises(UsageError) as refused:
        Week.from_mapping({"seed": "x"}, "week.yaml")

    errors = {error.what: error.fix for error in (refused.value, *refused.value.others)}
    assert errors == {"unknown key `seed`": "did you mean `pack.seed`?", "the key `seen` is missing": "add it"}


def refusal(content: dict[str, object]) -> UsageError:
    with pytest.raises(UsageError) as refused:
        Corpus.from_mapping(content, "corpus.yaml")
    return refused.value
