"""Copies of objects: a pin names its objects, whatever else their folder contains."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_server import ObjectServer, serving
from object_sources import INLINE, NAMES, URL, build, list_gets, source_recipe, to_lines
from stage_a_build import digests, step

from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.plan import plan_recipe
from pipeline_assets.trust.result import VerificationScope
from pipeline_assets.trust.verify import read_and_check, scan_chain

pytest.importorskip("obstore", reason="obstore is not installed")
COPIES = "object_cache/s3/bucket/corpora/notes"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with serving(tmp_path, monkeypatch) as running:
        for name in NAMES:
            running.put(f"corpora/notes/{name}", to_lines(name))
        yield running


def is_current(root: Path, path: str = URL) -> bool:
    return all(target.matches_recipe(root) for target in source_recipe(path, root).targets())


@pytest.mark.parametrize("change", ["remove", "shorten", "edit", "touch"])
def test_missing_and_changed_copies_are_fetched_again_when_they_are_read(
    server: ObjectServer, root: Path, change: str
) -> None:
    """A new object in the store, which the pin does not name, is not fetched."""
    built, path = build(root), root / COPIES / NAMES[1]
    server.put("corpora/notes/a/new.jsonl", to_lines("new"))
    if change == "remove":
        path.unlink()
    elif change == "shorten":
        os.truncate(path, 100)
    elif change == "edit":
        path.write_bytes(path.read_bytes().replace(b"words", b"wordz", 1))
    else:
        path.touch()

    assert is_current(root)
    shutil.rmtree(step(root, "normalized", "notes"))
    server.requests.clear()

    assert digests(build(root)) == digests(built)
    assert list_gets(server) == ([] if change == "touch" else [NAMES[1]])
    assert path.read_bytes() == to_lines(NAMES[1])


def test_a_plan_counts_the_pinned_objects_that_its_builds_fetch_again(server: ObjectServer, root: Path) -> None:
    build(root)
    targets, run = source_recipe(URL, root).targets(), Run(root, INLINE, HubFiles(root / "hub_cache"))
    shutil.rmtree(root / "object_cache")
    nothing_to_build = plan_recipe(artifact_statuses(root, targets), run).bytes_to_fetch
    shutil.rmtree(step(root, "normalized", "notes"))
    server.requests.clear()

    planned = plan_recipe(artifact_statuses(root, targets), run).bytes_to_fetch

    assert (nothing_to_build, planned) == (0, sum(len(to_lines(name)) for name in NAMES))
    assert server.requests == []
    build(root)
    assert sorted(list_gets(server)) == sorted(NAMES)


def test_a_copy_that_another_recipe_fetched_changes_no_pin(server: ObjectServer, root: Path) -> None:
    """The folder of the second source is inside the folder of the first."""
    built = build(root)
    server.put("corpora/notes/b/new.jsonl", to_lines("new"))
    other = source_recipe(f"{URL}/b", root, "other").target("stage_a/raw", "notes")

    build(root, f"{URL}/b", name="other")

    assert (root / COPIES / "b/new.jsonl").exists()
    assert other.matches_recipe(root)
    assert is_current(root)
    shutil.rmtree(step(root, "normalized", "notes"))
    assert digests(build(root)) == digests(built)


def test_a_copy_that_arrives_before_the_pin_is_not_pinned_without_a_version(server: ObjectServer, root: Path) -> None:
    """Another process copies objects that did not exist when this one listed them."""

    def fetch_new() -> None:
        if list_gets(server):
            (root / COPIES / "a/new.jsonl").write_bytes(to_lines("new"))

    server.watch = fetch_new

    raw = build(root)["stage_a/raw/notes"].manifest

    assert [entry["name"] for entry in raw.identity.inputs] == sorted(raw.provenance["object_versions"]) == [*NAMES]


def test_another_url_is_a_change_even_without_copies(server: ObjectServer, root: Path) -> None:
    build(root)
    shutil.rmtree(root / "object_cache")
    server.put("corpora/others/rows.jsonl", to_lines("others"))
    other = "s3://bucket/corpora/others"

    assert not is_current(root, other)
    with pytest.raises(UsageError, match=f"the objects were read from {URL}, the recipe has {other}"):
        build(root, other)
    assert build(root, other, replace=True)["stage_a/raw/notes"].manifest.identity.counts["files"] == 1


def test_verify_counts_missing_copies_as_unavailable(server: ObjectServer, root: Path) -> None:
    normalized = build(root)["stage_a/normalized/notes"].folder
    (root / COPIES / NAMES[1]).unlink()

    verification = scan_chain(normalized, VerificationScope(root), SYSTEMS.label_names)
    read_and_check(verification)

    assert verification.source_check is not None
    assert verification.source_check.unavailable == [str(root / COPIES / NAMES[1])]
    assert (verification.verdict, len(verification.source_check.tasks)) == ("intact", 2)


def test_empty_objects_that_stand_for_folders_are_left_out(server: ObjectServer, root: Path) -> None:
    """Consoles of S3 and GCS create one per folder; its name ends with a slash."""
    for folder in ("", "a/", "b/deep/"):
        server.put(f"corpora/notes/{folder}", b"")
    raw = source_recipe(URL, root, files=["**/*"]).target("stage_a/raw", "notes")

    built = raw.kind.build(raw, Run(root, INLINE))

    assert [entry["name"] for entry in built.manifest.identity.inputs] == [*NAMES]


def test_an_object_with_the_name_of_a_folder_is_refused(server: ObjectServer, root: Path) -> None:
    server.put("corpora/notes/c.jsonl", to_lines("c"))
    server.put("corpora/notes/c.jsonl/d.jsonl", to_lines("d"))

    message = f"{URL}: the name 'c.jsonl' is also the folder of other objects; rename the object, or narrow `files`"
    with pytest.raises(InputError, match=message):
        build(root)
