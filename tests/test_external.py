"""External inputs are observed nodes of the lineage and start no rebuild."""

import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import yaml
from materialized import NOWHERE, evaluate_external_sensor

from pipeline_assets.code_location import build_definitions
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.demo.loopback_hub import LoopbackHub

Observations = dict[str, dict[str, object]]
TOKENIZER = f"tokenizers/{VOCABULARY_SHA256[:12]}/o200k_harmony"


def build_observer(root: Path) -> Callable[..., Observations]:
    cursor: list[str | None] = [None]

    def tick(endpoint: str = NOWHERE) -> Observations:
        with dg.DagsterInstance.ephemeral() as instance:
            data = evaluate_external_sensor(root, instance, cursor[0], endpoint)
        cursor[0] = data.cursor
        assert all(isinstance(event, dg.AssetObservation) for event in data.asset_events)
        return {
            event.asset_key.to_user_string(): {name: value.value for name, value in event.metadata.items()}
            for event in data.asset_events
        }

    return tick


@pytest.fixture
def root(demo_root: Path, tmp_path: Path) -> Path:
    """Copy the recipes and hub files of the demo into a data root."""
    for name in ("recipes", "hub"):
        shutil.copytree(demo_root / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Write a folder of one file and a recipe that reads it."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "one.txt").write_text("A note.")
    (tmp_path / "recipes").mkdir()
    source = {"source": "notes", "kind": "local", "path": str(folder), "files": ["*.txt"]}
    recipe = {"name": "mine", "system": "stage_a", "sources": [source]}
    (tmp_path / "recipes" / "mine.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def test_each_node_has_its_pin_and_its_current_content(notes: Path) -> None:
    observations = build_observer(notes.parent)()

    folder = observations["files/notes"]
    assert (folder["path"], folder["files"], folder["bytes"]) == ("notes", 1, len("A note."))
    assert observations[TOKENIZER]["sha256"] == VOCABULARY_SHA256
    assert observations[TOKENIZER]["matches the pin"] is True
    assert observations["tables/licences"]["licences"] == len(licence_table())


def test_only_changed_nodes_are_observed_again(notes: Path) -> None:
    observe = build_observer(notes.parent)
    observe()

    unchanged = observe()
    (notes / "two.txt").write_text("Another.")
    [changed] = observe().values()

    assert unchanged == {}
    assert (changed["path"], changed["files"]) == ("notes", 2)


def test_folder_of_splits_is_a_node(notes: Path) -> None:
    rows = notes.parent / "rows"
    rows.mkdir()
    for split in ("low", "high"):
        (rows / f"{split}.jsonl").write_text('{"text": "a"}\n')
    dataset = {"dataset": "rows", "path": str(rows), "splits": ["low", "high"]}
    recipe = {"system": "nemotron", "name": "splits", "scan": {}, "datasets": [dataset]}
    (notes.parent / "recipes" / "splits.yaml").write_text(yaml.safe_dump(recipe))

    node = build_observer(notes.parent)()["files/rows"]

    assert (node["path"], node["files"]) == ("rows", 2)


def test_folder_is_one_node_for_absolute_and_relative_paths(notes: Path) -> None:
    recipe = notes.parent / "recipes" / "mine.yaml"
    other = yaml.safe_load(recipe.read_text()) | {"name": "other"}
    other["sources"][0]["path"] = "notes"  # relative to the data root
    recipe.with_name("other.yaml").write_text(yaml.safe_dump(other))

    graph = build_definitions(notes.parent).resolve_asset_graph()

    assert graph.get(dg.AssetKey(["files", "notes"])).child_keys == {
        dg.AssetKey(["stage_a", name, "raw"]) for name in ("mine", "other")
    }


def test_absolute_and_relative_folders_of_one_name_are_different_nodes(notes: Path) -> None:
    recipe = notes.parent / "recipes" / "mine.yaml"
    names = {}
    for name, path in {"absolute": "/nowhere/notes", "relative": "nowhere/notes"}.items():
        content = yaml.safe_load(recipe.read_text()) | {"name": name}
        content["sources"][0]["path"] = path
        recipe.with_name(f"{name}.yaml").write_text(yaml.safe_dump(content))

    graph = build_definitions(notes.parent).resolve_asset_graph()

    for key in graph.get_all_asset_keys():
        if key.path[0] == "files" and key.path[-2:] == ["nowhere", "notes"]:
            names[str(graph.get(key).description)] = graph.get(key).child_keys
    assert names == {
        "Files in /nowhere/notes": {dg.AssetKey(["stage_a", "absolute", "raw"])},
        "Files in nowhere/notes": {dg.AssetKey(["stage_a", "relative", "raw"])},
    }


def test_folders_with_any_name_are_nodes(notes: Path) -> None:
    path = notes.parent / "recipes" / "mine.yaml"
    recipe = yaml.safe_load(path.read_text())
    for number, name in enumerate(("My Notes", "Données", "a#b%c")):
        (notes.parent / name).mkdir()
        content = recipe | {"name": f"other{number}", "sources": [recipe["sources"][0] | {"path": name}]}
        path.with_name(f"other{number}.yaml").write_text(yaml.safe_dump(content))

    graph = build_definitions(notes.parent).resolve_asset_graph()

    parents = [graph.get(dg.AssetKey(["stage_a", f"other{number}", "raw"])).parent_keys for number in range(3)]
    assert [[key.to_user_string() for key in keys] for keys in parents] == [
        ["files/My_Notes_cc21be"],
        ["files/Donn_es_6ef4db"],
        ["files/a_b_c_5c7cc9"],
    ]
    description = graph.get(dg.AssetKey(["files", "a_b_c_5c7cc9"])).description
    assert description == r"Files in a\#b%c"  # in Markdown


def test_moved_head_is_observed(root: Path) -> None:
    observe = build_observer(root)
    with LoopbackHub(root / "hub") as hub:
        before, commit = observe(hub.endpoint), hub.commits()[EDU_DATASET]
    [name] = [name for name, observation in before.items() if observation.get("commit") == commit]
    card = root / "hub" / "datasets" / EDU_DATASET / "README.md"
    card.chmod(0o644)
    card.write_text(card.read_text() + "\nAnother line.\n")

    with LoopbackHub(root / "hub") as hub:
        after, head = observe(hub.endpoint), hub.commits()[EDU_DATASET]

    assert (before[name]["head of main"], before[name]["is at the head"]) == (commit, True)
    assert (after[name]["commit"], after[name]["head of main"], after[name]["is at the head"]) == (commit, head, False)


def test_unreachable_hub_is_observed_and_stops_no_other_observation(root: Path) -> None:
    nodes = build_observer(root)()

    assert {"cannot be read" in node for name, node in nodes.items() if name.startswith("hub/")} == {True}
    assert nodes[TOKENIZER]["matches the pin"] is True


def test_hub_is_not_queried_for_shipped_recipes_that_are_not_used(tmp_path: Path) -> None:
    assert build_observer(tmp_path)() == {}


def test_scoring_model_is_a_node(tmp_path: Path) -> None:
    (tmp_path / "hub" / "datasets" / "maker" / "pools").mkdir(parents=True)
    (tmp_path / "hub" / "datasets" / "maker" / "pools" / "low.parquet").write_bytes(b"rows")
    (tmp_path / "hub" / "models" / "maker" / "tiny").mkdir(parents=True)
    (tmp_path / "hub" / "models" / "maker" / "tiny" / "config.json").write_text("{}")
    (tmp_path / "recipes").mkdir()
    model = {"name": "maker/tiny", "revision": "1" * 40}
    pools = {"dataset": "maker/pools", "revision": "2" * 40, "splits": ["low"]}
    recipe = {"name": "scored", "system": "nemotron", "scoring": {"model": model}, "datasets": [pools]}
    (tmp_path / "recipes" / "scored.yaml").write_text(yaml.safe_dump(recipe))

    with LoopbackHub(tmp_path / "hub") as hub:
        node = build_observer(tmp_path)(hub.endpoint)[f"hub/{'1' * 12}/maker/tiny"]

    assert (node["model"], node["commit"], node["is at the head"]) == ("maker/tiny", "1" * 40, False)
    assert len(str(node["head of main"])) == 40
