"""Token shards whose build is killed before any of its steps on the disk: it goes on to the same files."""

import functools
import random
import tempfile
from pathlib import Path

import pytest
from crash_points import Victim, count_steps, killed_at
from pack_build import documents_of, recipe
from shards_build import shard_documents
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.spine.artifact import Damage, verify
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.tokens.families import TokenizerFile

DOCUMENTS = documents_of("a", [3, 5, 20, 4, 9, 2, 7, 8])
FORKED = RunSettings(2)


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many builds that don't each ask git for the commit."""
    monkeypatch.setenv("PATH", "")


def build(root: Path, inputs: Path, settings: RunSettings | None = None) -> dict[str, bytes]:
    """The set in a folder that holds nothing, or what a killed build left; its files."""
    path = write_tokenizer(inputs)
    tokenizer = TokenizerFile(recipe(path).tokenizer, path)
    made = shard_documents(root, DOCUMENTS, tokenizer, settings, shard_size=3, seq_len=8, rows_per_shard=2)
    assert [item for item in verify(made.folder) if isinstance(item, Damage)] == []
    assert sorted(path.name for path in made.folder.parent.iterdir() if path.suffix != ".lock") == ["shards"]
    files = {path.name: path.read_bytes() for path in made.folder.iterdir() if path.name != "manifest.json"}
    return files | {"digest": made.manifest.digest.encode()}


def check_kill(folder: Path, at: int, undisturbed: dict[str, bytes], victim: Victim, settings: RunSettings) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        killed_at(at, functools.partial(build, Path(scratch), folder, settings), victim)
        assert build(Path(scratch), folder) == undisturbed, f"killed before step {at}"


@pytest.mark.parametrize(
    ("victim", "settings"), [(Victim.ALL, RunSettings()), (Victim.WORKER, FORKED), (Victim.PARENT, FORKED)]
)
def test_killed_at_a_seeded_point_it_goes_on_to_the_same_files(
    folder: Path, victim: Victim, settings: RunSettings
) -> None:
    undisturbed = build(folder / "undisturbed", folder)
    steps = count_steps(functools.partial(build, folder / "counted", folder, settings), victim)

    check_kill(folder, random.Random(str(victim)).randint(1, steps), undisturbed, victim, settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "settings", "stride"),
    [(Victim.ALL, RunSettings(), 1), (Victim.WORKER, FORKED, 3), (Victim.PARENT, FORKED, 3)],
)
def test_killed_at_any_point_it_goes_on_to_the_same_files(
    folder: Path, victim: Victim, settings: RunSettings, stride: int
) -> None:
    undisturbed = build(folder / "undisturbed", folder)
    steps = count_steps(functools.partial(build, folder / "counted", folder, settings), victim)

    assert steps > 30
    for at in range(1, steps + 1, stride):
        check_kill(folder, at, undisturbed, victim, settings)
