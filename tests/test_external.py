"""External inputs are observed nodes of the lineage and start no rebuild."""

import contextlib
import http.server
import shutil
import threading
import time
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


def write_recipe(notes: Path, name: str, path: str) -> None:
    """Write a recipe that reads the files of a folder by this path."""
    source = {"source": "notes", "kind": "local", "path": path, "files": ["*.txt"]}
    recipe = {"name": name, "system": "stage_a", "sources": [source]}
    (notes.parent / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(recipe))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Write a folder of one file and a recipe that reads it."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "one.txt").write_text("A note.")
    (tmp_path / "recipes").mkdir()
    write_recipe(folder, "mine", str(folder))
    return folder


def test_each_node_is_observed_with_its_pin_and_again_when_it_changes(notes: Path) -> None:
    observe = build_observer(notes.parent)

    first, unchanged = observe(), observe()
    (notes / "two.txt").write_text("Another.")
    [changed] = observe().values()

    folder = first["files/notes"]
    assert (folder["path"], folder["files"], folder["bytes"]) == ("notes", 1, len("A note."))
    assert (first[TOKENIZER]["sha256"], first[TOKENIZER]["matches the pin"]) == (VOCABULARY_SHA256, True)
    assert first["tables/licences"]["licences"] == len(licence_table())
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


def test_each_folder_is_one_node_for_any_name_and_path(notes: Path) -> None:
    write_recipe(notes, "other", "notes")  # relative to the data root
    write_recipe(notes, "absolute", "/nowhere/notes")
    write_recipe(notes, "relative", "nowhere/notes")
    odd = {"My Notes": "My_Notes_cc21be", "Données": "Donn_es_6ef4db", "a#b%c": "a_b_c_5c7cc9"}
    for number, name in enumerate(odd):
        (notes.parent / name).mkdir()
        write_recipe(notes, f"odd{number}", name)

    graph = build_definitions(notes.parent).resolve_asset_graph()

    def readers(*path: str) -> set[str]:
        return {key.path[1] for key in graph.get(dg.AssetKey(["files", *path])).child_keys}

    assert readers("notes") == {"mine", "other"}
    assert [readers(node) for node in odd.values()] == [{"odd0"}, {"odd1"}, {"odd2"}]
    nowhere = [key.path[1:] for key in graph.get_all_asset_keys() if key.path[-2:] == ["nowhere", "notes"]]
    assert {graph.get(dg.AssetKey(["files", *path])).description: readers(*path) for path in nowhere} == {
        "Files in /nowhere/notes": {"absolute"},
        "Files in nowhere/notes": {"relative"},
    }
    assert graph.get(dg.AssetKey(["files", "a_b_c_5c7cc9"])).description == r"Files in a\#b%c"  # in Markdown


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


class DrippingHub(http.server.BaseHTTPRequestHandler):
    """Hub whose answers arrive as one byte per second."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):  # the client gave up
            while True:
                self.wfile.write(b" ")
                time.sleep(1)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.slow
def test_a_hub_that_sends_a_byte_per_second_ends_no_tick(root: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), DrippingHub)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    observe, began = build_observer(root), time.monotonic()

    nodes = observe(f"http://127.0.0.1:{server.server_port}")

    assert time.monotonic() - began < 45  # Dagster ends a sensor after 60 s, and its cursor would be lost
    assert "bytes in 1" in str([node.get("cannot be read") for name, node in nodes.items() if name.startswith("hub/")])
    server.shutdown()


def test_hub_is_not_queried_for_shipped_recipes_that_are_not_used(tmp_path: Path) -> None:
    assert build_observer(tmp_path)() == {}


def test_scoring_model_is_a_node(tmp_path: Path) -> None:
    for name in ("hub/datasets/maker/pools/low.parquet", "hub/models/maker/tiny/config.json", "recipes/scored.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    model = {"name": "maker/tiny", "revision": "1" * 40}
    pools = {"dataset": "maker/pools", "revision": "2" * 40, "splits": ["low"]}
    recipe = {"name": "scored", "system": "nemotron", "scoring": {"model": model}, "datasets": [pools]}
    (tmp_path / "recipes" / "scored.yaml").write_text(yaml.safe_dump(recipe))

    with LoopbackHub(tmp_path / "hub") as hub:
        node = build_observer(tmp_path)(hub.endpoint)[f"hub/{'1' * 12}/maker/tiny"]

    assert (node["model"], node["commit"], node["is at the head"]) == ("maker/tiny", "1" * 40, False)
    assert len(str(node["head of main"])) == 40
