"""An artifact is built again from its manifest alone, beside the sealed one, whatever stopped it, and judged.

The scratch folder is alone, gone on with under an equal ticket, and nothing else takes it for an artifact.
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
from crash_points import killed_at, steps_of
from forgery import flip, forge, overwrite
from healing_set import HealingSet, contents_of
from refusals import refusal

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import Rebuild, ScratchFolder, rebuild, scratch_folder

TICKET = {"digest": "sha256:1", "versions": {"python": "3.11"}}


def verdicts(done: Rebuild) -> list[tuple[str, str]]:
    return [(outcome.step.manifest.kind.partition("/")[2], outcome.verdict) for outcome in done.outcomes]


def rebuilds_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "rebuilds").iterdir())


def test_with_upstream_nothing_sealed_is_read_but_manifests_and_the_artifact_itself(made: HealingSet) -> None:
    shutil.rmtree(made.folder("snapshot") / "shards")

    done = rebuild(made.folder("valid"), made.run, SYSTEMS.kinds, with_upstream=True)

    assert verdicts(done) == [
        ("fineweb_edu_snapshot", "identical"),
        ("healing_text_manifest", "identical"),
        ("megatron_split", "identical"),
    ]
    assert [outcome.is_sealed_intact for outcome in done.outcomes] == [False, False, True]


def test_with_upstream_everything_can_be_made_from_copies_of_manifests(made: HealingSet) -> None:
    (made.root / "manifests").mkdir()
    for name in ("snapshot", "selection"):
        shutil.copyfile(made.folder(name) / "manifest.json", made.root / "manifests" / f"{name}.json")
        shutil.rmtree(made.folder(name))

    done = rebuild(made.folder("dataset"), made.run, SYSTEMS.kinds, with_upstream=True)

    assert [verdict for _, verdict in verdicts(done)] == ["identical"] * 5
    assert [outcome.step.sealed_folder is None for outcome in done.outcomes] == [True, True, False, False, False]


def test_a_copy_that_is_kept_is_an_artifact_of_its_own(made: HealingSet) -> None:
    done = rebuild(made.folder("dataset"), made.run, SYSTEMS.kinds, keep=True)

    copy = open_artifact(done.kept_folder / done.outcomes[-1].step.target.folder)
    assert copy.manifest.digest == made.manifest("dataset").digest
    assert [member.digest for member in copy.members()] == [
        made.manifest("train").digest,
        made.manifest("valid").digest,
    ]
    assert rebuilds_of(made.root) == [done.kept_folder.name]


def test_a_copy_that_was_kept_is_not_taken_for_the_next_rebuild(made: HealingSet) -> None:
    first = rebuild(made.folder("train"), made.run, SYSTEMS.kinds, keep=True)
    overwrite(first.kept_folder / "megatron_split" / "tokens.bin", b"")

    second = rebuild(made.folder("train"), made.run, SYSTEMS.kinds, keep=True)

    assert second.is_identical
    assert second.kept_folder == first.kept_folder
    assert (first.kept_folder / "megatron_split" / "tokens.bin").stat().st_size > 0


def test_a_damaged_input_is_named_and_nothing_is_built(made: HealingSet) -> None:
    shard = made.folder("snapshot") / "shards" / "00002.jsonl.zst"
    flip(shard)

    for name in ("selection", "train", "dataset"):
        assert refusal(lambda name=name: rebuild(made.folder(name), made.run, SYSTEMS.kinds)).startswith(f"{shard}: ")
    assert rebuild(made.folder("train"), made.run, SYSTEMS.kinds, with_upstream=True).is_identical


def test_what_is_made_from_something_that_came_out_different_is_not_rebuilt(made: HealingSet) -> None:
    snapshot = made.folder("snapshot")
    forge(snapshot, "shards/00001.jsonl.zst", (snapshot / "shards" / "00000.jsonl.zst").read_bytes(), rows=10)
    for target in made.recipe.targets()[1:]:
        target.kind.build(target, made.run)

    alone = rebuild(made.folder("train"), made.run, SYSTEMS.kinds)
    chain = rebuild(made.folder("train"), made.run, SYSTEMS.kinds, with_upstream=True)

    assert alone.is_identical
    assert verdicts(chain) == [
        ("fineweb_edu_snapshot", "different"),
        ("healing_text_manifest", "not rebuilt"),
        ("megatron_split", "not rebuilt"),
    ]
    assert chain.kept_folder is not None and (chain.kept_folder / "fineweb_edu_snapshot" / "manifest.json").is_file()
    assert [chain.rebuilt_folder(outcome) for outcome in chain.outcomes][1:] == [None, None]


def test_without_the_hub_and_its_cache_the_hub_is_named(made: HealingSet, tmp_path: Path) -> None:
    gone = HubFiles(tmp_path / "empty", endpoint="http://127.0.0.1:9", tries=1)

    with pytest.raises(InputError, match="maker/pages cannot be reached"):
        rebuild(made.folder("snapshot"), dataclasses.replace(made.run, hub=gone), SYSTEMS.kinds)


def test_a_second_rebuild_of_the_same_artifact_is_refused(made: HealingSet) -> None:
    digest = made.manifest("train").digest.partition(":")[2]

    with (
        locked(made.root / "rebuilds" / f"pages_v1-train-{digest[:12]}"),
        pytest.raises(BuilderBusyError, match=f"process {os.getpid()} on .* is building this"),
    ):
        rebuild(made.folder("train"), made.run, SYSTEMS.kinds)


def test_an_artifact_that_was_replaced_is_not_judged(made: HealingSet, monkeypatch: pytest.MonkeyPatch) -> None:
    valid = made.folder("valid")
    forge_once = iter([lambda: forge(valid, "tokens.bin", b"")])
    monkeypatch.setattr(durable, "failpoint", lambda step, path: next(forge_once, lambda: None)())

    assert refusal(lambda: rebuild(valid, made.run, SYSTEMS.kinds)) == (
        f"{valid}: the artifact was replaced during its rebuild; run the same command again"
    )


class TestKilled:
    """kill -9 at any step: the next call goes on and comes to the same verdict."""

    @pytest.mark.slow
    @pytest.mark.parametrize("keep", [False, True])
    def test_at_every_step_of_a_small_one(self, made: HealingSet, keep: bool) -> None:
        action = partial(rebuild, made.folder("selection"), made.run, SYSTEMS.kinds, keep=keep)
        action()  # makes the folder of rebuilds, once for all
        for step in range(1, len(steps_of(action)) + 1):
            assert killed_at(step, action)
            done = action()

            assert done.is_identical, step
            assert rebuilds_of(made.root) == ([done.kept_folder.name] if done.kept_folder else []), step
            assert (done.kept_folder is not None) == keep

    @pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
    def test_at_seeded_steps_of_a_whole_chain(self, made: HealingSet, seed: int) -> None:
        action = partial(rebuild, made.folder("dataset"), made.run, SYSTEMS.kinds, with_upstream=True)
        before = contents_of(made.root)
        steps = len(steps_of(action))
        for step in sorted(random.Random(seed).sample(range(1, steps // 2 + 1), 2), reverse=True):
            assert killed_at(step, action)
        done = action()

        assert done.is_identical
        assert rebuilds_of(made.root) == []
        assert contents_of(made.root) == before

    @pytest.mark.parametrize("is_another_program", [False, True])
    def test_finished_shards_and_artifacts_are_made_again_by_another_program_alone(
        self, made: HealingSet, is_another_program: bool
    ) -> None:
        action = partial(rebuild, made.folder("dataset"), made.run, SYSTEMS.kinds, with_upstream=True)
        steps = len(steps_of(action))
        assert killed_at(steps * 2 // 3, action)
        if is_another_program:
            ticket = next((made.root / "rebuilds").glob("*.unfinished/rebuild.json"))
            then = json.loads(ticket.read_bytes())
            then["versions"]["zstandard"] = "0.1"
            ticket.write_text(json.dumps(then, sort_keys=True))

        again = len(steps_of(action))

        assert again >= steps if is_another_program else again < steps * 0.6


@pytest.mark.parametrize(
    ("ticket", "is_beginning", "goes_on"),
    [(TICKET, True, True), ({**TICKET, "versions": {"python": "3.12"}}, True, False), (TICKET, False, False)],
    ids=["an equal ticket", "another one", "what keeping or removing left"],
)
def test_what_a_crash_left_is_gone_on_with_under_an_equal_ticket_alone(
    ticket: dict[str, object], is_beginning: bool, goes_on: bool, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path, "words", TICKET) as scratch:
        (scratch.folder / "done").write_text("one")
        raise KeyboardInterrupt
    if not is_beginning:
        (tmp_path / "rebuilds" / "words.unfinished" / "rebuild.json").unlink()

    with scratch_folder(tmp_path, "words", ticket) as scratch:
        assert (scratch.folder / "done").exists() == goes_on


@pytest.mark.parametrize(("end", "left"), [(ScratchFolder.keep, "two"), (ScratchFolder.remove, "one")])
def test_what_is_kept_takes_the_place_of_what_was_kept_before_which_removing_leaves(
    end: Callable[[ScratchFolder], None], left: str, tmp_path: Path
) -> None:
    for word, ends in (("one", ScratchFolder.keep), ("two", end)):
        with scratch_folder(tmp_path, "words", TICKET) as scratch:
            (scratch.folder / word).write_text(word)
            ends(scratch)

    assert sorted(path.name for path in (tmp_path / "rebuilds").rglob("*")) == sorted([left, "words"])


def test_a_sealed_copy_in_it_is_no_artifact_of_the_data_root(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "words", TICKET) as scratch:
        copy = scratch.folder / "megatron" / "copy"
        copy.mkdir(parents=True)
        (copy / "manifest.json").write_text("{")

        assert not Lineage(tmp_path).manifests and not Lineage(tmp_path).manifest_errors
