"""Removal lists: lost entries or keys, growth during a build, and traces."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
from command_results import Corpusmill
from marked_rows import build, built_sources, forget_ids, run_in, sources
from paused_runs import pause_at, wait_for, wait_for_lock

from pipeline_assets.commands.forget import forget
from pipeline_assets.corpus.removal_entries import add_entries
from pipeline_assets.corpus.removal_list import read_removal_list
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError, RetryableError


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("list.json", None, "the removal list lacks entries that artifacts were compared with"),
        ("list.json", "[]\n", "the removal list lacks entries that artifacts were compared with"),
        ("list.json", "older", "the removal list lacks entries that artifacts were compared with"),
        ("secret.json", f'"{"0" * 64}"', "the key is not the one of the list, so no entry can match"),
        ("secret.json", f'"{"0" * 130}"', "the key is missing or damaged, so no entry can match"),
    ],
)
def test_no_build_runs_with_a_list_that_lost_entries_or_with_another_key(
    name: str, content: str | None, rule: str, tmp_path: Path
) -> None:
    root, recipe = built_sources(tmp_path, "notes", "other")
    forget_ids(root, ["note_7"])
    older = (root / "removals/list.json").read_text()
    forget_ids(root, ["note_8"])

    path, other = root / "removals" / name, root / "stage_a/mixed/normalized/other"
    shutil.rmtree(other)
    path.unlink() if content is None else path.write_text(older if content == "older" else content)

    with pytest.raises(InputError, match=f"{name}: {rule}"):
        forget(data=root)
    with pytest.raises(InputError, match=f"{name}: {rule}"):
        build(recipe, run_in(root, replace=True))
    assert not other.exists()


def test_no_build_runs_while_the_disk_of_a_linked_list_is_missing(tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes")
    forget_ids(root, ["note_7"])
    (root / "removals").rename(tmp_path / "disk")
    (root / "removals").symlink_to(tmp_path / "disk")
    linked = read_removal_list(root)
    (tmp_path / "disk").rename(tmp_path / "away")
    shutil.rmtree(root / "stage_a/mixed/normalized/notes")

    fix = "mount the disk of the link, or restore the folder"
    with pytest.raises(RetryableError) as refused:
        build(recipe, run_in(root, replace=True))

    assert len(linked.entries) == 1
    assert str(refused.value) == f"{root / 'removals'}: the removal list is behind a link to a missing file; {fix}"
    assert not (root / "stage_a/mixed/normalized/notes").exists()


@pytest.mark.parametrize("is_older", [False, True])
def test_no_artifact_is_built_or_rebuilt_without_the_list_that_sealed_artifacts_were_built_with(
    is_older: bool, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    root, recipe = built_sources(tmp_path, "notes")
    forget_ids(root, ["note_7"])
    shutil.copytree(root / "removals", tmp_path / "older")
    forget_ids(root, ["note_8"])
    build(recipe, run_in(root, replace=True))
    message = "the removal list is missing or lacks entries that stage_a/normalized mixed/notes was built with"

    shutil.rmtree(root / "removals")
    if is_older:
        shutil.copytree(tmp_path / "older", root / "removals")

    with pytest.raises(InputError, match=message):
        build(sources(tmp_path / "in", "notes", name="next"), run_in(root))
    with pytest.raises(InputError, match=message):
        forget_ids(root, ["note_9"])
    rebuilt = corpusmill("rebuild", root / "stage_a/mixed/normalized/notes")
    assert rebuilt.returncode == 1 and message in rebuilt.stderr


def test_an_entry_that_a_merged_list_repeats_hides_no_later_entry(tmp_path: Path) -> None:
    root, recipe = tmp_path / "data", sources(tmp_path / "in", "notes")
    path, manifest = root / "removals/list.json", root / "stage_a/mixed/normalized/notes/manifest.json"
    build(recipe, run_in(root))
    forget_ids(root, ["note_7"])
    path.write_text(json.dumps([*json.loads(path.read_text()), *json.loads(path.read_text())]))
    build(recipe, run_in(root, replace=True))

    answer = forget_ids(root, ["note_8"])
    build(recipe, run_in(root, replace=True))

    assert answer["artifacts"] == [str(manifest.parent)]
    assert json.loads(manifest.read_text())["identity"]["counts"]["ledger"]["dropped"] == {"forgotten": 2}
    assert forget_ids(root, ["note_8"])["artifacts"] == []


def test_a_forgotten_line_is_traced_as_dropped_and_its_id_is_listed(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes")
    forget_ids(root, ["note_7"])
    build(recipe, run_in(root, replace=True))
    [path] = (tmp_path / "in/sources/notes").glob("*.jsonl")

    traced = corpusmill("trace", "--source", f"{path}:8", "--data", root).stdout
    why, other = (corpusmill("stage-a", "why", name, "--data", root).stderr for name in ("note_7", "note_99"))

    assert traced.splitlines()[-1] == "          dropped: by `forgotten`, if a row begins at this byte"
    assert why.endswith("; it is on the removal list\n") and "removal list" not in other


def test_copies_of_artifacts_with_listed_rows_warn(tmp_path: Path, corpusmill: Corpusmill) -> None:
    root, folder = tmp_path / "data", tmp_path / "data/stage_a/mixed/normalized/notes"
    build(sources(tmp_path / "in", "notes"), run_in(root))
    forget_ids(root, ["note_99"])
    push, copies = ("push", folder, tmp_path.as_uri()), itertools.count()

    def warnings() -> list[str]:
        commands = (push, ("export", folder, "--out", tmp_path / f"copy{next(copies)}"))
        return [corpusmill(*command).stderr.partition("\n")[0] for command in commands]

    assert warnings() == ["", ""]

    forget_ids(root, ["note_7"])

    command = f"corpusmill forget --data {root} prints how to rebuild it"
    assert warnings() == [f"warning: {folder} has rows of the removal list; {command}"] * 2


def test_build_ends_if_the_list_grows_and_the_next_build_applies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, recipe = tmp_path / "data", sources(tmp_path / "in", "notes")

    def grow(operation: durable.Operation, path: Path) -> None:
        if operation == "mkdir" and path.match("normalized/.notes.building.*"):
            monkeypatch.setattr(durable, "failpoint", None)
            add_entries(root, [("id", "note_7")], "r", "2026-11-27")

    monkeypatch.setattr(durable, "failpoint", grow)
    with pytest.raises(RetryableError, match="entries were added to the removal list during the build"):
        build(recipe, run_in(root))

    build(recipe, run_in(root))
    counts = open_artifact(root / "stage_a/mixed/normalized/notes").manifest.identity.counts
    assert counts["ledger"]["dropped"] == {"forgotten": 1}


def test_concurrent_comparisons_lose_no_results(tmp_path: Path, started: Callable[..., Popen[str]]) -> None:
    root, _ = built_sources(tmp_path, "notes")

    def begin(name: str, env: dict[str, str]) -> Popen[str]:
        (tmp_path / name).write_text(name)
        return started("forget", "--ids", tmp_path / name, "--reason", "r", "--apply", "--data", root, env=env)

    first = begin("note_7", pause_at("/compared.json", until=tmp_path / "go"))
    wait_for(first, root, "removals/.compared.json.*")
    second = begin("note_8", {})
    wait_for_lock(second)
    (tmp_path / "go").touch()

    assert [process.communicate()[1] for process in (first, second)] == ["", ""]
    [comparison] = json.loads((root / "removals/compared.json").read_text()).values()
    assert comparison["position"] == read_removal_list(root).positions[-1]
    assert sum(comparison["rows"].values()) == 2
