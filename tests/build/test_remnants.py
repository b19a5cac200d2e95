"""Remnants of forgotten rows, as `forget --clean` lists and removes them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from marked_rows import build, built_sources, forget_ids, row_text, run_forget, run_in
from sealed_roots import ROOTS, unpack
from stage_a_build import local_source, only, parse_recipe, recipe_with
from stage_a_sources import DATASET, write_hub

from pipeline_assets.commands.export import export
from pipeline_assets.commands.forget import forget
from pipeline_assets.corpus.readers.hub_cache import cached_folders
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.lock import locked


def test_clean_lists_folders_with_forgotten_rows_and_removes_them_with_apply(tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes", "other", keep_work=True)
    folder = root / "stage_a/mixed/normalized"
    leftover, unrelated = folder / ".notes.building.7", folder / ".other.building.7"
    for path, kind in ((leftover, "stage_a/normalized"), (unrelated, "stage_a/filtered")):
        path.mkdir()
        (path / ".plan.json").write_text(json.dumps({"kind": kind, "inputs": []}))
    (root / "rebuilds").mkdir()
    downloads = [f"removals/published/me--{name}.downloads" for name in ("chats", "maths", "pools", "proofs")]
    for name in (downloads[2], downloads[3], downloads[0], downloads[1]):
        (root / name).mkdir(parents=True)
    (root / "hub_cache/maker--pages/bytes/sha256-00").mkdir(parents=True)
    (tmp_path / "text").write_text(f"notes {row_text(5)}")
    run_forget(root, text=[tmp_path / "text"], reason="r", apply=True)

    def remnants(**options: Any) -> list[str]:
        entries = run_forget(root, clean=True, **options)["remnants"]
        return [str(Path(entry["folder"]).relative_to(root)) for entry in entries if not entry["is_manual"]]

    normalized = "stage_a/mixed/normalized"
    other_folders = [f"{normalized}/.notes.building.7", f"{normalized}/.notes.kept", *downloads, "rebuilds"]
    assert remnants() == [f"{normalized}/notes", *other_folders]
    assert remnants(keep_history=True, apply=True) == other_folders
    assert (folder / "notes").exists() and not leftover.exists() and unrelated.exists()
    assert remnants(apply=True) == [f"{normalized}/notes"] and remnants() == []
    assert sorted(path.name for path in folder.iterdir() if not path.name.endswith((".lock", ".checks.json"))) == [
        ".other.building.7",
        ".other.kept",
        "notes.manifest.json",
        "other",
        "other.manifest.json",
    ]
    build(recipe, run_in(root))
    assert open_artifact(folder / "notes").manifest.identity.counts["ledger"]["dropped"] == {"forgotten": 1}


def test_clean_names_sources_and_keeps_folders_of_a_running_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = built_sources(tmp_path, "notes", keep_work=True)
    for name in ("dagster", "rebuilds"):
        (root / name).mkdir()
    forget_ids(root, ["note_7"])
    notes = root / "stage_a/mixed/normalized/notes"
    kept = notes.with_name(".notes.kept")

    with locked(notes):
        answer = run_forget(root, clean=True)
        forget(data=root, clean=True, apply=True)
        printed = capsys.readouterr().out.splitlines()
        history = run_forget(root, clean=True, keep_history=True, apply=True)

    assert [entry["folder"] for entry in answer["remnants"] if entry["is_manual"]] == [
        str(root / "dagster"),
        str(tmp_path / "in/sources/notes"),
    ]
    assert [line for line in printed if line.startswith(("in use", "removed"))] == [
        f"in use: {notes}; run the same command later",
        f"in use: {kept}; run the same command later",
        "removed: 1 folder",
    ]
    assert history["in_use"] == [str(kept)]
    assert notes.exists() and kept.exists() and not (root / "rebuilds").exists()
    run_forget(root, clean=True, keep_history=True, apply=True)
    assert notes.exists() and not kept.exists()


def test_clean_keeps_folders_of_a_running_rebuild_or_search(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes")
    forget_ids(root, ["note_7"])
    rebuilt, downloads = root / "rebuilds/notes", root / "removals/published/me--pools.downloads"
    (root / "rebuilds/notes.unfinished").mkdir(parents=True)
    downloads.mkdir(parents=True)

    with locked(rebuilt), locked(downloads.with_suffix(".json")):
        answer = run_forget(root, clean=True, keep_history=True, apply=True)

    assert answer["in_use"] == [str(downloads), str(root / "rebuilds")]
    assert (root / "rebuilds/notes.unfinished").exists() and downloads.exists()
    assert run_forget(root, clean=True, keep_history=True, apply=True)["in_use"] == []
    assert not (root / "rebuilds").exists() and not downloads.exists()


def test_clean_removes_exports_and_copies_of_affected_artifacts_anywhere_in_the_root(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes")
    notes, exports = root / "stage_a/mixed/normalized/notes", root / "exports"
    export(notes, out=exports / "rows", to="jsonl")
    for target in ("exports/copy", "demo/stage_a/notes"):
        shutil.copytree(notes, root / target)
    forget_ids(root, ["note_7"])

    with locked(exports / "copy"):
        answer = run_forget(root, clean=True, apply=True)

    reason = "an export or copy of an artifact"
    folders = [Path(remnant["folder"]) for remnant in answer["remnants"] if remnant["reason"] == reason]
    assert folders == [exports / "copy", exports / "rows"] and answer["in_use"] == [str(exports / "copy")]
    assert (exports / "copy").exists() and not (exports / "rows").exists()
    assert (root / "demo/stage_a/notes").exists()  # of another data root


def test_clean_keeps_an_export_that_is_a_source_of_another_recipe(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes")
    rows = root / "exports/rows"
    export(root / "stage_a/mixed/normalized/notes", out=rows, to="jsonl")
    source = local_source(
        tmp_path, "second", [], path=str(rows), files=["*.zst"], columns={"text": "text", "id": "doc_id"}
    )
    build(parse_recipe(source, name="other", outputs={"up_to": "normalized"}), run_in(root))
    forget_ids(root, ["note_7"])

    answer = run_forget(root, clean=True, apply=True)

    assert {remnant["is_manual"] for remnant in answer["remnants"] if remnant["folder"] == str(rows)} == {True}
    assert rows.exists()


def test_clean_names_exports_of_artifacts_that_the_root_lacks(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes", "other")
    (root / "exports").mkdir()
    (root / "stage_a/mixed/normalized/other").rename(root / "exports/other")
    forget_ids(root, ["note_7"])

    answer = run_forget(root, clean=True, apply=True)

    folders = {item["folder"]: item["reason"] for item in answer["remnants"] if item["is_manual"]}
    assert folders[str(root / "exports/other")] == "an export or copy of an artifact that the data root lacks"
    assert (root / "exports/other").exists()


def up_to_normalized(content: dict[str, Any], source: str) -> None:
    only(source)(content)
    content["outputs"] = {"up_to": "normalized"}


def test_clean_empties_the_cache_of_hub_files_and_keeps_the_folders_that_builds_lock(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_hub(tmp_path / "hub")
    with LoopbackHub(tmp_path / "hub") as hub:
        recipe = recipe_with(root, lambda content: up_to_normalized(content, "pages"), hub.commits()[DATASET])
        build(recipe, run_in(root, hub=HubFiles(root / CACHE_FOLDER, hub.endpoint)))
    folders = [folder for _, folder in cached_folders(root / CACHE_FOLDER)]
    assert len(folders) == 2 and all(any(folder.iterdir()) for folder in folders)
    forget_ids(root, ["page-3"])

    answer = run_forget(root, clean=True, keep_history=True, apply=True)

    reason = "a cached hub file, which a build fetches again"
    cached = [entry["folder"] for entry in answer["remnants"] if entry["reason"] == reason]
    assert cached == list(map(str, folders))
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
    assert answer["in_use"] == []


def test_model_of_a_chat_template_is_not_a_source(tmp_path: Path) -> None:
    root = unpack(max(ROOTS.glob("*/chat_template.tar.xz")), tmp_path)
    forget_ids(root, ["row-1"])

    answer = run_forget(root, clean=True)

    folders = [Path(entry["folder"]) for entry in answer["remnants"] if entry["is_manual"]]
    assert [folder.parts[-2:] for folder in folders] == [("chat_template", "rows")]
