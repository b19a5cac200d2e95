"""The healing assets as Dagster runs them, and the splits as a trainer and an oracle read them."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from dagster._core.errors import DagsterAssetCheckFailedError
from materialized import Materialized, has_materialized, materialization

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, VOCABULARY_SHA256, load_encoder
from pipeline_assets.systems.registry import read_recipe
from resources.loopback_hub import LoopbackHub

RecipeIn = Callable[..., Path]
SPLITS = ("train", "valid")


NAME = "healing_text_v1"
Materialize = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def materialize(tmp_path: Path, recipe_in: RecipeIn, hub: LoopbackHub) -> Materialize:
    """Materialises healing assets in a data root of the test's own: `materialize("megatron_split", partition=…)`."""
    recipe_in().rename(_recipes(tmp_path) / f"{NAME}.yaml")
    run = Materialized(tmp_path / "data", hub.endpoint)
    return lambda *artifacts, **options: run(NAME, *artifacts, **options)


def _recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "recipes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_materialisation_shows_digest_ledger_size_and_preview(materialize: Materialize) -> None:
    result = materialize("fineweb_edu_snapshot")

    event = materialization(result, "fineweb_edu_snapshot")
    shown = {name: value.value for name, value in event.metadata.items()}
    assert shown["digest"].startswith("sha256:")
    assert shown["documents"] == shown["dagster/row_count"] == 860
    assert Path(shown["path"]).name == json.loads(Path(shown["manifest"]).read_text())["name"].removeprefix(
        "fineweb_edu_"
    )
    assert "| dropped: int_score \\>= 3 |" in shown["ledger"]
    assert shown["preview"].count("\n") == 6
    assert shown["built"] is True
    assert shown["mb_per_second"] > 0
    assert shown["fetched_mb"] == 0.536
    assert min(shown[name] for name in ("peak_disk_mb", "peak_memory_mb", "fetch_seconds", "build_seconds")) > 0
    assert "\n| bytes_fetched | 535,879 | less what the cache has | 535,879 |\n" in shown["planned"]


def test_the_data_version_is_the_digest_so_that_an_unchanged_rebuild_marks_nothing_stale(
    materialize: Materialize,
) -> None:
    first = materialize("fineweb_edu_snapshot", "healing_text_manifest")

    second = materialize("fineweb_edu_snapshot", "healing_text_manifest")

    versions = [
        materialization(result, artifact).tags["dagster/data_version"]
        for result in (first, second)
        for artifact in ("fineweb_edu_snapshot", "healing_text_manifest")
    ]
    assert versions[:2] == versions[2:]
    assert materialization(second, "fineweb_edu_snapshot").metadata["built"].value is False


def test_the_dataset_waits_until_both_splits_are_there(materialize: Materialize) -> None:
    materialize("fineweb_edu_snapshot", "healing_text_manifest")
    materialize("megatron_split", partition="train")

    too_early = materialize("megatron_dataset")
    materialize("megatron_split", partition="valid")
    in_time = materialize("megatron_dataset")

    assert too_early.success
    assert not has_materialized(too_early)
    assert materialization(in_time, "megatron_dataset")


def test_a_short_split_fails_its_check_and_nothing_is_made_of_it(
    recipe_in: RecipeIn, hub: LoopbackHub, tmp_path: Path
) -> None:
    greedy = recipe_in({"megatron.token_budget": 10**7}, name="greedy").rename(_recipes(tmp_path) / "greedy.yaml")
    run = Materialized(tmp_path / "data", hub.endpoint)
    run("greedy", "fineweb_edu_snapshot", "healing_text_manifest")

    for split in SPLITS:
        with pytest.raises(DagsterAssetCheckFailedError, match="megatron_split: token_budget_met"):
            run("greedy", "megatron_split", partition=split)
    with pytest.raises(dg.Failure) as refused:
        run("greedy", "megatron_dataset")

    train = read_recipe(greedy).megatron_split("train")
    results = train.results(tmp_path / "data", read_manifest(tmp_path / "data" / train.folder))
    assert [one.name for one in results if not one.passed] == ["token_budget_met"]
    assert "the corpus ends before the budget" in str(refused.value.description)
    assert str(refused.value.description).startswith(f"{tmp_path / 'data' / train.folder}: token_budget_met failed: ")


