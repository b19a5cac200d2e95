"""Recipes are small YAML files; an error in one names the key and the line."""

import errno
import os
import re
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import pydantic
import pytest

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.section import RecipeSection


class Sampling(RecipeSection):
    rows: int = pydantic.Field(gt=0)
    seed: str


class Source(RecipeSection):
    dataset: str
    sampling: Sampling


class Budget(RecipeSection):
    tokens: int | None = None
    rows: int | None = None

    @pydantic.model_validator(mode="after")
    def _check_one_limit(self) -> "Budget":
        if (self.tokens is None) == (self.rows is None):
            raise ValueError("give either tokens or rows")
        return self


class Leaf(RecipeSection):
    kind: Literal["leaf"]
    leaves: int


class Root(RecipeSection):
    kind: Literal["root"]
    depth: int


class TextRecipe(Recipe):
    system: Literal["text"]
    source: Source
    more: Annotated[tuple[Source, ...], pydantic.Field(strict=False)] = ()
    held_out: Source | None = None
    budget: Budget = Budget(tokens=5)
    parts: Annotated[
        tuple[Annotated[Leaf | Root, pydantic.Field(discriminator="kind")], ...], pydantic.Field(strict=False)
    ] = ()
    seed: str = ""

    @pydantic.model_validator(mode="after")
    def _check_seed(self) -> "TextRecipe":
        if self.seed in {source.dataset for source in self.more}:
            raise ValueError("the seed is the name of a dataset")
        return self


class NumberRecipe(Recipe):
    system: Literal["numbers"]
    numbers: Annotated[tuple[int, ...], pydantic.Field(strict=False, min_length=1)]


