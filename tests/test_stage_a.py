"""Stage A as a whole: one recipe over all made sources, to the same digests whatever runs it, and what they hold."""

import os
import shutil
from pathlib import Path

import dagster as dg
import pytest
from command_results import Corpusmill
from materialized import NOWHERE, Materialized, has_materialized, resources
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
    """A data root with the sources, the recipe, and all that it reads of the hub in its cache. Tests only read it."""
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
def test_other_workers_come_to_the_same_digests(workers: int, built: dict[str, Artifact], root: Path) -> None:
    found = build(recipe_in(root), root, HubFiles(root / "hub_cache", endpoint=NOWHERE), RunSettings(workers))

    assert digests(found) == digests(built)


def test_the_assets_come_to_the_same_digests_and_their_checks_hold(built: dict[str, Artifact], root: Path) -> None:
    run = Materialized(root, NOWHERE)
    targets = recipe_in(root).targets()
    of_all = [target.kind.short_name for target in targets if target.partition is None]

    def needs_all(target: Target) -> bool:
        return any(one.partition is None or needs_all(one) for one in target.upstream)

    def steps(source: str, *, late: bool) -> list[str]:
        own = (target for target in targets if target.partition == source)
        return [target.kind.short_name for target in own if needs_all(target) is late]

    too_early = run("mixed", *of_all)
    quiz = run("mixed", "evaluation", partition="quiz")
    by_source = [run("mixed", *steps(source, late=False), partition=source) for source in SOURCES]
    in_time = run("mixed", *of_all)
    late = [run("mixed", *wanted, partition=source) for source in SOURCES if (wanted := steps(source, late=True))]
    results = (quiz, *by_source, in_time, *late)

    versions = {}
    for result in results:
        for event in (made.materialization for made in result.get_asset_materialization_events()):
            system, recipe, artifact = event.asset_key.path
            assert recipe == "mixed"
            role = "/".join([system, artifact, *([event.partition] if event.partition else [])])
            versions[role] = event.tags["dagster/data_version"]
    assert not has_materialized(too_early)
    assert versions == digests(built)
    checks = [check for result in results for check in result.get_asset_check_evaluations()]
    assert len(checks) == sum(len(target.kind.checks) for target in targets)
    # Of 660 tokens one thread is half a share.
    assert [check.check_name for check in checks if not check.passed] == ["shares_reached"]


def test_checks_are_asked_again_without_a_build_of_all_that_is_there(built_root: Path) -> None:
    run = Materialized(built_root, NOWHERE)
    key = dg.AssetKey(["stage_a", "mixed", "filtered"])
    filtered = next(asset for asset in run.definitions.assets or [] if asset.key == key)

    result = dg.materialize(
        [filtered],
        selection=dg.AssetSelection.checks_for_assets(filtered),
        resources=resources(),
    )

    assert not has_materialized(result)
    said = {check.check_name: check.description for check in result.get_asset_check_evaluations()}
    assert said.keys() == {"files_match_manifest", "ledger_adds_up"}
    assert [part.partition(":")[0] for part in said["ledger_adds_up"].split("; ")] == list(SOURCES)


def test_the_job_of_a_recipe_makes_all_of_it(built: dict[str, Artifact], root: Path) -> None:
    run = Materialized(root, NOWHERE)

    result = run.definitions.resolve_job_def("mixed").execute_in_process(instance=run.instance, resources=resources())

    assert result.success
    assert {target.role: target.state(root)[1] for target in recipe_in(root).targets()} == digests(built)
    shown = run.instance.get_materialized_partitions(dg.AssetKey(["stage_a", "mixed", "filtered"]))
    assert shown == set(SOURCES)


@pytest.mark.slow
def test_every_artifact_can_be_verified_and_rebuilt_from_the_report_up(
    built: dict[str, Artifact], built_root: Path, corpusmill: Corpusmill
) -> None:
    report, options = built_root / "stage_a" / "mixed" / "report" / "mixed", ("--upstream", "--data", built_root)

    verified = corpusmill("verify", report, *options)
    rebuilt = corpusmill("rebuild", report, *options, "--workers", 0, env={"HF_ENDPOINT": NOWHERE})

    assert verified.returncode == 0, verified.stderr
    [made] = [target for target in recipe_in(built_root).targets() if target.role == "stage_a/report"]
    above = upstream_first([made])
    assert f"\n{verified.stdout}".count("\nintact  stage_a/") == len(above)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert rebuilt.stdout.count("identical   ") == len(above)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_source_changed_since_it_was_hashed_is_named_and_nothing_is_sealed(notes_root: Path, workers: int) -> None:
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
