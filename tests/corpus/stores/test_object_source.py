"""Builds of sources in object stores, with the digests of local files."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from object_server import Fault, ObjectServer, serving
from object_sources import INLINE, NAMES, URL, build, list_gets, source_recipe, to_lines
from stage_a_build import digests, local_source, parse_recipe, step
from stage_a_sources import recipe_content, with_decontamination

from pipeline_assets.build.garbage import Survey
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.rows.follow import follow_source, source_files
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.rows.search import search_rows
from pipeline_assets.build.rows.source_row import parse_row_address
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.stores import download
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.plan import plan_recipe
from pipeline_assets.trust.rebuild import rebuild

pytest.importorskip("obstore", reason="obstore is not installed")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with serving(tmp_path, monkeypatch) as running:
        for name in NAMES:
            running.put(f"corpora/notes/{name}", to_lines(name))
        running.put("corpora/notes/readme.md", b"no row")
        running.put("corpora/notes/.hidden.jsonl", b"no row")
        running.put("corpora/notes-of-others/rows.jsonl", b"no row")
        yield running


def test_excluded_objects_are_neither_fetched_nor_inputs(server: ObjectServer, root: Path) -> None:
    section = local_source(root, "notes", [], path=URL, files=["**/*.jsonl"], exclude=["b"])
    raw = parse_recipe(section).target("stage_a/raw", "notes")

    built = raw.kind.build(raw, Run(root, INLINE))

    assert [entry["name"] for entry in built.manifest.identity.inputs] == [*NAMES[:2]]
    assert not any(name.startswith("b/") for name in list_gets(server))
    assert raw.matches_recipe(root)


def test_digests_equal_those_of_local_files_and_an_object_is_fetched_once(
    server: ObjectServer, root: Path, tmp_path: Path
) -> None:
    for name in NAMES:
        path = tmp_path / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_lines(name))

    from_store = build(root)
    from_folder = build(tmp_path / "other", str(tmp_path / "local"))

    assert digests(from_store) == digests(from_folder)
    raw, names = from_store["stage_a/raw/notes"].manifest, sorted(NAMES)
    assert [entry["name"] for entry in raw.identity.inputs] == sorted(list_gets(server)) == names
    assert raw.provenance["folder"] == "object_cache/s3/bucket/corpora/notes"
    etags = {name: server.objects[f"corpora/notes/{name}"].etag for name in names}
    assert raw.provenance["object_versions"] == etags
    server.requests.clear()
    assert digests(build(root)) == digests(from_store)
    assert server.requests == []


def test_rows_are_found_by_the_url_of_their_object(server: ObjectServer, root: Path) -> None:
    build(root)
    stores = RowStores(SYSTEMS.kinds, Lineage(root))
    url = f"{URL}/{NAMES[0]}"

    [followed] = follow_source(stores, parse_row_address(f"{url}:3", source_files(stores.lineage)))

    assert followed.part is not None and followed.part.text.startswith(f"Note 2 of {NAMES[0]} has words.")
    assert [row.place for row in search_rows(stores, url)][2].startswith(f"{NAMES[0]} byte ")


def test_a_cut_fetch_continues_by_ranges(server: ObjectServer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PART_BYTES", 1000)
    build(root)
    whole = list_gets(server)
    shutil.rmtree(root)
    server.requests.clear()
    server.faults = [Fault("403", "GET", "rows", count=1000, after=7)]

    with pytest.raises(DeniedError, match="the store refuses access"):
        build(root)
    assert not step(root, "raw", "notes").exists()
    server.faults = []
    server.requests.clear()
    built = build(root)

    assert len(whole) > 12
    assert list_gets(server) == whole[7:]
    assert built["stage_a/normalized/notes"].manifest.identity.counts["documents"] == 90


def test_a_cut_fetch_of_another_member_of_the_group_continues_in_copies(
    server: ObjectServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its owner may set the modification time of a file."""

    def set_own_times(path: Path, *, ns: tuple[int, int], change: Callable[..., None] = os.utime) -> None:
        if path.stat().st_ino in others:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        change(path, ns=ns)

    monkeypatch.setattr(download, "_PART_BYTES", 1000)
    server.faults = [Fault("403", "GET", "rows", count=1000, after=7)]
    with pytest.raises(DeniedError):
        build(root)
    server.faults = []
    others = {path.stat().st_ino for path in (root / "object_cache").rglob("*.jsonl*")}
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(os, "utime", set_own_times)

    built = build(root)

    assert built["stage_a/normalized/notes"].manifest.identity.counts["documents"] == 90


