"""Packed sets and token shards whose build is killed before any step on the disk: it goes on to the same files."""

import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_points import Victim, count_steps, killed_at
from pack_build import documents_of, pack, recipe, write_shards
from shards_build import shard_documents
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.formats.memmap import META_FILE
from pipeline_assets.corpus.packing import plan_format
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.spine.engine import RunSettings

Make = Callable[[Path, Path, RunSettings | None], Artifact]
FORKED = RunSettings(2)


def packed_set(root: Path, inputs: Path, settings: RunSettings | None) -> Artifact:
    tokenizer = write_tokenizer(inputs)
    documents = [*documents_of("a", [3, 5, 20, 4]), *documents_of("b", [4, 4, 7])]
    rules = recipe(tokenizer, num_seqs=4, strategy="best_fit")
    return pack(root, write_shards(inputs / "corpus", documents, 2), rules, tokenizer, settings)


def token_shards(root: Path, inputs: Path, settings: RunSettings | None) -> Artifact:
    path = write_tokenizer(inputs)
    tokenizer, documents = TokenizerFile(recipe(path).tokenizer, path), documents_of("a", [3, 5, 20, 4, 9, 2, 7, 8])
    return shard_documents(root, documents, tokenizer, settings, shard_size=3, seq_len=8, rows_per_shard=2)


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many builds that don't each ask git for the commit, of more ranges than one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(plan_format, "_RANGE_TOKENS", 150)


def build(make: Make, root: Path, inputs: Path, settings: RunSettings | None = None) -> dict[str, bytes]:
    """The set in a folder that holds nothing, or what a killed build left; its files."""
    made = make(root, inputs, settings)
    assert [item for item in verify(made, lambda _: (META_FILE,)) if isinstance(item, Damage)] == []
    assert [path for path in made.folder.parent.iterdir() if path.suffix != ".lock"] == [made.folder]
    files = {path.name: path.read_bytes() for path in made.folder.iterdir() if path.name != "manifest.json"}
    return files | {"digest": made.manifest.digest.encode()}


VICTIMS = [(Victim.ALL, RunSettings(), 1), (Victim.WORKER, FORKED, 3), (Victim.PARENT, FORKED, 3)]


@pytest.mark.parametrize(
    "is_seeded", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["one point", "any point"]
)
@pytest.mark.parametrize("make", [packed_set, token_shards])
@pytest.mark.parametrize(("victim", "settings", "stride"), VICTIMS)
def test_killed_before_a_step_it_goes_on_to_the_files_of_an_undisturbed_build(
    make: Make, victim: Victim, settings: RunSettings, stride: int, is_seeded: bool, tmp_path: Path
) -> None:
    undisturbed = build(make, tmp_path / "undisturbed", tmp_path)
    steps = count_steps(functools.partial(build, make, tmp_path / "counted", tmp_path, settings), victim)

    assert steps > 30
    for at in [random.Random(str(victim)).randint(1, steps)] if is_seeded else range(1, steps + 1, stride):
        with tempfile.TemporaryDirectory() as scratch:
            killed_at(at, functools.partial(build, make, Path(scratch), tmp_path, settings), victim)
            assert build(make, Path(scratch), tmp_path) == undisturbed, f"killed before step {at}"
