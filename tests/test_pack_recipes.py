"""`corpusmill run` and `plan` of recipes that pack: what they say of it, and before what."""

import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line import only_line
from stage_a_build import NO_COMMIT, local_source
from stage_a_sources import recipe_content, with_pack
from word_tokenizer import write_tokenizer

Corpusmill = Callable[..., subprocess.CompletedProcess[str]]
ROWS = {"seq_len": 32, "num_seqs": 10, "strategy": "sequential", "max_epochs": {"every_source": "1"}}


def write_pack_recipe(root: Path, **pack: object) -> Path:
    """A recipe of the data root that packs ten notes, which it doesn't deduplicate."""
    texts = [" ".join(f"w{number * 100 + word}" for word in range(20 + number)) for number in range(10)]
    notes = [{"text": text, "key": f"note-{number}"} for number, text in enumerate(texts)]
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(root, "notes", notes)], "name": "notes"}
    with_pack(content)
    content["pack"] |= ROWS | pack
    path = root / "recipes" / "notes.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_run_says_that_what_it_packs_was_not_deduplicated(corpusmill: Corpusmill, tmp_path: Path) -> None:
    write_pack_recipe(tmp_path)

    result = corpusmill("run", "notes", "--data", tmp_path, "--workers", 0)

    assert result.returncode == 0, result.stderr
    assert (
        "check notes: draws_are_deduplicated: WARNING: "
        "not deduplicated: a text may be in it more often than its epochs say"
    ) in result.stderr.splitlines()


def test_a_run_names_the_recipe_and_its_key_where_rows_cannot_be_filled(corpusmill: Corpusmill, tmp_path: Path) -> None:
    path = write_pack_recipe(tmp_path, num_seqs=30)

    result = corpusmill("run", "notes", "--data", tmp_path, "--workers", 0)

    assert result.returncode == 2, result.stderr
    assert only_line(result).startswith(f"{path}: pack.num_seqs: 30 rows take 960 tokens of notes, which has ")


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("change", "status", "line"),
    [
        ({"sha256": "0" * 64}, 1, "{root}/tokenizer.json: sha256 is {sha256}, pinned 0000"),
        ({"end_of_document": "</s>"}, 2, "{recipe}: pack.tokenizer.end_of_document: '</s>' is no special token of"),
        ({"tokenizer_path": "none.json"}, 1, "{root}/none.json: the tokenizer file can't be read (No such file or"),
        ({"tokenizer_path": None}, 2, "{recipe}: `pack`: the tokenizer file of hf_tokenizer is not given: set `token"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_told_before_anything_is_built(
    corpusmill: Corpusmill, tmp_path: Path, command: str, change: dict[str, Any], status: int, line: str
) -> None:
    pinned = sha256(write_tokenizer(tmp_path).read_bytes()).hexdigest()
    tokenizer = {"family": "hf_tokenizer", "sha256": pinned, "end_of_document": "<end>"}
    given = {"tokenizer_path": "tokenizer.json", **change}
    path = given.pop("tokenizer_path")
    recipe = write_pack_recipe(tmp_path, tokenizer=tokenizer | given, tokenizer_path=path)

    result = corpusmill(command, "notes", "--data", tmp_path)

    assert result.returncode == status, result.stderr
    assert only_line(result).startswith(line.format(root=tmp_path, recipe=recipe, sha256=pinned))
    assert not (tmp_path / "stage_a").exists()
