"""Golden digests: a stage changes its output only with a new stage version."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from forked_workers import forked_here
from nemotron_build import write_quiz_section
from nemotron_hub import write_dataset
from parallel_build import build as build_pairs
from parallel_build import write_pairs
from stage2_build import build as build_mixture
from stage2_build import recipe_with as mixture_with
from stage2_build import write_datasets
from stage_a_build import build, only, recipe_with
from stage_a_sources import SOURCES, with_decontamination, with_dedup, with_pack, write_hub, write_sources
from word_tokenizer import write_tokenizer

from pipeline_assets.build.pins.model_pin import ModelFolder
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring.toy_model import write_toy_model
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.scoring import CHAT_TEMPLATE, MODEL
from resources.artifact_metadata import artifact_metadata

PROJECT = Path(__file__).parents[1]
GOLDEN = PROJECT / "tests" / "golden" / "stages.json"
DATASET = "makers/pages"
SCORE_STAGES = {"nemotron_nll_scores", "nemotron_score_report", "nemotron_training_subsets"}


def build_pages(count: int) -> pa.Table:
    """Build pages with accents, emoji, NUL, an empty text, a repeated id, a low score."""
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
def healing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build every artifact of the healing recipe over four small files."""
    root = tmp_path_factory.mktemp("golden")
    table = build_pages(400)
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
        parsed = HealingRecipe.model_validate(recipe)
        run = Run(root, RunSettings(), HubFiles(root / "cache", endpoint=hub.endpoint))
        built = [target.kind.build(target, run) for target in parsed.targets()]
    return dict(zip(("snapshot", "text_selection", "train", "valid", "megatron_dataset"), built, strict=True))


