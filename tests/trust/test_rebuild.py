"""Rebuilds of artifacts from their manifests, next to the sealed ones.

A rebuild survives kills, continues only under an equal ticket, and its scratch folder is not an artifact.
"""

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from crash_points import kill_at, list_steps
from forgery import flip, forge, overwrite
from healing_set import HealingSet, stat_contents
from refusals import refusal

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import RebuildResult, ScratchFolder, rebuild, scratch_folder

TICKET = {"digest": "sha256:1", "versions": {"python": "3.11"}}


def list_verdicts(result: RebuildResult) -> list[tuple[str, str]]:
    return [(outcome.step.manifest.kind.partition("/")[2], outcome.verdict) for outcome in result.outcomes]


def list_rebuilds(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "rebuilds").iterdir())


def test_a_rebuild_with_upstream_reads_no_sealed_upstream_files(built: HealingSet) -> None:
    shutil.rmtree(built.folder("snapshot") / "shards")

    result = rebuild(built.folder("valid"), built.run, SYSTEMS.kinds, with_upstream=True)

    assert list_verdicts(result) == [
        ("fineweb_edu_snapshot", "identical"),
        ("healing_text_manifest", "identical"),
        ("megatron_split", "identical"),
    ]
    assert [outcome.is_sealed_intact for outcome in result.outcomes] == [False, False, True]


def test_copies_of_manifests_suffice_for_upstream_artifacts(built: HealingSet) -> None:
    (built.root / "manifests").mkdir()
    for name in ("snapshot", "selection"):
        shutil.copyfile(built.folder(name) / "manifest.json", built.root / "manifests" / f"{name}.json")
        shutil.rmtree(built.folder(name))

    result = rebuild(built.folder("dataset"), built.run, SYSTEMS.kinds, with_upstream=True)

    assert [verdict for _, verdict in list_verdicts(result)] == ["identical"] * 5
    assert [outcome.step.sealed_folder is None for outcome in result.outcomes] == [True, True, False, False, False]


def test_a_kept_copy_is_an_artifact_that_the_next_rebuild_does_not_reuse(built: HealingSet) -> None:
    result = rebuild(built.folder("dataset"), built.run, SYSTEMS.kinds, keep=True)

    copy = open_artifact(result.kept_folder / result.outcomes[-1].step.target.folder)
    assert copy.manifest.digest == built.manifest("dataset").digest
    assert [member.digest for member in copy.members()] == [
        built.manifest("train").digest,
        built.manifest("valid").digest,
    ]
    assert list_rebuilds(built.root) == [result.kept_folder.name]

    tokens = copy.folder / "train" / "tokens.bin"
    overwrite(tokens, b"")
    repeated = rebuild(built.folder("dataset"), built.run, SYSTEMS.kinds, keep=True)
    assert (repeated.is_identical, repeated.kept_folder) == (True, result.kept_folder)
    assert tokens.stat().st_size > 0


def test_a_damaged_input_is_named_and_nothing_is_built(built: HealingSet) -> None:
    shard = built.folder("snapshot") / "shards" / "00002.jsonl.zst"
    flip(shard)

    for name in ("selection", "train", "dataset"):
        assert refusal(lambda name=name: rebuild(built.folder(name), built.run, SYSTEMS.kinds)).startswith(f"{shard}: ")
    assert rebuild(built.folder("train"), built.run, SYSTEMS.kinds, with_upstream=True).is_identical


def test_artifacts_downstream_of_a_difference_are_not_rebuilt(built: HealingSet) -> None:
    snapshot = built.folder("snapshot")
    forge(snapshot, "shards/00001.jsonl.zst", (snapshot / "shards" / "00000.jsonl.zst").read_bytes(), rows=10)
    for target in built.recipe.targets()[1:]:
        target.kind.build(target, built.run)

    alone = rebuild(built.folder("train"), built.run, SYSTEMS.kinds)
    chain = rebuild(built.folder("train"), built.run, SYSTEMS.kinds, with_upstream=True)

    assert alone.is_identical
    assert list_verdicts(chain) == [
        ("fineweb_edu_snapshot", "different"),
        ("healing_text_manifest", "not rebuilt"),
        ("megatron_split", "not rebuilt"),
    ]
    assert chain.kept_folder is not None and (chain.kept_folder / "fineweb_edu_snapshot" / "manifest.json").is_file()
    assert [chain.rebuilt_folder(outcome) for outcome in chain.outcomes][1:] == [None, None]


def test_without_the_hub_and_its_cache_the_hub_is_named(built: HealingSet, tmp_path: Path) -> None:
    unreachable = HubFiles(tmp_path / "empty", endpoint="http://127.0.0.1:9", tries=1)

    with pytest.raises(InputError, match="maker/pages cannot be reached"):
        rebuild(built.folder("snapshot"), dataclasses.replace(built.run, hub=unreachable), SYSTEMS.kinds)


