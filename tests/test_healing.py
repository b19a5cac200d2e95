"""The healing assets in Dagster, and their splits in a trainer and an oracle."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from answer_faults import Fault, FaultKind
from command_results import Corpusmill, RecipeIn
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.errors import DagsterAssetCheckFailedError
from dagster._core.loader import LoadingContextForTest
from demo_variants import find_snapshot, write_recipe
from faulty_hub import FaultyHub
from forgery import overwrite
from materialized import Materialized, materialization
from real_samples import some

from pipeline_assets import assets
from pipeline_assets.code_location import build_definitions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT
from pipeline_assets.demo.loopback_hub import HUB_FOLDER
from pipeline_assets.sealed_sensor import report_sealed_artifacts
from pipeline_assets.spine.artifact import read_manifest
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.registry import SYSTEMS

SPLITS = ("train", "valid")
NAME = "healing_text_v1"


@dataclass(frozen=True)
class BuiltDemo:
    root: Path
    run: Materialized
    results: dict[str, dg.ExecuteInProcessResult]
    too_early: str


@pytest.fixture(scope="module")
def built(demo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> BuiltDemo:
    """Build the demo's recipe, also the dataset too early; tests only read it."""
    root = tmp_path_factory.mktemp("made")
    shutil.copytree(demo_root / "recipes", root / "recipes")
    with FaultyHub(demo_root / HUB_FOLDER) as hub:
        run = Materialized(root, hub.endpoint)
        results = {"first": run(NAME, "fineweb_edu_snapshot", "healing_text_manifest")}
        results["train"] = run(NAME, "megatron_split", "megatron_dataset", partition="train")
        with pytest.raises(dg.Failure) as too_early:
            run(NAME, "megatron_dataset")
        results["valid"] = run(NAME, "megatron_split", partition="valid")
        results["dataset"] = run(NAME, "megatron_dataset")
    return BuiltDemo(root, run, results, str(too_early.value.description))


@pytest.fixture
def run(root: Path, demo_hub: FaultyHub) -> Materialized:
    return Materialized(root, demo_hub.endpoint)


def test_a_materialization_shows_digest_ledger_size_and_preview(built: BuiltDemo) -> None:
    event = materialization(built.results["first"], "fineweb_edu_snapshot")

    shown = {name: value.value for name, value in event.metadata.items()}
    assert shown["digest"] == json.loads(Path(shown["manifest"]).read_text())["digest"]
    assert Path(shown["path"]) == find_snapshot(built.root)
    assert (shown["documents"], shown["dagster/row_count"], shown["fetched_mb"]) == (882, 882, 0.169)
    assert "| dropped: int_score \\>= 3 |" in shown["ledger"]
    assert shown["preview"].count("\n") == 6
    assert shown["built"] is True
    measured = ("mb_per_second", "peak_disk_mb", "peak_memory_mb", "fetch_seconds", "build_seconds")
    assert min(shown[name] for name in measured) > 0
    assert "\n| bytes_fetched | 169,043 | excluding cached bytes | 169,043 |\n" in shown["planned"]


def test_the_data_version_of_an_unchanged_rebuild_is_the_same_digest(built: BuiltDemo) -> None:
    second = built.run(NAME, "fineweb_edu_snapshot", "healing_text_manifest")

    versions = [
        materialization(result, artifact).tags["dagster/data_version"]
        for result in (built.results["first"], second)
        for artifact in ("fineweb_edu_snapshot", "healing_text_manifest")
    ]
    assert versions[:2] == versions[2:]
    assert materialization(second, "fineweb_edu_snapshot").metadata["built"].value is False


def test_the_dataset_waits_for_both_splits_and_shows_their_size(built: BuiltDemo) -> None:
    events = built.results["train"].get_asset_materialization_events()
    assert [event.asset_key.path[-1] for event in events if event.asset_key] == ["megatron_split"]
    log = built.run.instance.all_logs(built.results["train"].run_id)
    assert "waiting for inputs: healing/megatron_split/valid" in [entry.user_message for entry in log]
    assert built.too_early == (
        f"{built.root / 'megatron' / NAME}: inputs are missing or stale: healing/megatron_split/valid; "
        "materialize them first, or run the job of the recipe"
    )
    shown = materialization(built.results["dataset"], "megatron_dataset").metadata["bytes"].value
    files = (built.root / "megatron" / NAME).glob("*/*")
    assert shown == sum(path.stat().st_size for path in files if path.name != "manifest.json")


