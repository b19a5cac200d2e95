"""A packing that is killed before any of its steps on the disk goes on to the same files."""

import functools
import random
import tempfile
from pathlib import Path

import pytest
from crash_points import Victim, count_steps, killed_at
from pack_build import documents_of, pack, recipe, write_shards
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.formats.memmap import META
from pipeline_assets.corpus.packing import plan_files
from pipeline_assets.corpus.spine.artifact import Damage, verify
from pipeline_assets.corpus.spine.engine import RunSettings

DOCUMENTS = [*documents_of("a", [3, 5, 20, 4]), *documents_of("b", [4, 4, 7])]
FORKED = RunSettings(2)


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many builds that don't each ask git for the commit, of more ranges than one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(plan_files, "_RANGE_TOKENS", 150)


def build(root: Path, inputs: Path, engine: RunSettings | None = None) -> dict[str, bytes]:
    """The set in a folder that holds nothing, or what a killed build left; its files."""
    tokenizer = write_tokenizer(inputs)
    shards = write_shards(inputs / "corpus", DOCUMENTS, 2)
    result = pack(root, shards, recipe(tokenizer, num_seqs=4, strategy="best_fit"), tokenizer, engine)
    assert [item for item in verify(result.folder, lambda _: (META,)) if isinstance(item, Damage)] == []
    assert sorted(path.name for path in root.iterdir() if path.suffix != ".lock") == ["packed"]
    files = {path.name: path.read_bytes() for path in result.folder.iterdir() if path.name != "manifest.json"}
    return files | {"digest": result.manifest.digest.encode()}


def check_kill(folder: Path, at: int, undisturbed: dict[str, bytes], victim: Victim, engine: RunSettings) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        killed_at(at, functools.partial(build, Path(scratch), folder, engine), victim)
        assert build(Path(scratch), folder) == undisturbed, f"killed before step {at}"


@pytest.mark.parametrize(
    ("victim", "engine"), [(Victim.ALL, RunSettings()), (Victim.WORKER, FORKED), (Victim.PARENT, FORKED)]
)
def test_killed_at_a_seeded_point_it_goes_on_to_the_same_files(
    folder: Path, victim: Victim, engine: RunSettings
) -> None:
    undisturbed = build(folder / "undisturbed", folder)
    steps = count_steps(functools.partial(build, folder / "counted", folder, engine), victim)

    check_kill(folder, random.Random(str(victim)).randint(1, steps), undisturbed, victim, engine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "engine", "stride"),
    [(Victim.ALL, RunSettings(), 1), (Victim.WORKER, FORKED, 3), (Victim.PARENT, FORKED, 3)],
)
def test_killed_at_any_point_it_goes_on_to_the_same_files(
    folder: Path, victim: Victim, engine: RunSettings, stride: int
) -> None:
    undisturbed = build(folder / "undisturbed", folder)
    steps = count_steps(functools.partial(build, folder / "counted", folder, engine), victim)

    assert steps > 40
    for at in range(1, steps + 1, stride):
        check_kill(folder, at, undisturbed, victim, engine)
