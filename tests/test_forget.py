"""Twenty forgotten rows of each system are in no later artifact or published set."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_results import Corpusmill
from healing_build import parse_recipe as healing_recipe
from healing_build import write_pages
from history_hub import HistoryHub
from marked_rows import build, decoder, forget_ids, marker, markers, row_text, rows, run_forget
from nemotron_build import row as conversation
from parallel_build import from_folder
from plain_hub import copy_revisions
from plain_search import find_words
from stage_a_build import local_source, parse_recipe

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine import task_digest
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.stage2_mixture import Stage2Recipe


def stage_a(folder: Path, name: str) -> Recipe:
    source = local_source(folder, "notes", rows(60), columns={"text": "text", "id": "key"})
    sources = [source | {"filters": {"length": {"min_words": 3}}}]
    changes = {"name": name, "shard_text_bytes": 3000, "dedup": {}, "pack": {"seq_len": 32}}
    return parse_recipe(*sources, **changes)


def stage2(folder: Path, name: str) -> Recipe:
    columns = {"text": "text", "id": "key", "created_at": None, "license": None}
    source = local_source(folder, "notes", rows(60), columns=columns)
    content = {
        "system": "stage2",
        "name": name,
        "shard_text_bytes": 3000,
        "sources": [source | {"filters": {"length": {"min_characters": 20}}}],
        "tokenizer": {"kind": "trained", "sources": {"notes": "1"}, "sample_bytes": 20_000, "vocab_size": 60}
        | {"character_coverage": "1"},
        "dedup": {"mode": "exact", "scope": "global", "selection": "first"},
        "shards": {"sources": {"notes": "1"}, "seq_len": 64, "rows_per_shard": 16},
    }
    return Stage2Recipe.from_mapping(content, "made")


def nemotron(folder: Path, name: str) -> Recipe:
    lines = [conversation(f"chat_{n}", f"Where is {row_text(n)}?", f"It is near {marker(n)}.") for n in range(40)]
    (folder / "chats").mkdir(parents=True, exist_ok=True)
    (folder / "chats" / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    section = {"dataset": "chats", "path": str(folder / "chats"), "splits": ["talk"], "domain": "math"}
    keys = {"rows": {"shard_bytes": 4000}, "deduplicate": {}, "hf_layout": {"readme": True}}
    return NemotronRecipe.from_mapping({"system": "nemotron", "name": name, "datasets": [section], **keys}, "made")


def parallel_text(folder: Path, name: str) -> Recipe:
    (folder / "pairs").mkdir(parents=True, exist_ok=True)
    for split, numbers in (("train", range(45)), ("validation", range(45, 60))):
        pairs = ({"fr": f"le {marker(n)} {n}", "en": f"the {marker(n)} {n}"} for n in numbers)
        lines = "".join(json.dumps({"translation": pair}) + "\n" for pair in pairs)
        (folder / "pairs" / f"{split}-0.jsonl").write_text(lines)
    return from_folder(folder / "pairs", "jsonl", k=30).model_copy(update={"name": name})


@pytest.fixture(autouse=True)
def _same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_digest, "_versions_json", lambda: "this program")


def check_forgetting(make: Callable[[str], Recipe], run: Callable[..., Run], root: Path) -> None:
    """Forget 20 random rows and check that neither version has them."""
    first = make("first")
    before = build(first, run(keep_work=True))
    known = markers(first, root)
    forgotten = Random(20).sample(sorted(known), 20)
    words = [known[row_id] for row_id in forgotten] + forgotten
    is_decoded = {Path(name).suffix for name in find_words(root, words, decoder(root))} & {".npy", ".bin", ".mmap"}
    assert is_decoded or first.system == "nemotron"

    answer = forget_ids(root, forgotten)
    assert (answer["added"], len(answer["rows"])) == (20, 20)
    after = build(first, run(keep_work=True, replace=True))
    assert run_forget(root)["artifacts"] == []

    run_forget(root, clean=True, apply=True)

    assert find_words(root, words, decoder(root)) == {}
    assert len(markers(first, root)) == len(known) - (0 if first.system == "parallel_text" else 20)
    for target in first.targets():
        manifest = open_artifact(root / target.folder).manifest
        if before[target.role] != after[target.role]:
            assert manifest.provenance["replaces"] == before[target.role]
        if target.kind.applies_removals:
            assert manifest.identity.counts["ledger"]["dropped"]["forgotten"] >= 1

    second = make("second")
    build(second, run(keep_work=True, find_previous_folder=first.folder))
    assert {path.partition("/")[0] for path in find_words(root, words, decoder(root))} <= {"hub_cache"}


@pytest.mark.parametrize(
    "make",
    [parallel_text, *(pytest.param(make, marks=pytest.mark.slow) for make in (stage_a, stage2, nemotron))],
    ids=lambda make: make.__name__,
)
def test_forgotten_rows_leave_no_trace(make: Callable[[Path, str], Recipe], tmp_path: Path) -> None:
    root = tmp_path / "data"
    check_forgetting(lambda name: make(tmp_path / "in", name), lambda **more: Run(root, RunSettings(), **more), root)


@pytest.mark.slow
def test_forgotten_documents_leave_no_trace_in_a_healing_set(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_pages(tmp_path / "hub")
    with LoopbackHub(tmp_path / "hub") as hub:
        files = HubFiles(root / "hub_cache", endpoint=hub.endpoint)
        snapshot = {"revision": hub.commits()["maker/pages"], "shard_text_bytes": 100_000}

        def make(name: str) -> Recipe:
            recipe = healing_recipe(snapshot["revision"], snapshot | {"name": name}, {"token_budget": 200_000})
            return recipe.model_copy(update={"name": name})

        check_forgetting(make, lambda **more: Run(root, RunSettings(), files, **more), root)


@pytest.mark.slow
def test_forgotten_conversations_are_in_no_reachable_commit_of_a_hub(tmp_path: Path, corpusmill: Corpusmill) -> None:
    root, name = tmp_path / "data", "loopback/talks"
    (tmp_path / "hub").mkdir()
    with HistoryHub(tmp_path / "hub", writable=True) as hub:
        env = {**hub.client_environment(), "CORPUSMILL_HUB_TRIES": "2"}

        def publish(recipe: Recipe) -> dict[str, Any]:
            [folder] = [root / target.folder for target in recipe.targets() if target.kind.name == "nemotron/hf_layout"]
            sent = corpusmill("nemotron", "publish", name, folder, "--allow-unknown-licences", "--data", root, env=env)
            assert sent.returncode == 0, sent.stderr
            manifest: dict[str, Any] = json.loads((hub.folder / "datasets" / name / "manifest.json").read_text())
            return manifest

        def search_words(*more: str) -> set[str]:
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            copy_revisions(hub.endpoint, name, hub.token, tmp_path / "copy", more)
            assert [*(tmp_path / "copy").rglob("*.parquet")]
            return {
                word for matches in find_words(tmp_path / "copy", words, decoder(root)).values() for word in matches
            }

        first = nemotron(tmp_path / "in", "first")
        build(first, Run(root, RunSettings(), keep_work=True))
        known = markers(first, root)
        forgotten = Random(21).sample(sorted(known), 20)
        words = [known[row_id] for row_id in forgotten] + forgotten
        old = publish(first)
        assert search_words() == {*words}
        hub.set_ref(name, "refs/tags/v1", hub.commits()[name])
        earlier = sorted(hub.history(name).reachable())

        forget_ids(root, forgotten)
        build(first, Run(root, RunSettings(), keep_work=True, replace=True))
        hub.requests.clear()
        new = publish(first)
        unpublish = ("forget", "--published", name, "--data", root)
        searched = corpusmill(*unpublish, env=env)
        removed = corpusmill(*unpublish, "--apply", env=env)

        old_hashes = {file["path"]: file["sha256"] for file in old["storage"]}
        changed = {file["sha256"] for file in new["storage"] if old_hashes.get(file["path"]) != file["sha256"]}
        sent = {
            path.removeprefix("/upload/") for path in (request.path for request in hub.requests) if "/upload/" in path
        }
        assert sent <= changed and len(sent) <= 20
        assert new["provenance"] == {"replaces": identity_digest(old)}
        assert searched.returncode == 1 and "to remove the rows from the history, add --apply" in searched.stdout
        assert (removed.returncode, removed.stderr) == (0, ""), removed.stdout
        assert "entries removed: 20" in removed.stdout and "0 remaining files" in removed.stdout
        again = corpusmill(*unpublish, "--apply", env=env).stdout.splitlines()
        assert again[1:3] == ["nothing was removed", "0 remaining files"] and again[-1].startswith(
            "cannot be reached: "
        )
        kept = corpusmill(*unpublish, "--keep-history", "--apply", env=env).stdout.splitlines()
        assert kept[1] == "nothing was removed, since --keep-history is set"
        assert kept[-1].startswith("no entry was found, proved 20")
        assert hub.history(name).refs["refs/tags/v1"] == hub.commits()[name]
        assert search_words(*earlier) == set()

        second = nemotron(tmp_path / "in", "second")
        build(second, Run(root, RunSettings(), keep_work=True, find_previous_folder=first.folder))
        publish(second)
        assert search_words(*earlier) == set()


def identity_digest(manifest: dict[str, Any]) -> str:
    identity = json.dumps(manifest["identity"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(identity.encode()).hexdigest()}"