def test_damage_in_an_interrupted_copy_is_found_and_the_file_is_fetched_again(
    server: ObjectServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure can lose the bytes of a file but keep its receipt."""
    monkeypatch.setattr(download, "_PART_BYTES", 1000)
    server.faults = [Fault("403", "GET", "rows", count=1000, after=3)]
    with pytest.raises(DeniedError):
        build(root)
    server.faults = []
    path = root / "object_cache/s3/bucket/corpora/notes" / NAMES[0]
    path.write_bytes(bytes(path.stat().st_size))
    server.requests.clear()

    build(root)

    assert path.read_bytes() == to_lines(NAMES[0])
    assert list_gets(server).count(NAMES[0]) == -(-len(to_lines(NAMES[0])) // 1000)


def test_a_removed_copy_is_fetched_again_from_the_pinned_versions(server: ObjectServer, root: Path) -> None:
    built = build(root)
    server.put("corpora/notes/a/new.jsonl", to_lines("new"))
    shutil.rmtree(root / "object_cache")

    assert rebuild(built["stage_a/normalized/notes"].folder, Run(root, INLINE), SYSTEMS.kinds).is_identical
    shutil.rmtree(root / "object_cache")
    shutil.rmtree(step(root, "normalized", "notes"))
    assert digests(build(root)) == digests(built)
    assert not (root / "object_cache/s3/bucket/corpora/notes/a/new.jsonl").exists()


@pytest.mark.parametrize("rows", [40, 3, None], ids=["longer", "shorter", "gone"])
def test_an_object_that_changed_since_its_pin_is_named(server: ObjectServer, root: Path, rows: int | None) -> None:
    build(root)
    shutil.rmtree(root / "object_cache")
    shutil.rmtree(step(root, "normalized", "notes"))
    del server.objects[f"corpora/notes/{NAMES[1]}"]
    problem = "is missing, or shorter than it was listed"
    if rows is not None:
        problem = "changed since it was listed"
        server.put(f"corpora/notes/{NAMES[1]}", to_lines("other", rows))

    message = f"{URL}/{NAMES[1]}: the object {problem}; run the recipe again; if the source"
    with pytest.raises(InputError, match=message):
        build(root)


def test_a_source_that_is_pinned_again_has_the_present_objects(server: ObjectServer, root: Path) -> None:
    """Fetch only the changed and the new object, not the unchanged one."""
    build(root)
    server.put(f"corpora/notes/{NAMES[0]}", to_lines("changed", 10))
    server.put("corpora/notes/a/new.jsonl", to_lines("new", 5))
    del server.objects[f"corpora/notes/{NAMES[2]}"]
    shutil.rmtree(step(root, "raw", "notes"))
    server.requests.clear()

    built = build(root, replace=True)

    raw = built["stage_a/raw/notes"].manifest
    assert [entry["name"] for entry in raw.identity.inputs] == ["a/new.jsonl", NAMES[0], NAMES[1]]
    assert sorted(list_gets(server)) == ["a/new.jsonl", NAMES[0]]
    assert built["stage_a/normalized/notes"].manifest.identity.counts["documents"] == 10 + 5 + 30


def test_a_bit_that_flips_in_the_copy_after_the_pin_is_found(server: ObjectServer, root: Path) -> None:
    run, recipe = Run(root, INLINE), source_recipe(URL, root)
    raw, normalized = (recipe.target(f"stage_a/{name}", "notes") for name in ("raw", "normalized"))
    raw.kind.build(raw, run)
    path = root / "object_cache/s3/bucket/corpora/notes" / NAMES[1]
    original = path.stat()
    path.write_bytes(path.read_bytes().replace(b"words", b"wordz", 1))
    os.utime(path, ns=(original.st_atime_ns, original.st_mtime_ns))

    with pytest.raises(
        InputError, match=f"{path}: sha256 is .*, mixed/notes lists .*; the file changed after it was hashed"
    ):
        normalized.kind.build(normalized, run)


def test_a_copy_whose_bits_flip_before_it_is_pinned_again_is_fetched_again(server: ObjectServer, root: Path) -> None:
    first = build(root)["stage_a/raw/notes"].manifest.digest
    path = root / "object_cache/s3/bucket/corpora/notes" / NAMES[1]
    original = path.stat()
    shutil.rmtree(step(root, "raw", "notes"))
    path.write_bytes(path.read_bytes().replace(b"words", b"wordz", 1))
    os.utime(path, ns=(original.st_atime_ns, original.st_mtime_ns))

    with pytest.raises(RetryableError, match=f"{path}: the copy no longer has the bytes of its object; run the same"):
        build(root)
    second = build(root)["stage_a/raw/notes"].manifest.digest

    assert (second, path.read_bytes()) == (first, to_lines(NAMES[1]))


def test_copies_are_garbage_a_day_later_if_no_artifact_or_recipe_names_them(server: ObjectServer, root: Path) -> None:
    build(root)
    copies, recipe = root / "object_cache/s3/bucket/corpora/notes", root / "recipes/mixed.yaml"
    recipe.parent.mkdir()

    for path in copies.iterdir():
        os.utime(path, (0, 0))

    def list_garbage() -> list[Path]:
        survey = Survey(root, SYSTEMS)
        assert survey.errors == []
        return [entry.folder for entry in survey.garbage]

    assert list_garbage() == []
    shutil.rmtree(root / "stage_a")
    section = local_source(root, "notes", [], path=URL, files=["**/*.jsonl"])
    recipe.write_text(yaml.safe_dump(recipe_content("ab" * 20) | {"sources": [section]}))
    assert list_garbage() == []
    recipe.unlink()
    assert list_garbage() == [copies]

    survey = Survey(root, SYSTEMS)
    survey.remove(survey.garbage)
    assert [*copies.iterdir()] == []
    assert list_garbage() == []


def test_a_plan_lists_objects_without_fetching_them(server: ObjectServer, root: Path) -> None:
    run, targets = Run(root, INLINE, HubFiles(root / "hub_cache")), source_recipe(URL, root).targets()

    plan = plan_recipe(artifact_statuses(root, targets), run)

    assert plan.bytes_to_fetch == sum(len(to_lines(name)) for name in NAMES)
    assert plan.artifacts[0].figures["bytes_read"].value == plan.bytes_to_fetch
    assert list_gets(server) == []


@pytest.mark.slow
def test_an_evaluation_set_may_be_in_an_object_store(server: ObjectServer, root: Path) -> None:
    question = "Which river does the quick brown fox reach at the end of its long run over the hills?"
    server.put("quiz/questions.jsonl", json.dumps({"question": question, "id": "q1"}).encode() + b"\n")
    server.put(f"corpora/notes/{NAMES[0]}", json.dumps({"key": "leak", "text": question, "license": None}).encode())
    content: dict[str, Any] = {"sources": []}
    with_decontamination(content, "s3://bucket/quiz")
    source = local_source(root, "notes", [], path=URL, files=["**/*.jsonl"])
    recipe = parse_recipe(source, decontamination=content["decontamination"])

    built = {target.role: target.kind.build(target, Run(root, INLINE)) for target in recipe.targets()}

    assert built["stage_a/decontaminated"].manifest.identity.counts["ledger"]["dropped"] == {"few_words_left": 1}


@pytest.mark.parametrize(
    "name", ["../../../outside.jsonl", "a/../../outside.jsonl", "/etc/outside.jsonl", "a//b.jsonl"]
)
def test_a_name_outside_the_folder_is_never_written(
    server: ObjectServer, root: Path, tmp_path: Path, name: str
) -> None:
    server.put(f"corpora/notes/{name}", to_lines("outside"))

    with contextlib.suppress(InputError):
        build(root)

    assert [path for path in tmp_path.rglob("*outside*") if not path.is_relative_to(root / "object_cache")] == []


def test_a_name_with_a_line_end_is_shown_whole(server: ObjectServer, root: Path) -> None:
    server.put("corpora/notes/new\nline.jsonl", to_lines("new"))

    with pytest.raises(InputError, match=r"path segment \"new\\nline.jsonl\"; rename the object$"):
        build(root)


def test_names_that_differ_only_by_a_folder_and_empty_objects_are_copied(server: ObjectServer, root: Path) -> None:
    server.put("corpora/notes/c.jsonl", b"")
    server.put("corpora/notes/c.jsonl.json/d.jsonl", to_lines("d", 3))

    built = build(root)
    server.requests.clear()

    assert built["stage_a/normalized/notes"].manifest.identity.counts["documents"] == 93
    assert digests(build(root)) == digests(built)
    assert server.requests == []


def test_a_pattern_without_a_match_is_reported_in_one_line(server: ObjectServer, root: Path) -> None:
    with pytest.raises(UsageError, match=r"s3://bucket/none: no object matches \*\*/\*.jsonl; correct `files`"):
        build(root, "s3://bucket/none")
