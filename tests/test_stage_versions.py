"""Golden digests: what a stage makes of a fixed input may not change without a new version of the stage."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from nemotron_hub import write_dataset
from stage_a_build import build, only, recipe_with
from stage_a_sources import SITES, with_decontamination, with_dedup, with_pack, write_hub, write_sources

from pipeline_assets.corpus.corpus_report import REPORT_STAGE
from pipeline_assets.corpus.decontamination.evidence import DECONTAMINATION_STAGE
from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, SIGNATURES_STAGE
from pipeline_assets.corpus.filters.dropped import FILTER_STAGE
from pipeline_assets.corpus.megatron_split import DATASET_STAGE, SPLIT_STAGE
from pipeline_assets.corpus.nemotron.inventory import COVERAGE_STAGE, INVENTORY_STAGE
from pipeline_assets.corpus.nemotron.normalise_split import HF_LAYOUT_STAGE
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE
from pipeline_assets.corpus.nemotron.split_pin import RAW_STAGE as NEMOTRON_RAW_STAGE
from pipeline_assets.corpus.normalize.converted import NORMALIZE_STAGE
from pipeline_assets.corpus.packing.recipe import PACK_STAGE
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.raw_pin import RAW_STAGE
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.snapshot.take import SNAPSHOT_STAGE
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.manifest import Manifest, sha256_of
from pipeline_assets.corpus.text_selection import SELECTION_STAGE
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import KINDS
from resources.loopback_hub import LoopbackHub

PROJECT = Path(__file__).parents[1]
GOLDEN = PROJECT / "tests" / "golden" / "stages.json"
DATASET = "makers/pages"


def pages(count: int) -> pa.Table:
    """Pages that hold what pages hold: accents, emoji, NUL, an empty text, an id that comes twice, a low score."""
    texts = [
        f"Page {number}. " + "Der naïve Bär 🐻 says “hello” — 日本語 <|endoftext|>\n" * (number % 7 + 1)
        for number in range(count)
    ]
    texts[33], texts[35] = "nul\0l inside", ""
    ids = [f"<urn:uuid:{number:08d}>" for number in range(count)]
    ids[37] = ids[31]
    columns = {
        "text": texts,
        "id": ids,
        "url": [f"https://example.org/{number}" for number in range(count)],
        "language": ["de" if number % 13 == 0 else "en" for number in range(count)],
        "score": [2.0 + number % 40 / 16 for number in range(count)],
        "int_score": [round(2.0 + number % 40 / 16) for number in range(count)],
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """Every artifact of the healing recipe over four small files."""
    root = tmp_path_factory.mktemp("golden")
    table = pages(400)
    for number in range(4):
        path = root / "hub" / "datasets" / DATASET / "data" / f"CC-MAIN-{number}" / "train.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table.slice(number * 100, 100), path, row_group_size=30)
    recipe = yaml.safe_load((PROJECT / "manifests" / "recipes" / "healing_text_v1.yaml").read_text())
    recipe["snapshot"] |= {
        "dataset": DATASET,
        "amount": {"documents": 380},
        "shard_text_bytes": 20_000,
        "max_reject_fraction": "0.01",
    }
    recipe["megatron"]["token_budget"] = 30_000
    with LoopbackHub(root / "hub") as hub:
        recipe["snapshot"]["revision"] = hub.commits()[DATASET]
        wanted = HealingRecipe.model_validate(recipe)
        run = Run(root, EngineSettings(), HubFiles(root / "cache", endpoint=hub.endpoint))
        made = [KINDS[target.kind].build(target, run).manifest for target in wanted.targets()]
    return dict(zip(("snapshot", "text_selection", "train", "valid", "megatron_dataset"), made, strict=True))


@pytest.fixture(scope="module")
def stage_a(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """Every artifact of a stage A recipe over one made source of each kind, by its role."""
    root = tmp_path_factory.mktemp("stage_a")
    write_sources(root)
    write_hub(root / "hub")
    with LoopbackHub(root / "hub") as hub:
        recipe = recipe_with(root, with_dedup, hub.commits()["maker/pages"])
        built = build(recipe, root, HubFiles(root / "cache", endpoint=hub.endpoint))
    return {role: artifact.manifest for role, artifact in built.items()}


@pytest.fixture(scope="module")
def decontaminated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """Every artifact of a stage A recipe that decontaminates one source and packs it, by its role."""
    root = tmp_path_factory.mktemp("decontaminated")
    write_sources(root)

    def change(content: dict[str, Any]) -> None:
        only("notes")(content)
        with_decontamination(content)
        with_pack(content)

    return {role: artifact.manifest for role, artifact in build(recipe_with(root, change), root).items()}


@pytest.fixture(scope="module")
def nemotron(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """Every artifact of a nemotron recipe over made rows of two splits in a folder, by its role."""
    root = tmp_path_factory.mktemp("nemotron")
    write_dataset(root / "agentic", "nvidia/Nemotron-Agentic-v1", made=True)
    section = {"dataset": "makers/agentic", "path": "agentic", "splits": ["interactive_agent", "tool_calling"]}
    shipped = yaml.safe_load((PROJECT / "manifests" / "recipes" / "nemotron_v1.yaml").read_text())
    content = {**shipped, "name": "made", "datasets": [{**section, "domain": "agentic"}]}
    targets, run = NemotronRecipe.of(content, "made").targets(), Run(root, EngineSettings())
    return {target.role: KINDS[target.kind].build(target, run).manifest for target in targets}


def golden_of(manifest: Manifest) -> str:
    """A digest of what the stage decided and wrote. Parquet bytes of the made input, which vary by writer, stay out."""
    identity = manifest.identity
    decisions = {name: value for name, value in identity.decisions.items()}
    files = [[file.path, file.rows, file.content_sha256] for file in identity.files]
    return sha256_of([decisions, identity.counts, files])


def check_golden(name: str, manifest: Manifest, record_property: Callable[[str, object], None]) -> None:
    found = golden_of(manifest)
    record_property(name, found)
    assert found == json.loads(GOLDEN.read_text()).get(name), (
        f"the content of {name} changed: raise the stage's version, and write its line in {GOLDEN.name}: {found}"
    )


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("snapshot", SNAPSHOT_STAGE.version),
        ("text_selection", SELECTION_STAGE.version),
        ("train", SPLIT_STAGE.version),
        ("valid", SPLIT_STAGE.version),
        ("megatron_dataset", DATASET_STAGE.version),
    ],
)
def test_a_stage_makes_the_content_of_its_version(
    name: str, version: int, manifests: dict[str, Manifest], record_property: Callable[[str, object], None]
) -> None:
    check_golden(f"{name}/{version}", manifests[name], record_property)


@pytest.mark.parametrize(
    ("step", "version"),
    [("raw", RAW_STAGE.version), ("normalized", NORMALIZE_STAGE.version), ("filtered", FILTER_STAGE.version)],
)
@pytest.mark.parametrize("source", ["pages", "wikipedia_en", *SITES, "notes"])
def test_a_stage_makes_the_content_of_its_version_of_each_source(
    source: str,
    step: str,
    version: int,
    stage_a: dict[str, Manifest],
    record_property: Callable[[str, object], None],
) -> None:
    role = f"stage_a/{step}/{source}"
    check_golden(f"{role}/{version}", stage_a[role], record_property)


def test_deduplication_makes_the_content_of_its_version(
    stage_a: dict[str, Manifest], record_property: Callable[[str, object], None]
) -> None:
    check_golden(f"stage_a/deduplicated/{DEDUP_STAGE.version}", stage_a["stage_a/deduplicated"], record_property)


def test_signatures_have_the_content_of_their_version(
    stage_a: dict[str, Manifest], record_property: Callable[[str, object], None]
) -> None:
    check_golden(f"stage_a/signatures/{SIGNATURES_STAGE.version}", stage_a["stage_a/signatures"], record_property)


def test_the_report_has_the_content_of_its_version(
    stage_a: dict[str, Manifest], record_property: Callable[[str, object], None]
) -> None:
    check_golden(f"stage_a/report/{REPORT_STAGE.version}", stage_a["stage_a/report"], record_property)


@pytest.mark.parametrize(
    ("role", "version"),
    [
        ("stage_a/evaluation/quiz", EVALUATION_STAGE.version),
        ("stage_a/decontaminated", DECONTAMINATION_STAGE.version),
        ("stage_a/packed", PACK_STAGE.version),
        ("stage_a/report", REPORT_STAGE.version),
    ],
)
def test_decontamination_and_what_is_made_of_it_have_the_content_of_their_versions(
    role: str, version: int, decontaminated: dict[str, Manifest], record_property: Callable[[str, object], None]
) -> None:
    name = f"{role}/with_decontamination" if role == "stage_a/report" else role
    check_golden(f"{name}/{version}", decontaminated[role], record_property)


@pytest.mark.parametrize(
    ("role", "version"),
    [
        ("nemotron/raw/agentic/tool_calling", NEMOTRON_RAW_STAGE.version),
        ("nemotron/inventory/agentic/interactive_agent", INVENTORY_STAGE.version),
        ("nemotron/inventory/agentic/tool_calling", INVENTORY_STAGE.version),
        ("nemotron/metadata_coverage", COVERAGE_STAGE.version),
        ("nemotron/normalized_shards/agentic/interactive_agent", NORMALISE_STAGE.version),
        ("nemotron/normalized_shards/agentic/tool_calling", NORMALISE_STAGE.version),
        ("nemotron/hf_layout/agentic", HF_LAYOUT_STAGE.version),
    ],
)
def test_nemotron_artifacts_have_the_content_of_their_versions(
    role: str, version: int, nemotron: dict[str, Manifest], record_property: Callable[[str, object], None]
) -> None:
    check_golden(f"{role}/{version}", nemotron[role], record_property)
