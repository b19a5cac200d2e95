"""Kills of builds of packed sets and token shards before each step on the disk."""

import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_points import Victim, count_steps, kill_at
from pack_build import pack, recipe, sized_documents, write_shards
from shards_build import shard_documents
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.formats.memmap import META_FILE
from pipeline_assets.corpus.packing import plan_format
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.spine.engine import RunSettings

Build = Callable[[Path, Path, RunSettings | None], Artifact]
FORKED = RunSettings(2)


def build_packed_set(root: Path, inputs: Path, settings: RunSettings | None) -> Artifact:
    tokenizer = write_tokenizer(inputs)
    documents = [*sized_documents("a", [3, 5, 20, 4]), *sized_documents("b", [4, 4, 7])]
    rules = recipe(tokenizer, num_seqs=4, strategy="best_fit")
    return pack(root, write_shards(inputs / "corpus", documents, 2), rules, tokenizer, settings)


def build_token_shards(root: Path, inputs: Path, settings: RunSettings | None) -> Artifact:
    path = write_tokenizer(inputs)
    tokenizer, documents = TokenizerFile(recipe(path).tokenizer, path), sized_documents("a", [3, 5, 20, 4, 9, 2, 7, 8])
    return shard_documents(root, documents, tokenizer, settings, shard_size=3, seq_len=8, rows_per_shard=2)


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no build ask git for the commit, and use many token ranges."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(plan_format, "_RANGE_TOKENS", 150)


def build_files(build_set: Build, root: Path, inputs: Path, settings: RunSettings | None = None) -> dict[str, bytes]:
    """Build a set in an empty folder or after a kill; return its files."""
    artifact = build_set(root, inputs, settings)
    assert [item for item in verify(artifact, lambda _: (META_FILE,)) if isinstance(item, Damage)] == []
    assert [path for path in artifact.folder.parent.iterdir() if path.suffix != ".lock"] == [artifact.folder]
    files = {path.name: path.read_bytes() for path in artifact.folder.iterdir() if path.name != "manifest.json"}
    return files | {"digest": artifact.manifest.digest.encode()}


VICTIMS = [
    (Victim.ALL, RunSettings(), 1),
    (Victim.WORKER, FORKED, 3),
    pytest.param(Victim.PARENT, FORKED, 3, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    "is_seeded", [True, pytest.param(False, marks=pytest.mark.proof)], ids=["one point", "any point"]
)
@pytest.mark.parametrize("build_set", [build_packed_set, build_token_shards])
@pytest.mark.parametrize(("victim", "settings", "stride"), VICTIMS)
def test_a_build_killed_before_a_step_resumes_to_the_undisturbed_files(
    build_set: Build, victim: Victim, settings: RunSettings, stride: int, is_seeded: bool, tmp_path: Path
) -> None:
    undisturbed = build_files(build_set, tmp_path / "undisturbed", tmp_path)
    steps = count_steps(functools.partial(build_files, build_set, tmp_path / "counted", tmp_path, settings), victim)

    assert steps > 30
    for step in [random.Random(str(victim)).randint(1, steps)] if is_seeded else range(1, steps + 1, stride):
        with tempfile.TemporaryDirectory() as scratch:
            kill_at(step, functools.partial(build_files, build_set, Path(scratch), tmp_path, settings), victim)
            assert build_files(build_set, Path(scratch), tmp_path) == undisturbed, f"killed before step {step}"