def test_a_second_rebuild_of_the_same_artifact_is_refused(built: HealingSet) -> None:
    digest = built.manifest("train").digest.partition(":")[2]

    with (
        locked(built.root / "rebuilds" / f"pages_v1-train-{digest[:12]}"),
        pytest.raises(BuilderBusyError, match=f"process {os.getpid()} on .* is building this"),
    ):
        rebuild(built.folder("train"), built.run, SYSTEMS.kinds)


def test_a_replaced_artifact_has_no_verdict(built: HealingSet, monkeypatch: pytest.MonkeyPatch) -> None:
    valid = built.folder("valid")
    forge_once = iter([lambda: forge(valid, "tokens.bin", b"")])
    monkeypatch.setattr(durable, "failpoint", lambda step, path: next(forge_once, lambda: None)())

    assert refusal(lambda: rebuild(valid, built.run, SYSTEMS.kinds)) == (
        f"{valid}: the artifact was replaced during its rebuild; run the same command again"
    )


class TestKilled:
    """After kill -9 at any step, the next call continues to the same verdict."""

    @pytest.mark.slow
    @pytest.mark.parametrize("keep", [False, True])
    def test_at_every_step_of_a_small_artifact(self, built: HealingSet, keep: bool) -> None:
        action = partial(rebuild, built.folder("selection"), built.run, SYSTEMS.kinds, keep=keep)
        action()  # creates the folder of rebuilds
        for step in range(1, len(list_steps(action)) + 1):
            assert kill_at(step, action)
            result = action()

            assert result.is_identical, step
            assert list_rebuilds(built.root) == ([result.kept_folder.name] if result.kept_folder else []), step
            assert (result.kept_folder is not None) == keep

    @pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
    def test_at_seeded_steps_of_a_whole_chain(self, built: HealingSet, seed: int) -> None:
        action = partial(rebuild, built.folder("dataset"), built.run, SYSTEMS.kinds, with_upstream=True)
        before = stat_contents(built.root)
        steps = len(list_steps(action))
        for step in sorted(random.Random(seed).sample(range(1, steps // 2 + 1), 2), reverse=True):
            assert kill_at(step, action)
        result = action()

        assert result.is_identical
        assert list_rebuilds(built.root) == []
        assert stat_contents(built.root) == before

    @pytest.mark.parametrize("is_another_program", [False, True])
    def test_only_another_program_repeats_finished_shards_and_artifacts(
        self, built: HealingSet, is_another_program: bool
    ) -> None:
        action = partial(rebuild, built.folder("dataset"), built.run, SYSTEMS.kinds, with_upstream=True)
        steps = len(list_steps(action))
        assert kill_at(steps * 2 // 3, action)
        if is_another_program:
            ticket = next((built.root / "rebuilds").glob("*.unfinished/rebuild.json"))
            content = json.loads(ticket.read_bytes())
            content["versions"]["zstandard"] = "0.1"
            ticket.write_text(json.dumps(content, sort_keys=True))

        repeated_steps = len(list_steps(action))

        assert repeated_steps >= steps if is_another_program else repeated_steps < steps * 0.6


@pytest.mark.parametrize(
    ("ticket", "is_beginning", "continues"),
    [(TICKET, True, True), ({**TICKET, "versions": {"python": "3.12"}}, True, False), (TICKET, False, False)],
    ids=["an equal ticket", "another one", "what keeping or removing left"],
)
def test_a_leftover_is_reused_only_under_an_equal_ticket(
    ticket: dict[str, object], is_beginning: bool, continues: bool, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path, "words", TICKET) as scratch:
        (scratch.folder / "done").write_text("one")
        raise KeyboardInterrupt
    if not is_beginning:
        (tmp_path / "rebuilds" / "words.unfinished" / "rebuild.json").unlink()

    with scratch_folder(tmp_path, "words", ticket) as scratch:
        assert (scratch.folder / "done").exists() == continues


@pytest.mark.parametrize(("final_end", "kept_word"), [(ScratchFolder.keep, "two"), (ScratchFolder.remove, "one")])
def test_a_kept_folder_replaces_the_earlier_one_and_a_removed_one_does_not(
    final_end: Callable[[ScratchFolder], None], kept_word: str, tmp_path: Path
) -> None:
    for word, ends in (("one", ScratchFolder.keep), ("two", final_end)):
        with scratch_folder(tmp_path, "words", TICKET) as scratch:
            (scratch.folder / word).write_text(word)
            ends(scratch)

    assert sorted(path.name for path in (tmp_path / "rebuilds").rglob("*")) == sorted([kept_word, "words"])


def test_a_copy_in_a_scratch_folder_is_not_an_artifact_of_the_data_root(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "words", TICKET) as scratch:
        copy = scratch.folder / "megatron" / "copy"
        copy.mkdir(parents=True)
        (copy / "manifest.json").write_text("{")

        assert not Lineage(tmp_path).manifests and not Lineage(tmp_path).manifest_errors
