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

from pipeline_assets.corpus.formats.memmap import META
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
    assert [item for item in verify(made.folder, lambda _: (META,)) if isinstance(item, Damage)] == []
    assert [path for path in made.folder.parent.iterdir() if path.suffix != ".lock"] == [made.folder]
    files = {path.name: path.read_bytes() for path in made.folder.iterdir() if path.name != "manifest.json"}
    return files | {"digest": made.manifest.digest.encode()}


def check_kills(
    make: Make, folder: Path, victim: Victim, settings: RunSettings, kills: Callable[[int], list[int]]
) -> None:
    """Kill builds before some of their steps, of so many, and hold what they go on to against an undisturbed one."""
    undisturbed = build(make, folder / "undisturbed", folder)
    steps = count_steps(functools.partial(build, make, folder / "counted", folder, settings), victim)

    assert steps > 30
    for at in kills(steps):
        with tempfile.TemporaryDirectory() as scratch:
            killed_at(at, functools.partial(build, make, Path(scratch), folder, settings), victim)
            assert build(make, Path(scratch), folder) == undisturbed, f"killed before step {at}"


VICTIMS = [(Victim.ALL, RunSettings(), 1), (Victim.WORKER, FORKED, 3), (Victim.PARENT, FORKED, 3)]


@pytest.mark.parametrize("make", [packed_set, token_shards])
@pytest.mark.parametrize(("victim", "settings", "stride"), VICTIMS)
def test_killed_at_a_seeded_point_it_goes_on_to_the_same_files(
    make: Make, victim: Victim, settings: RunSettings, stride: int, tmp_path: Path
) -> None:
    check_kills(make, tmp_path, victim, settings, lambda steps: [random.Random(str(victim)).randint(1, steps)])


@pytest.mark.slow
@pytest.mark.parametrize("make", [packed_set, token_shards])
@pytest.mark.parametrize(("victim", "settings", "stride"), VICTIMS)
def test_killed_at_any_point_it_goes_on_to_the_same_files(
    make: Make, victim: Victim, settings: RunSettings, stride: int, tmp_path: Path
) -> None:
    check_kills(make, tmp_path, victim, settings, lambda steps: list(range(1, steps + 1, stride)))
