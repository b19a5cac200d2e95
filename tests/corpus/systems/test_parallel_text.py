"""Parallel text from a hub to tokens: equal pairs in any format, and refusals."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answer_faults import ALWAYS, Fault, FaultKind
from faulty_hub import FaultyHub
from parallel_build import DATASET, INLINE, SIZES, build, contents, from_folder, from_hub, pairs, write_hub, write_set
from real_samples import some
from refusals import refusal

from pipeline_assets.build import drive
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.rows.follow import follow_source
from pipeline_assets.build.rows.row_stores import RowStores, open_rows
from pipeline_assets.build.rows.source_row import HubRow
from pipeline_assets.build.rows.trace import trace_row
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.parallel_text.sample import SAMPLE_FILE, read_sample
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.parallel_text import TOKEN_CACHE, ParallelRecipe, pairs_are_those_of_the_sample
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.plan import plan_recipe
from pipeline_assets.trust.rebuild import rebuild

pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_hub(folder)
    with LoopbackHub(folder) as served:
        yield served


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def files(hub: LoopbackHub, root: Path) -> HubFiles:
    return HubFiles(root / "hub_cache", endpoint=hub.endpoint, tries=2, wait_s=0.01)


@pytest.fixture(scope="module")
def built(hub: LoopbackHub, files: HubFiles, root: Path) -> dict[str, Artifact]:
    return build(from_hub(hub.commits()[DATASET]), root, files)


def read_uids(built: dict[str, Artifact]) -> list[str]:
    return [pair.uid for pair in read_sample(built["parallel_text/sample"].path(SAMPLE_FILE)).pairs]


def test_a_pin_with_a_wrong_hash_is_not_sealed(tmp_path: Path) -> None:
    write_hub(tmp_path / "hub")
    with FaultyHub(tmp_path / "hub") as faulty:
        files = HubFiles(tmp_path / "root" / "hub_cache", endpoint=faulty.endpoint, tries=2, wait_s=0.01)
        content = from_hub(faulty.commits()[DATASET])
        faulty.inject(Fault(FaultKind.WRONG_BYTES, f"/api/datasets/{DATASET}/tree/*", ALWAYS))
        with pytest.raises(InputError, match=r"the hub has [0-9a-f]{64} of \d+ bytes, the listing has sha256:"):
            build(content, tmp_path / "root", files)
        assert not [*(tmp_path / "root").rglob("manifest.json")]

        faulty.inject()
        with pytest.raises(RetryableError, match=r"but the hub has not; run again to fetch the listing"):
            build(content, tmp_path / "root", files)
        assert build(content, tmp_path / "root", files).keys() == {
            "parallel_text/raw",
            "parallel_text/sample",
            "parallel_text/token_cache",
        }


def test_pairs_name_their_source_rows_and_the_ledger_adds_up(built: dict[str, Artifact]) -> None:
    sample = built["parallel_text/sample"]
    identity = sample.manifest.identity

    assert identity.ledger.adds_up
    assert (identity.ledger.rows_in, identity.ledger.out) == (120, 40)
    assert identity.counts["pairs"] == {"train": 32, "val": 4, "test": 4}
    for pair in read_sample(sample.path(SAMPLE_FILE)).pairs:
        split = pair.file.partition("/")[2].partition("-")[0]
        assert pairs(split)[pair.row] == {"fr": pair.src_text, "en": pair.tgt_text}


def test_the_hubs_own_client_reads_the_same_pairs(built: dict[str, Artifact], hub: LoopbackHub, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    commit = hub.commits()[DATASET]
    read = (
        "import datasets, json, sys; "
        "sets = datasets.load_dataset(sys.argv[1], 'fr-en', revision=sys.argv[2], cache_dir=sys.argv[3]); "
        "print(json.dumps({split: list(rows['translation']) for split, rows in sets.items()}))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", read, DATASET, commit, str(tmp_path)],
        env={**os.environ, **hub.client_environment(), "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(completed.stdout)

    for pair in some(read_sample(built["parallel_text/sample"].path(SAMPLE_FILE)).pairs):
        split = pair.file.partition("/")[2].partition("-")[0]
        assert rows[split][pair.row] == {"fr": pair.src_text, "en": pair.tgt_text}
        assert pair.revision == commit


def test_the_folder_and_format_of_files_do_not_matter(built: dict[str, Artifact], tmp_path: Path) -> None:
    for ending in ("parquet", "jsonl"):
        write_set(tmp_path / ending, parquet=ending == "parquet")
        local = build(from_folder(tmp_path / ending, ending), tmp_path / f"root-{ending}")
        assert read_uids(local) == read_uids(built)


def test_splits_are_read_in_the_recipes_order_by_any_pattern_of_their_files(tmp_path: Path) -> None:
    write_set(tmp_path / "set", parquet=False)

    samples = []
    for number, pattern in enumerate(("{split}-0.jsonl", "**/{split}-*.jsonl", "./{split}-0.jsonl")):
        source = {"path": str(tmp_path / "set"), "splits": ["validation", "train"], "files": [pattern]}
        recipe = ParallelRecipe.from_mapping(contents(source), "made")
        samples.append(read_uids(build(recipe, tmp_path / f"root-{number}")))

    assert samples[1] == samples[2] == samples[0]


def test_artifacts_are_rebuilt_bit_for_bit(built: dict[str, Artifact], files: HubFiles, root: Path) -> None:
    for artifact in some(built.values()):
        assert rebuild(artifact.folder, Run(root, INLINE, files), SYSTEMS.kinds).is_identical


def test_a_pair_is_traced_to_its_hub_row_and_back(built: dict[str, Artifact], root: Path) -> None:
    cache = open_rows(built["parallel_text/token_cache"].folder, SYSTEMS.kinds)
    [traced] = trace_row(cache, 7)
    [source] = traced.text.source.rows
    pair = read_sample(built["parallel_text/sample"].path(SAMPLE_FILE)).pairs[7]

    assert isinstance(source, HubRow) and source.dataset == DATASET
    assert (source.path, source.row) == (pair.file, pair.row)
    [followed] = follow_source(RowStores(SYSTEMS.kinds, Lineage(root)), source)
    assert followed.part is not None and followed.part.id == pair.uid
    assert [fate.artifact.manifest.kind for _, fate in followed.downstream] == ["parallel_text/token_cache"]


def test_a_row_that_was_not_drawn_is_reported(built: dict[str, Artifact], root: Path, hub: LoopbackHub) -> None:
    drawn = {(row.file, row.row) for row in read_sample(built["parallel_text/sample"].path(SAMPLE_FILE)).pairs}
    file = "fr-en/train-0.parquet"
    number = next(row for row in range(90) if (file, row) not in drawn)
    source = HubRow(DATASET, hub.commits()[DATASET], file, number)

    [followed] = follow_source(RowStores(SYSTEMS.kinds, Lineage(root)), source)

    summary = "not in the sample: one of not_drawn, too_short, or the file has no such row"
    assert (followed.part, followed.fate.summary) == (None, summary)


def test_the_plan_shows_what_is_fetched(hub: LoopbackHub, tmp_path: Path) -> None:
    run = Run(tmp_path, INLINE, HubFiles(tmp_path / "cache", endpoint=hub.endpoint))
    plan = plan_recipe(artifact_statuses(tmp_path, from_hub(hub.commits()[DATASET]).targets()), run)
    [sample] = [entry for entry in plan.artifacts if entry.status.target.kind.name == "parallel_text/sample"]

    served = (hub.folder / "datasets" / DATASET).glob("fr-en/*.parquet")
    assert sample.figures["bytes_fetched"].value == sum(file.stat().st_size for file in served)


def test_a_cache_with_too_long_pairs_fails_its_check(built: dict[str, Artifact], hub: LoopbackHub, root: Path) -> None:
    content = from_hub(hub.commits()[DATASET]).model_dump(mode="json") | {"encode": {"vocab_size": 500, "seq_len": 8}}
    target, cache = ParallelRecipe.from_mapping(content, "made").target(TOKEN_CACHE.name), built[TOKEN_CACHE.name]

    assert not pairs_are_those_of_the_sample(cache, target, root).passed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": {"files": ["*"]}}, "set `dataset` and `revision`"),
        ({"encode": {"model": "spm.model"}}, "only one of `model` and `model_sha256` is set; set both"),
    ],
)
def test_an_invalid_recipe_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    content = contents({"path": str(tmp_path), "files": ["*"]}) | change
    assert message in refusal(lambda: ParallelRecipe.from_mapping(content, "made"), UsageError)


def test_a_set_without_a_pin_is_refused_with_the_command_that_pins_it(hub: LoopbackHub, tmp_path: Path) -> None:
    [raw, *_] = from_hub("0" * 40).targets()
    run = Run(tmp_path, INLINE, HubFiles(tmp_path / "cache", hub.endpoint))

    assert refusal(lambda: raw.kind.build(raw, run), UsageError) == (
        "maker/pairs: no revision is pinned yet; "
        f"run corpusmill pin maker/pairs --recipe pairs --data {tmp_path}, which writes the commit into the recipe"
    )


def test_every_file_that_a_pattern_matches_is_read_in_the_order_of_splits(tmp_path: Path) -> None:
    for split in SIZES:
        write_set(tmp_path / "set" / split, parquet=False)
    source = {"path": str(tmp_path / "set"), "splits": ["validation", "train"], "files": ["**/{split}-0.jsonl"]}

    built = build(ParallelRecipe.from_mapping(contents(source, duplicates="keep"), "made"), tmp_path)

    assert built["parallel_text/sample"].manifest.identity.ledger.rows_in == 2 * sum(SIZES.values())


def test_a_file_edited_after_hashing_is_not_drawn_from(tmp_path: Path) -> None:
    write_set(tmp_path / "set", parquet=False)
    recipe, run = from_folder(tmp_path / "set", "jsonl"), Run(tmp_path, INLINE, None)
    drive.build(recipe.target("parallel_text/raw"), run)
    file = tmp_path / "set" / "train-0.jsonl"
    file.write_bytes(file.read_bytes().replace(b"ship", b"boat"))

    message = refusal(lambda: drive.build(recipe.target("parallel_text/sample"), run), InputError)
    assert "changed since the files were hashed" in message


def test_training_keys_with_an_external_model_cause_a_warning() -> None:
    model = {"model": "spm.model", "model_sha256": "0" * 64}
    encode = {"vocab_size": 450, "seq_len": 16, **model}

    recipe = ParallelRecipe.from_mapping(contents({"path": "set", "files": ["*"]}) | {"encode": encode}, "pairs.yaml")

    assert list(recipe.warnings()) == ["`encode.vocab_size` is ignored, because `encode.model` is set"]
