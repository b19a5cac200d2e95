"""What nobody builds: nodes of the lineage, looked at, and never a reason to build anything again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import yaml
from materialized import NOWHERE, external_look

from pipeline_assets.code_location import build_definitions
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.demo.loopback_hub import LoopbackHub

Seen = dict[str, dict[str, object]]
TOKENIZER = f"tokenizers/{VOCABULARY_SHA256[:12]}/o200k_harmony"


def looker(root: Path) -> Callable[..., Seen]:
    cursor: list[str | None] = [None]

    def tick(endpoint: str = NOWHERE) -> Seen:
        with dg.DagsterInstance.ephemeral() as instance:
            data = external_look(root, instance, cursor[0], endpoint)
        cursor[0] = data.cursor
        assert all(isinstance(event, dg.AssetObservation) for event in data.asset_events)
        return {
            event.asset_key.to_user_string(): {name: value.value for name, value in event.metadata.items()}
            for event in data.asset_events
        }

    return tick


@pytest.fixture
def root(demo_root: Path, tmp_path: Path) -> Path:
    """A data root with the demo's recipes and its hub's files, none of which is another's too."""
    for name in ("recipes", "hub"):
        shutil.copytree(demo_root / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of one file, which a recipe of the data root reads."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "one.txt").write_text("A note.")
    (tmp_path / "recipes").mkdir()
    source = {"source": "notes", "kind": "local", "path": str(folder), "files": ["*.txt"]}
    recipe = {"name": "mine", "system": "stage_a", "sources": [source]}
    (tmp_path / "recipes" / "mine.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def test_each_node_says_what_is_pinned_and_what_is_there(notes: Path) -> None:
    found = looker(notes.parent)()

    folder = found["files/notes"]
    assert (folder["path"], folder["files"], folder["bytes"]) == ("notes", 1, len("A note."))
    assert found[TOKENIZER]["sha256"] == VOCABULARY_SHA256
    assert found[TOKENIZER]["matches the pin"] is True
    assert found["tables/licences"]["licences"] == len(licence_table())


def test_only_what_changed_is_told_again(notes: Path) -> None:
    look = looker(notes.parent)
    look()

    unchanged = look()
    (notes / "two.txt").write_text("Another.")
    [changed] = look().values()

    assert unchanged == {}
    assert (changed["path"], changed["files"]) == ("notes", 2)


def test_a_folder_of_splits_is_a_node_too(notes: Path) -> None:
    rows = notes.parent / "rows"
    rows.mkdir()
    for split in ("low", "high"):
        (rows / f"{split}.jsonl").write_text('{"text": "a"}\n')
    dataset = {"dataset": "rows", "path": str(rows), "splits": ["low", "high"]}
    recipe = {"system": "nemotron", "name": "splits", "scan": {}, "datasets": [dataset]}
    (notes.parent / "recipes" / "splits.yaml").write_text(yaml.safe_dump(recipe))

    found = looker(notes.parent)()["files/rows"]

    assert (found["path"], found["files"]) == ("rows", 2)


def test_a_folder_is_one_node_however_recipes_write_it(notes: Path) -> None:
    recipe = notes.parent / "recipes" / "mine.yaml"
    other = yaml.safe_load(recipe.read_text()) | {"name": "other"}
    other["sources"][0]["path"] = "notes"  # below the data root
    recipe.with_name("other.yaml").write_text(yaml.safe_dump(other))

    graph = build_definitions(notes.parent).resolve_asset_graph()

    assert graph.get(dg.AssetKey(["files", "notes"])).child_keys == {
        dg.AssetKey(["stage_a", name, "raw"]) for name in ("mine", "other")
    }


def test_an_absolute_folder_is_not_the_relative_one_of_the_same_name(notes: Path) -> None:
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


def test_folders_of_any_name_are_nodes(notes: Path) -> None:
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


def test_where_a_head_moved_its_node_says_so(root: Path) -> None:
    look = looker(root)
    with LoopbackHub(root / "hub") as hub:
        before, commit = look(hub.endpoint), hub.commits()[EDU_DATASET]
    [name] = [name for name, seen in before.items() if seen.get("commit") == commit]
    card = root / "hub" / "datasets" / EDU_DATASET / "README.md"
    card.chmod(0o644)
    card.write_text(card.read_text() + "\nAnother line.\n")

    with LoopbackHub(root / "hub") as hub:
        after, head = look(hub.endpoint), hub.commits()[EDU_DATASET]

    assert (before[name]["head of main"], before[name]["is at the head"]) == (commit, True)
    assert (after[name]["commit"], after[name]["head of main"], after[name]["is at the head"]) == (commit, head, False)


def test_a_hub_that_cannot_be_reached_is_told_and_stops_no_other_look(root: Path) -> None:
    found = looker(root)()

    assert {"cannot be read" in seen for name, seen in found.items() if name.startswith("hub/")} == {True}
    assert found[TOKENIZER]["matches the pin"] is True


def test_the_hub_is_not_asked_for_recipes_that_ship_and_nobody_runs(tmp_path: Path) -> None:
    assert looker(tmp_path)() == {}


def test_the_model_that_scores_is_a_node_as_datasets_are(tmp_path: Path) -> None:
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
        [seen] = [found for key, found in looker(tmp_path)(hub.endpoint).items() if key == f"hub/{'1' * 12}/maker/tiny"]

    assert (seen["model"], seen["commit"], seen["is at the head"]) == ("maker/tiny", "1" * 40, False)
    assert len(str(seen["head of main"])) == 40
