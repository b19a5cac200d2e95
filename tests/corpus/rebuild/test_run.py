"""An artifact is built again from its manifest alone, beside the sealed one, whatever stopped it, and judged."""

import dataclasses
import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from forged import forge, overwrite
from healing_set import NAMES, HealingSet, contents_of

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lock import BuilderBusy, locked
from pipeline_assets.corpus.trust.rebuild import Rebuild, rebuild
from pipeline_assets.systems.registry import KINDS

OTHER_RUNS = [
    Run(Path(), EngineSettings(workers=0), zstd_level=3),
    Run(Path(), EngineSettings(workers=0), zstd_level=19),
    Run(Path(), EngineSettings(workers=2, start_method="fork"), zstd_level=1, fetch_threads=1),
]


def verdicts(done: Rebuild) -> list[tuple[str, str]]:
    return [(outcome.step.manifest.kind.partition("/")[2], outcome.verdict) for outcome in done.outcomes]


def rebuilds_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "rebuilds").iterdir())


@pytest.mark.parametrize("settings", OTHER_RUNS, ids=lambda s: f"workers-{s.engine.workers}-zstd-{s.zstd_level}")
def test_every_kind_is_identical_with_any_run_settings_and_leaves_nothing(made: HealingSet, settings: Run) -> None:
    before = contents_of(made.root)

    for name in NAMES:
        done = rebuild(made.folder(name), dataclasses.replace(settings, root=made.root, hub=made.run.hub))

        assert done.is_identical, name
        assert done.kept is None
        assert done.outcomes[-1].rebuilt is not None
        assert done.outcomes[-1].rebuilt.digest == made.manifest(name).digest
        assert done.outcomes[-1].is_sealed_intact
        if settings.zstd_level != 3 and name == "snapshot":
            assert len(done.outcomes[-1].stored_otherwise) >= 4
    assert contents_of(made.root) == before
    assert rebuilds_of(made.root) == []


def test_a_dataset_is_rebuilt_with_its_members(made: HealingSet) -> None:
    done = rebuild(made.folder("dataset"), made.run)

    assert verdicts(done) == [
        ("megatron_split", "identical"),
        ("megatron_split", "identical"),
        ("megatron_dataset", "identical"),
    ]


def test_with_upstream_nothing_sealed_is_read_but_manifests_and_the_artifact_itself(made: HealingSet) -> None:
    shutil.rmtree(made.folder("snapshot") / "shards")

    done = rebuild(made.folder("valid"), made.run, with_upstream=True)

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

    done = rebuild(made.folder("dataset"), made.run, with_upstream=True)

    assert [verdict for _, verdict in verdicts(done)] == ["identical"] * 5
    assert [outcome.step.place is None for outcome in done.outcomes] == [True, True, False, False, False]


def test_a_copy_that_is_kept_is_an_artifact_of_its_own(made: HealingSet) -> None:
    done = rebuild(made.folder("dataset"), made.run, keep=True)

    assert done.kept is not None
    copy = open_artifact(done.kept / done.outcomes[-1].step.target.folder)
    assert copy.manifest.digest == made.manifest("dataset").digest
    assert [member.digest for member in copy.members()] == [
        made.manifest("train").digest,
        made.manifest("valid").digest,
    ]
    assert rebuilds_of(made.root) == [done.kept.name]


def test_a_copy_that_was_kept_is_not_taken_for_the_next_rebuild(made: HealingSet) -> None:
    first = rebuild(made.folder("train"), made.run, keep=True)
    assert first.kept is not None
    overwrite(first.kept / "megatron_split" / "tokens.bin", b"")

    second = rebuild(made.folder("train"), made.run, keep=True)

    assert second.is_identical
    assert second.kept == first.kept
    assert (first.kept / "megatron_split" / "tokens.bin").stat().st_size > 0


def test_a_damaged_input_is_named_and_nothing_is_built(made: HealingSet) -> None:
    shard = made.folder("snapshot") / "shards" / "00002.jsonl.zst"
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    overwrite(shard, bytes(data))

    for name in ("selection", "train", "dataset"):
        with pytest.raises(InputError) as refused:
            rebuild(made.folder(name), made.run)

        assert refused.value.where == str(shard)
    assert rebuild(made.folder("train"), made.run, with_upstream=True).is_identical


