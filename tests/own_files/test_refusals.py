"""Names, inputs and existing recipes that `init` refuses."""

from pathlib import Path

import pytest
from command_results import Corpusmill, refused


@pytest.mark.parametrize("url", ["s3://bucket/notes", "file:///mnt/notes", "hf://datasets/owner/notes"])
def test_init_refuses_a_url_and_names_the_recipe_key_unless_recipes_refuse_it(
    url: str, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    fix = "pass the path of a local file or folder"
    if url.startswith("s3:"):
        fix = "write this URL as the path of a source in a recipe (docs/object_stores.md), or copy the files"

    refusal = refused(corpusmill("init", "notes", "--input", url, "--data", tmp_path))

    assert refusal == f"{url}: only local files are read here; {fix}"


def test_init_refuses_inputs_that_share_a_file(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "a.txt").write_text("One text.")
    inputs = ("--input", "in", "--input", "in/sub")

    refusal = refused(corpusmill("init", "twice", *inputs, "--data", "data", cwd=tmp_path))

    assert refusal == "in/sub: the file a.txt is also in in; pass each file in only one --input"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("name", "input_path"), [("", "."), ("none", "")])
def test_init_refuses_an_empty_name_or_path(corpusmill: Corpusmill, tmp_path: Path, name: str, input_path: str) -> None:
    refused(corpusmill("init", name, "--input", input_path, "--data", tmp_path / "data", cwd=tmp_path))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "valid"), [("", "notes"), ("_x", "x"), ("mine.yaml", "mine"), ("My Nótes", "my-notes")]
)
def test_init_refuses_an_invalid_recipe_name(
    corpusmill: Corpusmill, mixed: Path, tmp_path: Path, name: str, valid: str
) -> None:
    refusal = refused(corpusmill("init", name, "--input", mixed, "--data", tmp_path))

    rule = "the recipe's name must be lower case, without blanks, accents and .yaml"
    assert refusal == f"init: {rule}, got {name!r}; write {valid}"


def test_init_replaces_no_recipe_and_reads_no_artifacts(corpusmill: Corpusmill, mixed: Path, built: Path) -> None:
    recipe = built / "recipes" / "mine.yaml"
    before = recipe.read_text()

    existing = refused(corpusmill("init", "mine", "--input", mixed, "--data", built))
    shipped = refused(corpusmill("init", "stage_a_v1", "--input", mixed, "--data", built))
    printed = corpusmill("init", "mine", "--input", mixed, "--data", built, "--print")
    artifacts = refused(corpusmill("init", "none", "--input", built / "stage_a", "--data", built))

    fix = "edit it (--print prints a new draft of the same files), or choose another name"
    assert existing == f"{recipe}: the recipe exists; {fix}"
    assert shipped == "stage_a_v1: a shipped recipe has this name; choose another name"
    assert printed.stdout == before.replace("seq_len: 64", "seq_len: 2048")
    assert recipe.read_text() == before
    assert "no readable files in the folder" in artifacts
    assert not (built / "recipes" / "none.yaml").exists()