RECIPE = """\
system: text
name: fineweb_v1
source:
  dataset: HuggingFaceFW/fineweb-edu
  sampling:
    rows: 1000
    seed: healing
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "fineweb_v1.yaml"
    path.write_text(RECIPE)
    return path


def refusal(
    path: Path, text: str | None = None, line: int | None = None, recipe: type[Recipe] = TextRecipe
) -> UsageError:
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as refused:
        recipe.read(path)
    assert refused.value.where == (str(path) if line is None else f"{path}:{line}")
    assert not refused.value.others
    return refused.value


def test_recipe_is_read_with_its_sections(path: Path) -> None:
    recipe = TextRecipe.read(path)

    assert recipe.name == "fineweb_v1"
    assert recipe.source.sampling == Sampling(rows=1000, seed="healing")


@pytest.mark.parametrize(
    ("added", "what", "fix"),
    [
        ("budgte: {tokens: 1}", "unknown key `budgte`", "did you mean `budget`?"),
        ("more: [{dataset: a, samplin: {}}]", "unknown key `more.0.samplin`", "did you mean `sampling`?"),
        (
            "more: [{dataset: a, sampling: {rows: 1, seed: x, sead: y}}]",
            "unknown key `more.0.sampling.sead`",
            "did you mean `seed`?",
        ),
        ("held_out: {dataset: a, samplin: {}}", "unknown key `held_out.samplin`", "did you mean `sampling`?"),
        ("parts: [{kind: leef}]", "`parts.0.kind` must be one of leaf, root, got 'leef'", "did you mean leaf?"),
        ("parts: [{kind: x}]", "`parts.0.kind` must be one of leaf, root, got 'x'", "correct the value"),
        ("parts: [{leaves: 3}]", "the key `parts.0.kind` is missing", "add it"),
        (
            "parts: [{kind: leaf, leaves: 3, depth: 2}]",
            "unknown key `parts.0.depth`",
            "remove it; known keys: kind, leaves",
        ),
        ("parts: [{kind: root, dept: 3}]", "unknown key `parts.0.dept`", "did you mean `depth`?"),
        ("budget: {tokens: 1, rows: 2}", "`budget`: give either tokens or rows", "correct it"),
    ],
)
def test_wrong_section_is_named_with_its_line_and_key(path: Path, added: str, what: str, fix: str) -> None:
    error = refusal(path, f"{RECIPE}{added}\n", 8)

    assert (error.what, error.fix) == (what, fix)


@pytest.mark.parametrize(
    ("old", "new", "line", "what", "fix"),
    [
        ("    rows:", "    row:", 6, "unknown key `source.sampling.row`", "did you mean `rows`?"),
        ("    seed:", "    z: 1\n    seed:", 7, "unknown key `source.sampling.z`", "remove it; known keys: rows, seed"),
        ("    seed: healing\n", "", 5, "the key `source.sampling.seed` is missing", "add it"),
        ("system: text", "x: {}\nsystem: y", None, "`system` must be text, got 'y'", "choose a recipe of text"),
        (
            "source:",
            "more: [{dataset: same, sampling: {rows: 1, seed: a}}]\nseed: same\nsource:",
            None,
            "the seed is the name of a dataset",
            "correct it",
        ),
    ],
)
def test_wrong_key_is_named_with_its_line(
    path: Path, old: str, new: str, line: int | None, what: str, fix: str
) -> None:
    error = refusal(path, RECIPE.replace(old, new), line)

    assert (error.what, error.fix) == (what, fix)


def test_all_errors_are_reported_together_and_a_misspelt_key_once(path: Path) -> None:
    path.write_text(
        "system: text\n"
        "name: other\n"
        "source:\n"
        "  datset: a\n"
        "  sampling:\n"
        "    rows: 0\n"
        "more:\n"
        "  - {dataset: b, sampling: {rows: 1, seed: 7}}\n"
    )

    with pytest.raises(UsageError) as refused:
        TextRecipe.read(path)

    places = [(error.where, error.what.partition(":")[0]) for error in (refused.value, *refused.value.others)]
    assert places == [
        (f"{path}:4", "unknown key `source.datset`"),
        (f"{path}:5", "the key `source.sampling.seed` is missing"),
        (f"{path}:6", "`source.sampling.rows` must be > 0, got 0"),
        (f"{path}:8", "`more.0.sampling.seed` must be text, got 7"),
    ]


def test_list_with_an_invalid_item_and_an_empty_list_are_different_errors(path: Path) -> None:
    rules = "`numbers` must have at least 1 item, got []", "`numbers.0` must be an integer, got 'a'"
    for text, rule in zip(("[]", "[a]"), rules, strict=True):
        error = refusal(path, f"system: numbers\nname: fineweb_v1\nnumbers: {text}\n", 3, NumberRecipe)
        assert error.what == rule


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("rows: 1000", "rows: 0", "`source.sampling.rows` must be > 0, got 0"),
        ("rows: 1000", "rows: '7'", "`source.sampling.rows` must be an integer, got '7'"),
        ("rows: 1000", "rows: 7.0", "`source.sampling.rows` must be an integer, got 7.0"),
        ("seed: healing", "seed: [a]", "`source.sampling.seed` must be text, got ['a']"),
        (
            "name: fineweb_v1",
            "name: ../a",
            "`name` must contain only lower-case letters, digits, `_`, `.` and `-`, and start with a letter or digit, "
            "got '../a'",
        ),
        (
            "name: fineweb_v1",
            "name: fine...web",
            "`name` must not contain `...`, which is a range in Dagster's names of partitions, got 'fine...web'",
        ),
        ("name: fineweb_v1", f"name: {'a' * 151}", f"`name` must have at most 150 characters, got '{'a' * 151}'"),
    ],
)
def test_invalid_value_is_named_with_its_rule(path: Path, old: str, new: str, what: str) -> None:
    lines = RECIPE.splitlines()
    line = next(number for number, text in enumerate(lines, 1) if old in text)

    error = refusal(path, RECIPE.replace(old, new), line)

    assert (error.what, error.fix) == (what, "correct the value")


@pytest.mark.parametrize("repeated", ["rows", '"rows"'])
def test_repeated_key_is_refused_with_its_line(path: Path, repeated: str) -> None:
    error = refusal(path, RECIPE.replace("    seed:", f"    {repeated}: 2000\n    seed:"))

    assert error.what == "not valid YAML (line 7 repeats the key `rows`)"


def test_key_may_override_a_merged_key(path: Path) -> None:
    path.write_text(RECIPE.replace("sampling:\n    rows: 1000", "sampling:\n    <<: {rows: 1}\n    rows: 1000"))

    assert TextRecipe.read(path).source.sampling.rows == 1000


@pytest.mark.parametrize(("written", "read"), [("12", "12"), ("0.10", "0.1"), ("1_000", "1000"), ("yes", "True")])
def test_number_or_yes_in_place_of_text_needs_quotes(path: Path, written: str, read: str) -> None:
    error = refusal(path, RECIPE.replace("seed: healing", f"seed: {written}"), 7)

    assert error.what == f"`source.sampling.seed` must be text, got {read}"
    assert error.fix == "put it in quotes"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("finweb_v1.yaml", "did you mean {folder}/fineweb_v1.yaml?"),
        ("fineweb_v1", "did you mean {folder}/fineweb_v1.yaml?"),
        ("zebra.yaml", "the folder has books_v2.yaml, fineweb_v1.yaml"),
        ("no folder/zebra.yaml", "correct the path"),
        ("broken/link.yaml", "correct the path"),
    ],
)
def test_missing_file_is_reported_with_the_nearest_recipe_or_all(path: Path, name: str, fix: str) -> None:
    path.with_name("books_v2.yaml").write_text(RECIPE)
    (path.parent / "broken").mkdir()
    (path.parent / "broken" / "link.yaml").symlink_to("nowhere")

    error = refusal(path.parent / name)

    assert (error.what, error.fix) == ("recipe not found", fix.format(folder=path.parent))


def test_folder_is_not_a_recipe(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)) == f"{tmp_path}: not a valid recipe: the path is a folder; pass a recipe file"


def test_recipe_that_must_not_be_read_names_the_permission(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", deny)

    with pytest.raises(RetryableError) as denied:
        TextRecipe.read(path)

    assert str(denied.value) == f"{path}: reading is not allowed; grant read permission"


def test_name_in_a_recipe_overrides_the_file_name_and_is_lowercased(path: Path) -> None:
    copy = path.with_name("Copy of it.yml")
    copy.write_text(RECIPE)
    assert TextRecipe.read(copy).name == "fineweb_v1"

    copy.write_text(RECIPE.replace("fineweb_v1", "FineWeb_v1"))
    recipe = TextRecipe.read(copy)
    assert recipe.name == "fineweb_v1"
    assert "`name` is folded to lower case: FineWeb_v1 becomes fineweb_v1" in list(recipe.warnings())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, r".*line [12]") for text in ("a: [1", "a: b: c", "\tname: x", "? [a]\n: {[1]: 2}")),
        ("a: 1\nb: [1,\n\nc: 2}\n", r"line 2: a bracket or brace is not closed, or a comma is missing\)"),
        ("a: 1\nb: c: d\n", r"line 2: mapping values are not allowed in this context\)"),
        *(
            (f"a:\n  {key}: 1\n", f"line 2: the key `{key}` is not text; put it in quotes")
            for key in ("no", "1_2", "~")
        ),
        ("name: \x1f\n", "unacceptable character #x001f"),
        ("name: \udcff\n", "'utf-8' codec can't decode byte 0xff in position 6"),
    ],
)
def test_file_that_is_not_yaml_is_refused_with_the_line(path: Path, text: str, why: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))

    error = refusal(path)

    assert re.match(rf"not valid YAML \({why}", error.what) and "\n" not in error.what
    assert error.fix == "correct that line"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a remark\n", "---\n", "null\n"])
def test_empty_file_is_refused(path: Path, text: str) -> None:
    error = refusal(path, text)

    assert error.what == "the file is empty"
    assert error.fix == "write one: manifests/recipes and docs have examples"


@pytest.mark.parametrize(("text", "kind"), [("- a\n- b\n", "list"), ("just words", "str"), ("7", "int")])
def test_file_other_than_a_mapping_is_refused(path: Path, text: str, kind: str) -> None:
    error = refusal(path, text)

    assert (error.what, error.fix) == (f"a recipe must be a mapping, got {kind}", "write `key: value` lines")


@pytest.mark.parametrize(
    "text",
    [
        "# The same, in one line.\n{name: 'fineweb_v1', source: {sampling: {seed: healing, rows: 1_000},"
        ' "dataset": "HuggingFaceFW/fineweb-edu"}, system: text}',
        RECIPE + "more: []\nheld_out: null\nbudget: {tokens: 5}\n",
    ],
    ids=["another layout", "defaults written out"],
)
def test_content_is_independent_of_layout_and_of_omitted_defaults(path: Path, text: str) -> None:
    before = TextRecipe.read(path).content()

    path.write_text(text)

    assert TextRecipe.read(path).content() == before


def test_recipe_is_frozen(path: Path) -> None:
    recipe = TextRecipe.read(path)

    with pytest.raises(pydantic.ValidationError, match="frozen"):
        recipe.source.sampling.rows = 5