@pytest.fixture(scope="module")
def stage_a(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build a stage A recipe over one synthetic source of each kind, by role."""
    root = tmp_path_factory.mktemp("stage_a")
    write_sources(root)
    write_hub(root / "hub")
    with LoopbackHub(root / "hub") as hub:
        recipe = recipe_with(root, with_dedup, hub.commits()["maker/pages"])
        return build(recipe, root, HubFiles(root / "cache", endpoint=hub.endpoint))


@pytest.fixture(scope="module")
def decontaminated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build a stage A recipe that decontaminates and packs one source, by role."""
    root = tmp_path_factory.mktemp("decontaminated")
    write_sources(root)

    def change(content: dict[str, Any]) -> None:
        only("notes")(content)
        with_decontamination(content)
        with_pack(content)

    return build(recipe_with(root, change), root)


@pytest.fixture(scope="module")
def nemotron(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build a nemotron recipe over synthetic rows of two local splits, by role."""
    pytest.importorskip("torch", reason="torch is not installed")
    root = tmp_path_factory.mktemp("nemotron")
    write_dataset(root / "agentic", "nvidia/Nemotron-Agentic-v1")
    section = {"dataset": "makers/agentic", "path": "agentic", "splits": ["interactive_agent", "tool_calling"]}
    shipped = yaml.safe_load((PROJECT / "manifests" / "recipes" / "nemotron_v1.yaml").read_text())
    content = {**shipped, "name": "made", "datasets": [{**section, "domain": "agentic"}]}
    content["publish"] = {"repo": "owner/{dataset}-pools"}
    scoring = {"model": {"path": "model"}, "tokenizer": "o200k_harmony", "max_length": 160}
    content["scoring"] = {**scoring, "rescored": 2, "shard_rows": 2}
    content["subsets"] = {"rules": {"easy": {"percentile": [0, 50]}, "hard": {"percentile": [0, 100], "max_rows": 1}}}
    write_toy_model(root / "model")
    run = Run(root, RunSettings(), publishes=False)
    targets = NemotronRecipe.from_mapping(content, "made").targets()
    with forked_here():
        return {target.role: target.kind.build(target, run) for target in targets}


@pytest.fixture(scope="module")
def without_items(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build a nemotron recipe over synthetic proofs with a quiz item, by role."""
    root = tmp_path_factory.mktemp("without_items")
    write_dataset(root / "proofs", "nvidia/Nemotron-Math-Proofs-v1")
    proofs = {"dataset": "makers/proofs", "path": "proofs", "splits": ["lean"], "domain": "proof"}
    content = {"system": "nemotron", "name": "made", "rows": {}, "deduplicate": {}, "datasets": [proofs]}
    content["decontamination"] = write_quiz_section(root / "quiz", "theorem t : 1 + 0 = 1 := by sorry")
    targets, run = NemotronRecipe.from_mapping(content, "made").targets(), Run(root, RunSettings())
    return {target.role: target.kind.build(target, run) for target in targets}


@pytest.fixture(scope="module")
def model_pins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build the pins of a model with two weight files, and of its template, by role."""
    root = tmp_path_factory.mktemp("model_pins")
    config = {"architectures": ["TinyForCausalLM"], "model_type": "tiny", "dtype": "bfloat16", "vocab_size": 201_088}
    index = {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
    files = {"config.json": json.dumps(config), "model.safetensors.index.json": json.dumps(index)}
    for name, text in {**files, "a.safetensors": "a", "b.safetensors": "b", "README.md": "# Tiny"}.items():
        (root / name).write_text(text)
    target = MODEL.target("made", {}, external_inputs=ModelFolder(root))
    pin = MODEL.build(target, Run(root, RunSettings()))
    (root / "tokenizer.json").write_text("{}")
    (root / "chat_template.jinja").write_text("{{ messages }}")
    template = CHAT_TEMPLATE.target("made", {}, external_inputs=ModelFolder(root, is_template_only=True))
    return {target.role: pin, template.role: CHAT_TEMPLATE.build(template, Run(root, RunSettings()))}


@pytest.fixture(scope="module")
def stage2(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build a mixture of three datasets with an external tokenizer, by role.

    The tokenizer does not know most of their words.
    """
    pytest.importorskip("py3langid", reason="needs the extra `languages`")
    root = tmp_path_factory.mktemp("stage2")
    write_datasets(root / "hub")
    tokenizer = write_tokenizer(root)
    sha256 = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    tokenizer_section = {"kind": "file", "family": "hf_tokenizer", "sha256": sha256, "end_of_document": "<end>"}
    with LoopbackHub(root / "hub") as hub:
        files = HubFiles(root / "cache", endpoint=hub.endpoint)
        section = {"tokenizer": tokenizer_section | {"path": str(tokenizer)}}
        trained = build_mixture(mixture_with(root, hub.commits()), root, files)

        def change(recipe: dict[str, Any]) -> None:
            recipe.update(section)
            recipe["shards"]["max_unknown_fraction"] = "1"

        built = build_mixture(mixture_with(root, hub.commits(), change, "given"), root, files)
    return {**built, "stage2/tokenizer": trained["stage2/tokenizer"]}


@pytest.fixture(scope="module")
def parallel_text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build every artifact of local synthetic pairs, by role."""
    root = tmp_path_factory.mktemp("parallel_text")
    return build_pairs(write_pairs(root), root)


def golden_digest(artifact: Artifact) -> str:
    """Hash the decisions and output of a stage.

    Parquet bytes vary by writer, so content hashes are used; for scores of a model, whose last digits vary by CPU,
    rounded values.
    """
    identity = artifact.manifest.identity
    if identity.stage.name in SCORE_STAGES:
        values = [[file.path, read_values(artifact.path(file.path))] for file in identity.files]
        return canonical_sha256(round_values([identity.decisions, identity.counts, values]))
    files = [[file.path, file.rows, file.content_sha256] for file in identity.files]
    return canonical_sha256([identity.decisions, identity.counts, files])


def read_values(file: Path) -> object:
    """Read the values in a file; return None for a page, which repeats its JSON file."""
    match file.suffix:
        case ".parquet":
            return pq.read_table(file).to_pylist()
        case ".json":
            return json.loads(file.read_text(encoding="utf-8"))
        case ".npy":
            return np.load(file).tolist()
    return None


def round_values(value: object) -> object:
    """Round numbers to two digits and omit digests, which depend on all digits.

    No number of the synthetic rows is near a rounding limit.
    """
    match value:
        case dict():
            return {name: round_values(item) for name, item in value.items()}
        case list():
            return [round_values(item) for item in value]
        case float():
            return f"{value:.2g}" if abs(value) > 0.001 else "0"
        case str() if re.fullmatch(r"[0-9]+\.[0-9]+(e-?[0-9]+)?", value):
            return round_values(float(value))
        case str() if value.startswith("sha256:"):
            return "a digest"
    return value


STEPS = [f"stage_a/{step}/{source}" for source in SOURCES for step in ("raw", "normalized", "filtered")]
SPLITS = ("agentic/interactive_agent", "agentic/tool_calling")
ROLES = {
    "healing": ["snapshot", "text_selection", "train", "valid", "megatron_dataset"],
    "stage_a": [*STEPS, "stage_a/deduplicated", "stage_a/signatures", "stage_a/report"],
    "decontaminated": ["stage_a/evaluation/quiz", "stage_a/decontaminated", "stage_a/packed", "stage_a/report"],
    "nemotron": [
        "nemotron/raw/agentic/tool_calling",
        *("nemotron/candidate_pools/agentic", "nemotron/published_pools/agentic", "nemotron/pool_report"),
        "nemotron/hf_layout/agentic",
        *(f"nemotron/{step}/{split}" for step in ("inventory", "normalized_shards") for split in SPLITS),
        *(f"nemotron/{step}/{SPLITS[1]}" for step in ("prompts", "near_duplicates", "deduplicated")),
        *(f"nemotron/nll_scores/{SPLITS[1]}", "nemotron/score_report", "nemotron/training_subsets"),
    ],
    "model_pins": ["nemotron/model", "nemotron/chat_template"],
    "parallel_text": ["parallel_text/raw", "parallel_text/sample", "parallel_text/token_cache"],
    "stage2": [
        *(f"stage2/{step}/web" for step in ("raw", "raw_corpus", "filtered", "token_shards")),
        *(f"stage2/{step}" for step in ("deduplicated", "tokenizer", "inventory", "continual_segments")),
    ],
    "without_items": ["nemotron/decontaminated/proofs/lean", "nemotron/deduplicated/proofs/lean"],
}


def test_every_kind_has_a_golden_digest(request: pytest.FixtureRequest) -> None:
    covered = {request.getfixturevalue(recipe)[role].manifest.kind for recipe, roles in ROLES.items() for role in roles}

    missing = sorted(SYSTEMS.kinds.keys() - covered)
    assert not missing, f"no golden digest of {missing}: let a recipe of these tests request it, then name it in ROLES"


def test_the_ui_counts_rows_of_an_artifact_and_not_its_documents(request: pytest.FixtureRequest) -> None:
    built = {role: request.getfixturevalue(recipe)[role] for recipe, roles in ROLES.items() for role in roles}

    metadata = {role: artifact_metadata(artifact, SYSTEMS.kinds, was_current=False) for role, artifact in built.items()}

    counted = {
        role: entries["dagster/row_count"].value for role, entries in metadata.items() if "dagster/row_count" in entries
    }
    scores = f"nemotron/nll_scores/{SPLITS[1]}"
    packed, pools = built["stage_a/packed"], "nemotron/candidate_pools/agentic"
    assert counted["stage_a/packed"] == packed.manifest.identity.counts["rows"]
    assert counted["stage_a/packed"] != metadata["stage_a/packed"]["documents"].value
    assert counted[pools] == sum(file.rows for file in built[pools].manifest.identity.files)
    assert counted[scores] == pq.read_metadata(built[scores].path("scores.parquet")).num_rows
    tables = {artifact.manifest.kind: [*artifact.folder.rglob("*.parquet")] for artifact in built.values()}
    uncounted = {
        name for name, paths in tables.items() if SYSTEMS.kinds[name].row_store_class is None and len(paths) != 1
    }
    assert {"stage_a/report", "nemotron/pool_report", "stage2/tokenizer", "stage_a/signatures"} <= uncounted
    assert {built[role].manifest.kind for role in built.keys() - counted.keys()} == uncounted


@pytest.mark.parametrize(("recipe", "role"), [(recipe, role) for recipe, roles in ROLES.items() for role in roles])
def test_a_stage_has_the_golden_digest_of_its_version(
    recipe: str, role: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    artifact: Artifact = request.getfixturevalue(recipe)[role]
    variant = "/with_decontamination" if (recipe, role) == ("decontaminated", "stage_a/report") else ""
    name, found = f"{role}{variant}/{artifact.manifest.identity.stage.version}", golden_digest(artifact)

    record_property(name, found)
    known, line = json.loads(GOLDEN.read_text()), f'"{name}": "{found}",'
    assert name in known, f"{GOLDEN.name} has no line of {name} yet; add to it: {line}"
    assert found == known[name], (
        f"the content of {name} changed: raise the stage's version (or, if the sources of these tests changed, "
        f"leave it), and replace its line in {GOLDEN.name}: {line}"
    )