def test_a_short_split_fails_its_check_and_blocks_the_dataset(demo_hub: FaultyHub, root: Path) -> None:
    greedy = SYSTEMS.read_recipe(write_recipe(root, {"megatron": {"token_budget": 10**7}}, "greedy"))
    run = Materialized(root, demo_hub.endpoint)
    run("greedy", "healing_text_manifest")

    for split in SPLITS:
        with pytest.raises(DagsterAssetCheckFailedError, match="megatron_split: token_budget_met"):
            run("greedy", "megatron_split", partition=split)
        with pytest.raises(dg.Failure) as refused:  # even while the other split is missing
            run("greedy", "megatron_dataset")

    train = greedy.megatron_split("train")
    results = train.check_results(root, read_manifest(root / train.folder))
    assert [result.name for result in results if not result.passed] == ["token_budget_met"]
    assert "the corpus ends before the budget" in str(refused.value.description)
    assert str(refused.value.description).startswith(f"{root / train.folder}: token_budget_met failed: ")


def test_a_damaged_upstream_fails_with_one_line_unless_the_artifact_is_current(run: Materialized, root: Path) -> None:
    shard = next(root.rglob("shards/*.jsonl.zst"))
    overwrite(shard, shard.read_bytes()[:-1])
    assert run(NAME, "healing_text_manifest").success

    shutil.rmtree(root / "selections")
    with pytest.raises(dg.Failure) as failure:
        run(NAME, "healing_text_manifest")

    assert str(failure.value.description).startswith(f"{shard.parents[1]}: this input is damaged ({shard}: has ")
    assert "materialize it with `replace: true`" in str(failure.value.description)


def test_builds_keep_a_copy_of_the_manifests_for_git(built: BuiltDemo) -> None:
    copies = {path.name: path.read_bytes() for path in (built.root / "manifests").iterdir()}

    recipe = SYSTEMS.read_recipe(built.root / "recipes" / f"{NAME}.yaml")
    assert copies == {
        target.copy_name: (built.root / target.folder / "manifest.json").read_bytes() for target in recipe.targets()
    }


def test_a_run_of_a_partition_builds_assets_without_partitions_too(built: BuiltDemo) -> None:
    both = built.run(NAME, "megatron_split", "megatron_dataset", partition="valid")
    with pytest.raises(dg.Failure) as failure:
        built.run(NAME, "megatron_split")

    assert materialization(both, "megatron_split").partition == "valid"
    assert materialization(both, "megatron_dataset").partition is None
    checks = [str(check.description) for check in built.results["valid"].get_asset_check_evaluations()]
    assert [description.startswith("valid: ") for description in checks] == [True] * 5
    assert failure.value.description == "choose a partition of recipe healing_text_v1: train, valid"


def test_a_dataset_is_shown_as_stale_if_the_manifest_of_a_split_is_damaged(root: Path) -> None:
    definitions, valid = build_definitions(root), root / "megatron" / NAME / "valid"
    with dg.DagsterInstance.ephemeral() as instance:
        report_sealed_artifacts(SYSTEMS.load_recipes(root)[0], root, instance)
        overwrite(valid / "manifest.json", b"{")
        report_sealed_artifacts(SYSTEMS.load_recipes(root)[0], root, instance)

        keys = [dg.AssetKey(["healing", NAME, artifact]) for artifact in ("megatron_split", "megatron_dataset")]
        events = [instance.get_latest_materialization_event(key) for key in keys]
        graph = definitions.resolve_asset_graph()
        status = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance)).get_status(keys[1])

    run = "a run with `replace: true` of the resource `store` in the launchpad builds it again."
    assert [event.asset_materialization.description for event in events if event and event.asset_materialization] == [
        f"The artifact is damaged; {run}",
        f"The artifact is stale; {run}",
    ]
    assert status.value == "STALE"


def test_a_damaged_artifact_is_rebuilt_only_with_replace(run: Materialized, root: Path) -> None:
    shard = next(root.rglob("shards/*.jsonl.zst"))
    digest = read_manifest(shard.parents[1]).digest
    shard.unlink()

    with pytest.raises(dg.Failure) as failure:
        run(NAME, "fineweb_edu_snapshot")
    rebuilt = run(NAME, "fineweb_edu_snapshot", replace=True)

    assert failure.value.description == (
        f"{shard.parents[1]}: the artifact is damaged ({shard}: the file is missing); "
        "run with `replace: true` of the resource `store` in the launchpad to build it again"
    )
    assert materialization(rebuilt, "fineweb_edu_snapshot").metadata["digest"].value == digest
    assert shard.exists()


