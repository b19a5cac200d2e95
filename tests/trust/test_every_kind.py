"""Every kind of every system is intact, built once, and rebuilt identically."""

import contextlib
import functools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from crash_points import list_steps
from healing_set import stat_contents, verify
from manifest_page import read_lines, run_verifier
from object_server import Fault, ObjectServer, serving
from sealed_roots import build_all, open_recipes

from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.start_method import StartMethod
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.pull import find_ref, pull_all
from pipeline_assets.trust.push import push
from pipeline_assets.trust.rebuild import rebuild

Targets = dict[str, list[Target]]


# Kinds that are rebuilt always, one of each system; the others under `slow`.
REBUILT = {
    "healing/megatron_split",
    "stage_a/filtered",
    "nemotron/normalized_shards",
    "stage2/token_shards",
    "parallel_text/token_cache",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Targets]]:
    """Build every artifact of the systems of the crash cases; targets by kind."""
    pytest.importorskip("torch", reason="torch is not installed")
    with open_recipes() as (sources, recipes):
        run = Run(tmp_path_factory.mktemp("kinds"), RunSettings(), sources.offline, publishes=False)
        targets: Targets = {}
        for recipe in recipes.values():
            for target in build_all(recipe, run):
                targets.setdefault(target.kind.name, []).append(target)
        yield run, targets


def test_every_kind_is_built_by_its_named_stage(built: tuple[Run, Targets]) -> None:
    _, targets = built

    missing = sorted(SYSTEMS.kinds.keys() - targets.keys())
    assert not missing, f"request {missing} in the recipe of their system that `open_sources` of crash_cases.py writes"
    assert targets.keys() == SYSTEMS.kinds.keys()
    assert {target.stage for name in SYSTEMS.kinds for target in targets[name]} == {
        kind.stage for kind in SYSTEMS.kinds.values()
    }


@pytest.mark.parametrize("kind", SYSTEMS.kinds)
def test_a_built_artifact_is_current_and_a_second_build_does_nothing(built: tuple[Run, Targets], kind: str) -> None:
    run, targets = built

    for target in targets[kind]:
        digest = open_artifact(run.root / target.folder).manifest.digest
        assert target.state(run.root) == ("current", digest)
        assert list_steps(lambda target=target: SYSTEMS.kinds[kind].build(target, run)) == []


@pytest.mark.parametrize("kind", SYSTEMS.kinds)
def test_every_artifact_is_intact_with_its_upstream_and_content(built: tuple[Run, Targets], kind: str) -> None:
    run, targets = built

    for target in targets[kind]:
        result = verify(run.root / target.folder, run.root, content=True)
        assert (result.verdict, result.unread_content_count) == ("intact", 0)


def test_a_verifier_written_from_the_page_alone_finds_every_kind_intact(built: tuple[Run, Targets]) -> None:
    run, targets = built

    result = run_verifier(run.root)

    assert result.returncode == 0, result.stdout
    assert read_lines(result.stdout) == {str(target.folder): [] for kind in targets for target in targets[kind]}


@pytest.mark.parametrize(
    "kind", [kind if kind in REBUILT else pytest.param(kind, marks=pytest.mark.slow) for kind in SYSTEMS.kinds]
)
def test_a_rebuild_with_other_settings_is_identical_and_leaves_no_file(built: tuple[Run, Targets], kind: str) -> None:
    run, targets = built
    # Polars ran in this process in earlier tests, so a forked worker of pools would wait for threads that it lacks.
    start_method: StartMethod = "spawn" if kind == "nemotron/candidate_pools" else "forkserver"
    rebuild_run = replace(run, settings=RunSettings(2, start_method, zstd_level=19, fetch_threads=1))
    before = stat_contents(run.root)

    for target in targets[kind]:
        result = rebuild(run.root / target.folder, rebuild_run, SYSTEMS.kinds)

        assert (result.is_identical, result.kept_folder) == (True, None)
        assert all(outcome.is_sealed_intact for outcome in result.outcomes)
    assert stat_contents(run.root) == before
    assert list((run.root / "rebuilds").iterdir()) == []


@pytest.fixture(scope="module")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with pytest.MonkeyPatch.context() as variables, serving(tmp_path_factory.mktemp("gcs"), variables) as server:
        yield server


@pytest.fixture(scope="module")
def copy_root(built: tuple[Run, Targets], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new data root for copies; a later `built` has files of other times."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SYSTEMS.kinds)
def test_an_artifact_pushed_and_pulled_under_faults_is_current_in_another_root(
    built: tuple[Run, Targets], kind: str, object_store: ObjectServer, copy_root: Path
) -> None:
    """Push from two threads with lost responses; pull through faults, then again."""
    run, targets = built
    store, rng = ObjectStore.open("s3://bucket/kinds"), random.Random(kind)

    for target in targets[kind]:
        folder = run.root / target.folder
        object_store.faults = [Fault("lost answer", "PUT", after=rng.randrange(9)), Fault("409", "PUT", "refs")]
        send = functools.partial(push, folder, run.root, store, with_upstream=True, log_every_s=3600.0)
        with ThreadPoolExecutor(2) as pool:
            first, second = (sending.result() for sending in [pool.submit(send), pool.submit(send)])
        assert first.ref.artifacts[0].digest == second.ref.artifacts[0].digest
        object_store.faults = [Fault("cut", "GET", "objects"), Fault("flip", "GET", after=rng.randrange(4))]
        with contextlib.suppress(InputError):
            pull_all(store, first.ref, copy_root / target.folder, copy_root, False, 3600.0)
        object_store.faults = []
        pull_all(store, find_ref(store, str(target.folder), None), copy_root / target.folder, copy_root, False, 3600.0)

        assert target.state(copy_root) == target.state(run.root)
        result = verify(copy_root / target.folder, copy_root, content=True)
        assert (result.verdict.partition(" ")[0], result.unread_content_count) == ("intact", 0)


def test_files_with_equal_content_in_other_bytes_are_reported_as_identical(built: tuple[Run, Targets]) -> None:
    run, targets = built
    [snapshot] = targets["healing/fineweb_edu_snapshot"]

    result = rebuild(run.root / snapshot.folder, replace(run, settings=RunSettings(zstd_level=19)), SYSTEMS.kinds)

    assert result.is_identical
    assert len(result.outcomes[-1].differently_stored_paths) >= 3
