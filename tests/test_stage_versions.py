"""Golden digests: what a stage makes of a fixed input may not change without a new version of the stage."""

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
from nemotron_build import quiz_of
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
OF_SCORES = {"nemotron_nll_scores", "nemotron_score_report", "nemotron_training_subsets"}


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
def healing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
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
        run = Run(root, RunSettings(), HubFiles(root / "cache", endpoint=hub.endpoint))
        made = [target.kind.build(target, run) for target in wanted.targets()]
    return dict(zip(("snapshot", "text_selection", "train", "valid", "megatron_dataset"), made, strict=True))


@pytest.fixture(scope="module")
def stage_a(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Every artifact of a stage A recipe over one made source of each kind, by its role."""
    root = tmp_path_factory.mktemp("stage_a")
    write_sources(root)
    write_hub(root / "hub")
    with LoopbackHub(root / "hub") as hub:
        recipe = recipe_with(root, with_dedup, hub.commits()["maker/pages"])
        return build(recipe, root, HubFiles(root / "cache", endpoint=hub.endpoint))


@pytest.fixture(scope="module")
def decontaminated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Every artifact of a stage A recipe that decontaminates one source and packs it, by its role."""
    root = tmp_path_factory.mktemp("decontaminated")
    write_sources(root)

    def change(content: dict[str, Any]) -> None:
        only("notes")(content)
        with_decontamination(content)
        with_pack(content)

    return build(recipe_with(root, change), root)


@pytest.fixture(scope="module")
def nemotron(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Every artifact of a nemotron recipe over made rows of two splits in a folder, by its role."""
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
    """Every artifact of a nemotron recipe over made proofs, of which one is an item of a quiz, by its role."""
    root = tmp_path_factory.mktemp("without_items")
    write_dataset(root / "proofs", "nvidia/Nemotron-Math-Proofs-v1")
    proofs = {"dataset": "makers/proofs", "path": "proofs", "splits": ["lean"], "domain": "proof"}
    content = {"system": "nemotron", "name": "made", "rows": {}, "deduplicate": {}, "datasets": [proofs]}
    content["decontamination"] = quiz_of(root / "quiz", "theorem t : 1 + 0 = 1 := by sorry")
    targets, run = NemotronRecipe.from_mapping(content, "made").targets(), Run(root, RunSettings())
    return {target.role: target.kind.build(target, run) for target in targets}


@pytest.fixture(scope="module")
def of_a_model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The pins of a model whose weights are in two files, with others beside them, and of its template, by role."""
    root = tmp_path_factory.mktemp("of_a_model")
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
    """Every artifact of a mixture of three made datasets, in words that a given tokenizer mostly doesn't know."""
    pytest.importorskip("py3langid", reason="needs the extra `languages`")
    root = tmp_path_factory.mktemp("stage2")
    write_datasets(root / "hub")
    tokenizer = write_tokenizer(root)
    sha256 = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    words = {"kind": "file", "family": "hf_tokenizer", "sha256": sha256, "end_of_document": "<end>"}
    with LoopbackHub(root / "hub") as hub:
        files = HubFiles(root / "cache", endpoint=hub.endpoint)
        given = {"tokenizer": words | {"path": str(tokenizer)}}
        trained = build_mixture(mixture_with(root, hub.commits()), root, files)

        def change(recipe: dict[str, Any]) -> None:
            recipe.update(given)
            recipe["shards"]["max_unknown_fraction"] = "1"

        made = build_mixture(mixture_with(root, hub.commits(), change, "given"), root, files)
    return {**made, "stage2/tokenizer": trained["stage2/tokenizer"]}


@pytest.fixture(scope="module")
def parallel_text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Every artifact of made pairs in a folder, by its role."""
    root = tmp_path_factory.mktemp("parallel_text")
    return build_pairs(write_pairs(root), root)


def golden_of(artifact: Artifact) -> str:
    """A digest of what the stage decided and wrote. Parquet bytes of the made input, which vary by writer, stay out;
    and, where there are scores of a model in it, digits of numbers that vary by CPU.
    """
    identity = artifact.manifest.identity
    if identity.stage.name in OF_SCORES:
        said = [[file.path, said_in(artifact.path(file.path))] for file in identity.files]
        return canonical_sha256(in_two_digits([identity.decisions, identity.counts, said]))
    files = [[file.path, file.rows, file.content_sha256] for file in identity.files]
    return canonical_sha256([identity.decisions, identity.counts, files])


def said_in(file: Path) -> object:
    """What a file says; nothing of a page, which says what the JSON beside it does."""
    match file.suffix:
        case ".parquet":
            return pq.read_table(file).to_pylist()
        case ".json":
            return json.loads(file.read_text(encoding="utf-8"))
        case ".npy":
            return np.load(file).tolist()
    return None


def in_two_digits(said: object) -> object:
    """The same with two digits of each number that is no whole one, and without digests, which hang on all digits.

    No number of the made rows is near one where it would be rounded otherwise.
    """
    match said:
        case dict():
            return {name: in_two_digits(value) for name, value in said.items()}
        case list():
            return [in_two_digits(value) for value in said]
        case float():
            return f"{said:.2g}" if abs(said) > 0.001 else "0"
        case str() if re.fullmatch(r"[0-9]+\.[0-9]+(e-?[0-9]+)?", said):
            return in_two_digits(float(said))
        case str() if said.startswith("sha256:"):
            return "a digest"
    return said


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
    "of_a_model": ["nemotron/model", "nemotron/chat_template"],
    "parallel_text": ["parallel_text/raw", "parallel_text/sample", "parallel_text/token_cache"],
    "stage2": [
        *(f"stage2/{step}/web" for step in ("raw", "raw_corpus", "filtered", "token_shards")),
        *(f"stage2/{step}" for step in ("deduplicated", "tokenizer", "inventory", "continual_segments")),
    ],
    "without_items": ["nemotron/decontaminated/proofs/lean", "nemotron/deduplicated/proofs/lean"],
}


def test_every_kind_has_a_golden_digest(request: pytest.FixtureRequest) -> None:
    held = {request.getfixturevalue(recipe)[role].manifest.kind for recipe, roles in ROLES.items() for role in roles}

    unheld = sorted(SYSTEMS.kinds.keys() - held)
    assert not unheld, f"no golden digest of {unheld}: have a made recipe ask for it, then name it in ROLES"


def test_the_ui_counts_rows_of_an_artifact_and_not_documents_that_it_tells_of(request: pytest.FixtureRequest) -> None:
    made = {role: request.getfixturevalue(recipe)[role] for recipe, roles in ROLES.items() for role in roles}

    told = {role: artifact_metadata(artifact, SYSTEMS.kinds, was_current=False) for role, artifact in made.items()}

    counted = {
        role: values["dagster/row_count"].value for role, values in told.items() if "dagster/row_count" in values
    }
    scores = f"nemotron/nll_scores/{SPLITS[1]}"
    packed, pools = made["stage_a/packed"], "nemotron/candidate_pools/agentic"
    assert counted["stage_a/packed"] == packed.manifest.identity.counts["rows"]
    assert counted["stage_a/packed"] != told["stage_a/packed"]["documents"].value
    assert counted[pools] == sum(file.rows for file in made[pools].manifest.identity.files)
    assert counted[scores] == pq.read_metadata(made[scores].path("scores.parquet")).num_rows
    tables = {artifact.manifest.kind: [*artifact.folder.rglob("*.parquet")] for artifact in made.values()}
    without = {
        name for name, paths in tables.items() if SYSTEMS.kinds[name].row_store_class is None and len(paths) != 1
    }
    assert {"stage_a/report", "nemotron/pool_report", "stage2/tokenizer", "stage_a/signatures"} <= without
    assert {made[role].manifest.kind for role in made.keys() - counted.keys()} == without


@pytest.mark.parametrize(("recipe", "role"), [(recipe, role) for recipe, roles in ROLES.items() for role in roles])
def test_a_stage_makes_the_content_of_its_version(
    recipe: str, role: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    artifact: Artifact = request.getfixturevalue(recipe)[role]
    variant = "/with_decontamination" if (recipe, role) == ("decontaminated", "stage_a/report") else ""
    name, found = f"{role}{variant}/{artifact.manifest.identity.stage.version}", golden_of(artifact)

    record_property(name, found)
    known, line = json.loads(GOLDEN.read_text()), f'"{name}": "{found}",'
    assert name in known, f"{GOLDEN.name} has no line of {name} yet; add to it: {line}"
    assert found == known[name], (
        f"the content of {name} changed: raise the stage's version (or, where the made sources of these tests changed, "
        f"leave it), and replace its line in {GOLDEN.name}: {line}"
    )