def test_a_damaged_upstream_fails_with_one_line(materialize: Materialize, tmp_path: Path) -> None:
    materialize("fineweb_edu_snapshot")
    shard = next((tmp_path / "data").rglob("shards/*.jsonl.zst"))
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1])

    with pytest.raises(dg.Failure) as failure:
        materialize("healing_text_manifest")

    assert str(failure.value.description).startswith(f"{shard}: has ")
    assert "run `corpusmill verify` on the folder, then rebuild it" in str(failure.value.description)


def test_builds_keep_a_copy_of_the_manifests_for_git(materialize: Materialize, tmp_path: Path) -> None:
    materialize("fineweb_edu_snapshot", "healing_text_manifest")
    for split in SPLITS:
        materialize("megatron_split", partition=split)
    materialize("megatron_dataset")

    copies = {path.name: path.read_bytes() for path in (tmp_path / "data" / "manifests").iterdir()}
    targets = read_recipe(_recipes(tmp_path) / f"{NAME}.yaml").targets()
    revision = read_recipe(_recipes(tmp_path) / f"{NAME}.yaml").snapshot.revision
    assert sorted(copies) == [
        f"fineweb_edu_{revision}.json",
        "healing_text_v1.json",
        "healing_text_v1_megatron.json",
        "healing_text_v1_train.json",
        "healing_text_v1_valid.json",
    ]
    assert copies == {
        target.export_as: (tmp_path / "data" / target.folder / "manifest.json").read_bytes() for target in targets
    }


def test_a_split_without_a_partition_asks_for_one(materialize: Materialize) -> None:
    with pytest.raises(dg.Failure) as failure:
        materialize("megatron_split")

    assert failure.value.description == "choose a partition of recipe healing_text_v1: train, valid"


