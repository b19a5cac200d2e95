"""Stage A as a whole: one recipe over all synthetic sources has fixed digests."""

import os
import shutil
from pathlib import Path

import dagster as dg
import pytest
from command_results import Corpusmill
from materialized import NOWHERE, QUIET, Materialized, execute_some_steps, has_materialized, resources
from stage_a_build import build, digests, step
from stage_a_sources import SOURCES, with_all_steps, write_hub, write_recipe, write_sources

from pipeline_assets.build.recipe import upstream_first
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.systems.stage_a import StageARecipe


@pytest.fixture(scope="module")
def sources_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a root with every hub file of the recipe in its cache; tests only read it."""
    root = tmp_path_factory.mktemp("stage_a")
    write_sources(root)
    write_hub(root / "hub")
    with LoopbackHub(root / "hub") as hub:
        write_recipe(root, hub.commits()["maker/pages"], with_all_steps)
        build(recipe_in(root), root, HubFiles(root / "hub_cache", endpoint=hub.endpoint))
    return root


@pytest.fixture(scope="module")
def built(sources_root: Path) -> dict[str, Artifact]:
    return build(recipe_in(sources_root), sources_root)


@pytest.fixture
def root(sources_root: Path, tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("stage_a", "rebuilds")
    return Path(shutil.copytree(sources_root, tmp_path / "data", ignore=ignored))


@pytest.fixture
def built_root(sources_root: Path, built: dict[str, Artifact], tmp_path: Path) -> Path:
    return Path(shutil.copytree(sources_root, tmp_path / "data"))


def recipe_in(root: Path) -> StageARecipe:
    return StageARecipe.read(root / "recipes" / "mixed.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_give_the_same_digests(workers: int, built: dict[str, Artifact], root: Path) -> None:
    rebuilt = build(recipe_in(root), root, HubFiles(root / "hub_cache", endpoint=NOWHERE), RunSettings(workers))

    assert digests(rebuilt) == digests(built)


def test_assets_have_the_same_digests_and_pass_their_checks(built: dict[str, Artifact], root: Path) -> None:
    run = Materialized(root, NOWHERE)
    targets = recipe_in(root).targets()
    joint = [target.kind.short_name for target in targets if target.partition is None]

    def needs_joint(target: Target) -> bool:
        return any(upstream.partition is None or needs_joint(upstream) for upstream in target.upstream)

    def steps(source: str, *, late: bool) -> list[str]:
        source_targets = (target for target in targets if target.partition == source)
        return [target.kind.short_name for target in source_targets if needs_joint(target) is late]

    with pytest.raises(dg.Failure, match="deduplicated/mixed: inputs are missing or stale: "):
        run("mixed", *joint)
    quiz = run("mixed", "evaluation", partition="quiz")
    by_source = [run("mixed", *steps(source, late=False), partition=source) for source in SOURCES]
    in_time = run("mixed", *joint)
    late = [run("mixed", *kinds, partition=source) for source in SOURCES if (kinds := steps(source, late=True))]
    results = (quiz, *by_source, in_time, *late)

    versions = {}
    for result in results:
        for event in (event.materialization for event in result.get_asset_materialization_events()):
            system, recipe, artifact = event.asset_key.path
            assert recipe == "mixed"
            role = "/".join([system, artifact, *([event.partition] if event.partition else [])])
            versions[role] = event.tags["dagster/data_version"]
    assert versions == digests(built)
    checks = [check for result in results for check in result.get_asset_check_evaluations()]
    assert len(checks) == sum(len(target.kind.checks) for target in targets)
    # One thread has half a share of the 660 tokens.
    assert [check.check_name for check in checks if not check.passed] == ["shares_reached"]


def test_a_run_fails_if_it_builds_no_input_that_is_stale(built_root: Path) -> None:
    run, notes = Materialized(built_root, NOWHERE), next((built_root / "sources" / "notes").rglob("*.jsonl*"))
    notes.write_bytes(notes.read_bytes())  # rewritten: `raw` and everything downstream of it is stale

    for artifacts, partition in ((["filtered"], "notes"), (["deduplicated", "packed"], None)):
        with pytest.raises(dg.Failure, match="inputs are missing or stale: stage_a/raw/notes; materialize them first"):
            run("mixed", *artifacts, partition=partition)
    run("mixed", "raw", partition="notes")
    run("mixed", "filtered", partition="notes")
    shutil.rmtree(step(built_root, "evaluation", "quiz"))
    with pytest.raises(dg.Failure, match="inputs are missing or stale: stage_a/evaluation/quiz; "):
        run("mixed", "deduplicated", "decontaminated")


def test_a_run_executed_again_from_its_failure_fails_if_an_earlier_step_is_stale(
    built_root: Path, instance: dg.DagsterInstance
) -> None:
    notes = next((built_root / "sources" / "notes").rglob("*.jsonl*"))
    notes.write_bytes(notes.read_bytes())  # rewritten, as after a mended mistake: `raw` is stale

    for steps in (["normalized", "filtered"], ["deduplicated", "packed"]):
        failed = execute_some_steps(built_root, instance, "mixed", "notes", steps)
        assert failed.status is dg.DagsterRunStatus.FAILURE
        first, *_ = instance.all_logs(failed.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert "inputs are missing or stale: stage_a/raw/notes; materialize them first" in str(first.dagster_event)
    succeeded = execute_some_steps(built_root, instance, "mixed", "notes", ["raw", "normalized", "filtered"])
    assert succeeded.status is dg.DagsterRunStatus.SUCCESS


def test_checks_run_again_without_a_build(built_root: Path) -> None:
    run = Materialized(built_root, NOWHERE)
    key = dg.AssetKey(["stage_a", "mixed", "filtered"])
    filtered = next(asset for asset in run.definitions.assets or [] if asset.key == key)

    result = dg.materialize(
        [filtered],
        selection=dg.AssetSelection.checks_for_assets(filtered),
        resources=resources(),
    )

    assert not has_materialized(result)
    descriptions = {check.check_name: check.description for check in result.get_asset_check_evaluations()}
    assert descriptions.keys() == {"files_match_manifest", "ledger_adds_up"}
    assert [part.partition(":")[0] for part in descriptions["ledger_adds_up"].split("; ")] == list(SOURCES)


def test_a_check_runs_alone(notes_root: Path) -> None:
    run = Materialized(notes_root, NOWHERE)
    filtered = dg.AssetKey(["stage_a", "mixed", "filtered"])
    alone = dg.AssetSelection.checks(dg.AssetCheckKey(filtered, "ledger_adds_up"))
    assets = [asset for asset in run.definitions.assets or [] if isinstance(asset, dg.AssetsDefinition)]

    result = dg.materialize(assets, selection=alone, resources=resources(), run_config=QUIET)

    assert [check.check_name for check in result.get_asset_check_evaluations()] == ["ledger_adds_up"]


def test_run_of_an_asset_says_how_to_repair_a_damaged_input(notes_root: Path) -> None:
    run, folder = Materialized(notes_root, NOWHERE), step(notes_root, "normalized", "notes")
    (folder / "manifest.json").chmod(0o644)
    (folder / "manifest.json").write_text("{")
    shutil.rmtree(step(notes_root, "filtered", "notes"))

    with pytest.raises(dg.Failure) as failure:
        run("mixed", "filtered", partition="notes", replace=True)
    repaired = [run("mixed", artifact, partition="notes", replace=True) for artifact in ("normalized", "filtered")]

    assert failure.value.description is not None
    assert failure.value.description.startswith(f"{folder}: this input is damaged ({folder / 'manifest.json'}: not a ")
    advice = "; materialize it with `replace: true` of the resource `store` in the launchpad"
    assert failure.value.description.endswith(advice)
    assert all(map(has_materialized, repaired))


def test_the_job_of_a_recipe_builds_every_artifact(built: dict[str, Artifact], root: Path) -> None:
    run = Materialized(root, NOWHERE)

    result = run.definitions.resolve_job_def("mixed").execute_in_process(instance=run.instance, resources=resources())

    assert result.success
    assert {target.role: target.state(root)[1] for target in recipe_in(root).targets()} == digests(built)
    shown = run.instance.get_materialized_partitions(dg.AssetKey(["stage_a", "mixed", "filtered"]))
    assert shown == set(SOURCES)


@pytest.mark.slow
def test_every_artifact_upstream_of_the_report_is_verified_and_rebuilt(
    built: dict[str, Artifact], built_root: Path, corpusmill: Corpusmill
) -> None:
    report, options = built_root / "stage_a" / "mixed" / "report" / "mixed", ("--upstream", "--data", built_root)

    verified = corpusmill("verify", report, *options)
    rebuilt = corpusmill("rebuild", report, *options, "--workers", 0, env={"HF_ENDPOINT": NOWHERE})

    assert verified.returncode == 0, verified.stderr
    [target] = [target for target in recipe_in(built_root).targets() if target.role == "stage_a/report"]
    chain = upstream_first([target])
    assert f"\n{verified.stdout}".count("\nintact  stage_a/") == len(chain)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert rebuilt.stdout.count("identical   ") == len(chain)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_source_changed_after_its_hash_is_named_and_nothing_is_sealed(notes_root: Path, workers: int) -> None:
    recipe = StageARecipe.read(notes_root / "recipes" / "mixed.yaml")
    [target] = [target for target in recipe.targets() if target.kind.name == "stage_a/normalized"]
    shutil.rmtree(step(notes_root, "normalized", "notes"))
    source = min(path for path in (notes_root / "sources" / "notes").rglob("*") if path.is_file())
    status, data = source.stat(), bytearray(source.read_bytes())
    data[data.index(b'"text"') + 12] ^= 1
    source.write_bytes(data)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(InputError) as refused:
        target.kind.build(target, Run(notes_root, RunSettings(workers=workers)))

    assert refused.value.where == str(source)
    assert refused.value.fix == (
        "the file changed after it was hashed: restore it, or touch it and run the recipe again"
    )
    assert not step(notes_root, "normalized", "notes").exists()