def test_what_is_made_from_something_that_came_out_different_is_not_rebuilt(made: HealingSet) -> None:
    snapshot = made.folder("snapshot")
    forge(snapshot, "shards/00001.jsonl.zst", (snapshot / "shards" / "00000.jsonl.zst").read_bytes())
    for target in made.recipe.targets()[1:]:
        KINDS[target.kind].build(target, made.run)

    alone = rebuild(made.folder("train"), made.run)
    chain = rebuild(made.folder("train"), made.run, with_upstream=True)

    assert alone.is_identical
    assert verdicts(chain) == [
        ("fineweb_edu_snapshot", "different"),
        ("healing_text_manifest", "not rebuilt"),
        ("megatron_split", "not rebuilt"),
    ]
    assert chain.kept is not None and (chain.kept / "fineweb_edu_snapshot" / "manifest.json").is_file()


def test_without_the_hub_and_its_cache_the_hub_is_named(made: HealingSet, tmp_path: Path) -> None:
    gone = HubFiles(tmp_path / "empty", endpoint="http://127.0.0.1:9", tries=1)

    with pytest.raises(InputError, match="maker/pages can't be reached"):
        rebuild(made.folder("snapshot"), dataclasses.replace(made.run, hub=gone))


def test_a_second_rebuild_of_the_same_artifact_is_refused(made: HealingSet) -> None:
    digest = made.manifest("train").digest.partition(":")[2]

    with (
        locked(made.root / "rebuilds" / f"pages_v1-train-{digest[:12]}"),
        pytest.raises(BuilderBusy, match=f"process {os.getpid()} on .* is building this"),
    ):
        rebuild(made.folder("train"), made.run)


def test_an_artifact_that_is_replaced_meanwhile_is_not_judged(made: HealingSet) -> None:
    valid = made.folder("valid")
    forge_once = iter([lambda: forge(valid, "tokens.bin", b"")])
    durable.failpoint = lambda step, path: next(forge_once, lambda: None)()
    try:
        with pytest.raises(InputError) as refused:
            rebuild(valid, made.run)
    finally:
        durable.failpoint = None

    assert str(refused.value) == f"{valid}: it was replaced meanwhile; run the same command again"


class TestKilled:
    """kill -9 at any step: the next call goes on and comes to the same verdict."""

    @staticmethod
    def steps_of(action: Callable[[], object]) -> int:
        steps = []
        durable.failpoint = lambda step, path: steps.append(path)
        try:
            action()
        finally:
            durable.failpoint = None
        return len(steps)

    @staticmethod
    def kill_at(step: int, action: Callable[[], object]) -> None:
        """Runs the action in a forked child that kills itself before its n-th durable step."""
        pid = os.fork()
        if pid == 0:
            left = iter(range(step))
            durable.failpoint = lambda *_: os.kill(os.getpid(), signal.SIGKILL) if next(left, None) is None else None
            try:
                action()
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

    @pytest.mark.slow
    @pytest.mark.parametrize("keep", [False, True])
    def test_at_every_step_of_a_small_one(self, made: HealingSet, keep: bool) -> None:
        def action() -> Rebuild:
            return rebuild(made.folder("selection"), made.run, keep=keep)

        action()  # makes the folder of rebuilds, once for all
        for step in range(self.steps_of(action)):
            self.kill_at(step, action)
            done = action()

            assert done.is_identical, step
            assert rebuilds_of(made.root) == ([done.kept.name] if done.kept else []), step
            assert (done.kept is not None) == keep

    @pytest.mark.parametrize("seed", range(5))
    def test_at_seeded_steps_of_a_whole_chain(self, made: HealingSet, seed: int) -> None:
        def action() -> Rebuild:
            return rebuild(made.folder("dataset"), made.run, with_upstream=True)

        before = contents_of(made.root)
        steps = self.steps_of(action)
        for step in sorted(random.Random(seed).sample(range(steps // 2), 2), reverse=True):
            self.kill_at(step, action)
        done = action()

        assert done.is_identical
        assert rebuilds_of(made.root) == []
        assert contents_of(made.root) == before

    def test_finished_shards_and_artifacts_are_not_made_again(self, made: HealingSet) -> None:
        def action() -> Rebuild:
            return rebuild(made.folder("dataset"), made.run, with_upstream=True)

        steps = self.steps_of(action)
        self.kill_at(steps * 2 // 3, action)

        assert self.steps_of(action) < steps * 0.6

    def test_another_program_starts_clean(self, made: HealingSet) -> None:
        def action() -> Rebuild:
            return rebuild(made.folder("dataset"), made.run, with_upstream=True)

        steps = self.steps_of(action)
        self.kill_at(steps * 2 // 3, action)
        ticket = next((made.root / "rebuilds").glob("*.unfinished/rebuild.json"))
        then = json.loads(ticket.read_bytes())
        then["versions"]["zstandard"] = "0.1"
        ticket.write_text(json.dumps(then, sort_keys=True))

        assert self.steps_of(action) >= steps