def test_a_setting_out_of_range_fails_with_one_line(materialize: Materialize, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL_ZSTD_LEVEL", "99")

    with pytest.raises(dg.Failure, match=r"CORPUSMILL_ZSTD_LEVEL: it is '99'; set a whole number from 1 to 22$"):
        materialize("fineweb_edu_snapshot")


def test_a_damaged_artifact_is_built_again_with_replace_alone(materialize: Materialize, tmp_path: Path) -> None:
    built = materialize("fineweb_edu_snapshot")
    shard = next((tmp_path / "data").rglob("shards/*.jsonl.zst"))
    shard.unlink()

    with pytest.raises(dg.Failure) as failure:
        materialize("fineweb_edu_snapshot")
    again = materialize("fineweb_edu_snapshot", replace=True)

    assert failure.value.description == (
        f"{shard.parents[1]}: it is damaged ({shard}: the file is missing); run with --replace to build it again"
    )
    digests = [materialization(result, "fineweb_edu_snapshot").metadata["digest"].value for result in (built, again)]
    assert digests[0] == digests[1]
    assert shard.exists()


def test_the_size_shown_of_a_dataset_is_that_of_its_splits(materialize: Materialize, tmp_path: Path) -> None:
    materialize("fineweb_edu_snapshot", "healing_text_manifest")
    for split in SPLITS:
        materialize("megatron_split", partition=split)

    result = materialize("megatron_dataset")

    shown = materialization(result, "megatron_dataset").metadata["bytes"].value
    files = (tmp_path / "data" / "megatron" / "healing_text_v1").glob("*/*")
    assert shown == sum(path.stat().st_size for path in files if path.name != "manifest.json")


def test_what_is_checked_of_a_split_says_which_one(materialize: Materialize) -> None:
    materialize("fineweb_edu_snapshot", "healing_text_manifest")

    result = materialize("megatron_split", partition="valid")

    checks = result.get_asset_check_evaluations()
    assert len(checks) == 5
    assert all((evaluation.description or "").startswith("valid: ") for evaluation in checks)


class TestSplits:
    """The demo's splits, read from outside."""

    @pytest.fixture(params=SPLITS)
    def split(self, request: pytest.FixtureRequest, demo_root: Path) -> Path:
        return demo_root / "megatron" / "healing_text_v1" / request.param

    @pytest.fixture
    def texts(self, demo_root: Path) -> dict[tuple[str, int], Document]:
        """Every document of the snapshot by shard and row."""
        folder = next(path for path in (demo_root / "corpora" / "fineweb_edu").iterdir() if path.is_dir())
        return {
            (path.relative_to(folder).as_posix(), row): msgspec.json.decode(line, type=Document)
            for path in folder.glob("shards/*")
            for row, line in enumerate(b"".join(read_line_blocks(path)).splitlines())
        }

    def documents(self, split: Path) -> Iterator[tuple[dict[str, object], np.ndarray]]:
        rows = pq.read_table(split / "documents.parquet").to_pylist()
        tokens = np.fromfile(split / "tokens.bin", np.int32)
        ends = np.cumsum([row["tokens"] for row in rows])
        return zip(rows, np.split(tokens, ends[:-1]), strict=True)

    def test_megatron_core_reads_them(self, split: Path) -> None:
        indexed_dataset = pytest.importorskip(
            "megatron.core.datasets.indexed_dataset", reason="megatron-core is not here"
        )

        dataset = indexed_dataset.IndexedDataset(str(split / "tokens"))

        ours = [tokens for _, tokens in self.documents(split)]
        assert len(dataset) == len(ours)
        assert dataset.document_indices.tolist() == list(range(len(ours) + 1))
        assert all(np.array_equal(dataset[number], tokens) for number, tokens in enumerate(ours))

    def test_ids_equal_tiktokens_document_by_document(
        self, split: Path, texts: dict[tuple[str, int], Document]
    ) -> None:
        tiktoken = load_encoder(VOCABULARY_SHA256).oracle

        for row, tokens in self.documents(split):
            document = texts[str(row["source_shard"]), int(str(row["row"]))]
            assert document.doc_id == row["doc_id"]
            assert tokens.tolist() == [*tiktoken.encode_ordinary(document.text), END_OF_TEXT]

    def test_each_document_names_the_row_of_the_hub_file_it_came_from(
        self, split: Path, texts: dict[tuple[str, int], Document], demo_root: Path
    ) -> None:
        hub = demo_root / "hub" / "datasets" / "HuggingFaceFW" / "fineweb-edu"
        files = {path.relative_to(hub).as_posix(): pq.read_table(path).to_pylist() for path in hub.glob("data/*/*")}

        for row, _ in self.documents(split):
            document = texts[str(row["source_shard"]), int(str(row["row"]))]
            source = files[document.meta["source_file"]][document.meta["source_row"]]
            assert source["id"] == document.doc_id
            assert source["text"].replace("\0", "") == document.text

    def test_the_dataset_names_both_digests_the_budget_and_what_was_reached(self, demo_root: Path) -> None:
        folder = demo_root / "megatron" / "healing_text_v1"

        manifest = read_manifest(folder)

        assert manifest is not None
        members = {entry.get("member"): entry["digest"] for entry in manifest.identity.inputs}
        for name in SPLITS:
            split = read_manifest(folder / name)
            assert split is not None and members[name] == split.digest
        selection = read_manifest(demo_root / "selections" / "healing_text_v1")
        assert selection is not None and members[None] == selection.digest
        assert manifest.identity.tokenizer == {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256}
        assert manifest.identity.decisions["token_budget"] == 247_000
        assert manifest.identity.decisions["tokens_reached"] == sum(manifest.identity.counts["tokens"].values())
        assert "git_sha" in manifest.provenance
        assert len(json.loads((folder / "manifest.json").read_text())["identity"]["recipe_sha256"]) == 64


@pytest.mark.slow
def test_no_secret_is_written_anywhere(
    corpusmill: Callable[..., subprocess.CompletedProcess[str]], hub: LoopbackHub, tmp_path: Path, recipe_in: RecipeIn
) -> None:
    secret, root = "hf_thisisasecrettoken", tmp_path / "data"

    result = corpusmill("run", recipe_in(), "--data", root, env={"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": secret})

    assert result.returncode == 0
    assert secret not in result.stdout + result.stderr
    assert not [path for path in root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