@pytest.fixture(params=SPLITS)
def split(request: pytest.FixtureRequest, demo_root: Path) -> Path:
    return demo_root / "megatron" / "healing_text_v1" / request.param


def read_documents(split: Path) -> Iterator[tuple[dict[str, object], np.ndarray]]:
    rows = pq.read_table(split / "documents.parquet").to_pylist()
    tokens = np.fromfile(split / "tokens.bin", np.int32)
    ends = np.cumsum([row["tokens"] for row in rows])
    return zip(rows, np.split(tokens, ends[:-1]), strict=True)


def test_megatron_core_reads_splits(split: Path) -> None:
    indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset", reason="megatron-core is not here")

    dataset = indexed_dataset.IndexedDataset(str(split / "tokens"))

    ours = [tokens for _, tokens in read_documents(split)]
    assert len(dataset) == len(ours)
    assert dataset.document_indices.tolist() == list(range(len(ours) + 1))
    assert all(np.array_equal(dataset[number], tokens) for number, tokens in enumerate(ours))


def test_ids_equal_tiktokens_document_by_document(split: Path, demo_root: Path) -> None:
    texts = {
        (f"shards/{path.name}", row): msgspec.json.decode(line, type=Document)
        for path in find_snapshot(demo_root).glob("shards/*")
        for row, line in enumerate(b"".join(read_line_blocks(path)).splitlines())
    }
    tiktoken = load_encoder(VOCABULARY_SHA256).oracle

    for row, tokens in some(read_documents(split)):
        document = texts[str(row["source_shard"]), int(str(row["row"]))]
        assert document.doc_id == row["doc_id"]
        assert tokens.tolist() == [*tiktoken.encode_ordinary(document.text), END_OF_TEXT]


def test_the_dataset_names_both_digests_the_budget_and_tokens_reached(demo_root: Path) -> None:
    folder = demo_root / "megatron" / NAME

    manifest = require_manifest(folder)

    upstream = {name: folder / name for name in SPLITS} | {None: demo_root / "selections" / NAME}
    members = {entry.get("member"): entry["digest"] for entry in manifest.identity.inputs}
    assert members == {name: require_manifest(path).digest for name, path in upstream.items()}
    assert manifest.identity.tokenizer == {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256}
    assert manifest.identity.decisions["token_budget"] == 244_500
    assert manifest.identity.decisions["tokens_reached"] == sum(manifest.identity.counts["tokens"].values())
    assert "git_sha" in manifest.provenance
    assert len(json.loads((folder / "manifest.json").read_text())["identity"]["recipe_sha256"]) == 64


@pytest.mark.slow
def test_no_secret_is_written_anywhere(
    corpusmill: Corpusmill, demo_hub: FaultyHub, tmp_path: Path, recipe_in: RecipeIn
) -> None:
    secret, root = "hf_thisisasecrettoken", tmp_path / "data"

    result = corpusmill("run", recipe_in(), "--data", root, env={"HF_ENDPOINT": demo_hub.endpoint, "HF_TOKEN": secret})

    assert result.returncode == 0
    assert secret not in result.stdout + result.stderr
    assert not [path for path in root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_only_temporary_failures_are_retried(root: Path, demo_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL_HUB_TRIES", "1")
    monkeypatch.setattr(assets, "_RETRY_POLICY", dg.RetryPolicy(max_retries=1))
    shutil.rmtree(root / "corpora")
    shutil.rmtree(root / "selections")
    with FaultyHub(demo_root / HUB_FOLDER) as hub:
        run = Materialized(root, hub.endpoint)
        hub.inject(Fault(FaultKind.FORBIDDEN))
        with pytest.raises(dg.Failure, match="no read access"):
            run(NAME, "fineweb_edu_snapshot")
        hub.inject(Fault(FaultKind.BUSY))
        result = run(NAME, "fineweb_edu_snapshot")

    assert result.success
    assert [event.event_type_value for event in result.all_node_events].count("STEP_UP_FOR_RETRY") == 1


def test_steps_run_in_the_hub_and_cpu_pools(root: Path) -> None:
    pools = {
        asset.key.path[2]: asset.op.pool
        for asset in build_definitions(root).assets or []
        if isinstance(asset, dg.AssetsDefinition) and asset.key.path[1:-1] == [NAME]
    }

    assert pools == {
        "fineweb_edu_snapshot": "hub",
        "healing_text_manifest": "cpu",
        "megatron_split": "cpu",
        "megatron_dataset": "cpu",
    }
