"""Entries of the removal list: matched rows, stale artifacts and rewritten shards."""

import itertools
import json
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill
from crash_points import kill_at
from marked_rows import build, built_sources, forget_ids, marker, markers, row_text, rows, run_forget, run_in, sources
from stage_a_build import local_source, only, parse_recipe, recipe_with
from stage_a_sources import SITES, write_sources

from pipeline_assets.build.build_target import raise_if_occupied
from pipeline_assets.build.run import Run
from pipeline_assets.commands.forget import forget
from pipeline_assets.corpus.removal_entries import add_entries
from pipeline_assets.corpus.removal_list import read_removal_list
from pipeline_assets.spine import durable, task_digest
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import rebuild


@pytest.fixture(autouse=True)
def _same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_digest, "_versions_json", lambda: "this program")


def shards(root: Path, source: str = "notes") -> dict[str, int]:
    """Return the inode of each shard."""
    folder = root / "stage_a/mixed/normalized" / source / "shards"
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_only_shards_with_forgotten_documents_are_rewritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, recipe = tmp_path / "data", sources(tmp_path / "in", "notes", "other")
    digests, before = build(recipe, run_in(root, keep_work=True)), shards(root)

    answer = forget_ids(root, ["note_7", "note_8", "note_31"])
    [source, other] = [target.state(root) for target in recipe.targets() if target.kind.applies_removals]
    with caplog.at_level(logging.INFO, "corpusmill"):
        after = build(recipe, run_in(root, keep_work=True, replace=True))

    assert len(before) > 6 and len(answer["rows"]) == 6
    assert (source, other) == (("stale", "3 rows are on the removal list"),) * 2
    assert f"normalize notes: {len(before)} of {len(before)} shards were finished earlier" in caplog.messages
    changed = {name for name, inode in shards(root).items() if before[name] != inode}
    assert changed == {Path(row["file"]).name for row in answer["rows"] if Path(row["folder"]).name == "notes"}
    assert 0 < len(changed) <= 3
    assert digests["stage_a/raw/notes"] == after["stage_a/raw/notes"]


def test_entry_without_a_match_in_a_source_does_not_change_it(tmp_path: Path) -> None:
    root, recipe = tmp_path / "data", sources(tmp_path / "in", "notes", "other")
    digests = build(recipe, run_in(root))
    (tmp_path / "text").write_text(f"other  {row_text(5)}\n")

    answer = run_forget(root, text=[tmp_path / "text"], reason="a request", apply=True)
    after = build(recipe, run_in(root, replace=True))

    assert answer["artifacts"] == [str(root / "stage_a/mixed/normalized/other")]
    assert {role for role in digests if digests[role] != after[role]} == {"stage_a/normalized/other"}
    fresh = build(recipe, Run(tmp_path / "fresh", RunSettings()))
    assert fresh["stage_a/normalized/notes"] == after["stage_a/normalized/notes"]


def test_an_empty_removal_list_changes_no_digest_and_is_not_written(tmp_path: Path) -> None:
    root, recipe = tmp_path / "data", sources(tmp_path / "in", "notes")
    digests = build(recipe, run_in(root))

    answer = run_forget(root)

    assert (answer["artifacts"], answer["commands"]) == ([], [])
    assert not (root / "removals").exists()
    assert build(recipe, run_in(root)) == digests


def test_the_list_has_dates_reasons_and_hashes_but_nothing_in_clear(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes")

    forget_ids(root, ["note_7", "note_59"])

    lines = json.loads((root / "removals/list.json").read_text())
    assert [(line["selector"], line["reason"], len(line["hash"])) for line in lines] == [("id", "request 7", 64)] * 2
    assert re.fullmatch("20[0-9]{2}-[0-9]{2}-[0-9]{2}", lines[0]["added"])
    everything = b"".join(path.read_bytes() for path in (root / "removals").iterdir())
    assert b"note_" not in everything and marker(7).encode() not in everything


@pytest.mark.parametrize("folder_mode", [0o755, 0o777, 0o2775])
def test_the_secret_is_private_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder_mode: int
) -> None:
    tmp_path.chmod(folder_mode)
    modes = list[int]()

    def stop_at_the_secret(kind: durable.Operation, path: Path) -> None:
        if kind == "fsync" and path.name == "removals" and (path / "secret.json").exists():
            modes.append((path / "secret.json").stat().st_mode & 0o777)
            raise KeyboardInterrupt

    monkeypatch.setattr(durable, "failpoint", stop_at_the_secret)
    with pytest.raises(KeyboardInterrupt):
        add_entries(tmp_path, [("id", "note_7")], "request 7", "2026-05-01")

    assert modes == [0o600]


@pytest.mark.parametrize(("folder_mode", "secret_mode"), [(0o755, 0o600), (0o777, 0o600), (0o2775, 0o640)])
@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_only_a_group_that_shares_the_data_root_reads_the_secret(
    tmp_path: Path, umask: int, folder_mode: int, secret_mode: int
) -> None:
    tmp_path.chmod(folder_mode)
    previous = os.umask(umask)
    try:
        add_entries(tmp_path, [("id", "note_7")], "request 7", "2026-05-01")
    finally:
        os.umask(previous)

    assert (tmp_path / "removals/secret.json").stat().st_mode & 0o777 == secret_mode


def test_urls_hosts_and_patterns_are_matched(tmp_path: Path) -> None:
    urls = ["https://a.example.org/1", "http://A.example.org/2?x=1#top", "https://example.org/3", "https://b.net/4", ""]
    lines = [{"text": row_text(n), "key": f"k{n}", "url": url} for n, url in enumerate(urls)]
    recipe = parse_recipe(local_source(tmp_path, "notes", lines), outputs={"up_to": "normalized"})
    root = tmp_path / "data"
    build(recipe, run_in(root))

    def find_ids(*url: str) -> list[str]:
        return [row["id"] for row in run_forget(root, url=[*url])["rows"]]

    assert find_ids("example.org") == ["k0", "k1", "k2"]
    assert find_ids("a.example.org/2?x=1") == ["k1"]
    assert find_ids("https://example.org/3/") == find_ids("user@EXAMPLE.org:443/3") == ["k2"]
    assert find_ids("https://example.org/3?x") == []
    assert find_ids("https://*.example.org/*") == ["k0"]
    assert find_ids("net") == ["k3"]
    assert find_ids("*") == ["k0", "k1", "k2", "k3"]  # k4 has no URL
    run_forget(root, url=["http*://*.org/*"], reason="pattern", apply=True)
    build(recipe, run_in(root, replace=True))
    assert find_ids("example.org", "b.net") == ["k3"]
    assert len(read_removal_list(root).entries) == 3  # a URL each


def test_a_source_row_is_forgotten_by_its_id_and_text(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes")
    file = tmp_path / "in/sources/notes/rows.jsonl"

    answer = run_forget(root, source=[f"{file}:8"], reason="r", apply=True)

    assert ([row["id"] for row in answer["rows"]], answer["added"]) == (["note_7"], 2)


@pytest.mark.parametrize("is_numbered", [True, False], ids=["by its text", "with all that its id shows"])
def test_a_document_with_a_repeated_id_is_forgotten(tmp_path: Path, is_numbered: bool) -> None:
    lines = [{"text": row_text(n % 3)} for n in range(5)]
    recipe = parse_recipe(local_source(tmp_path, "notes", lines), outputs={"up_to": "normalized"})
    root = tmp_path / "data"
    build(recipe, run_in(root))
    numbered, *others = [row_id for row_id in markers(recipe, root) if row_id.endswith("#2")]
    plain = numbered.removesuffix("#2")

    answer = forget_ids(root, [numbered if is_numbered else plain])
    build(recipe, run_in(root, replace=True))

    assert len(others) == 1
    assert {row["id"] for row in answer["rows"]} == ({numbered} if is_numbered else {numbered, plain})
    folder = root / "stage_a/mixed/normalized/notes"
    assert open_artifact(folder).manifest.identity.counts["ledger"]["dropped"] == {"forgotten": 2}


@pytest.mark.slow
def test_near_copies_are_shown_and_kept(tmp_path: Path) -> None:
    copies = {"copy": f"{row_text(2)} end", "same": row_text(3), "third": f"{row_text(3)}!"}.items()
    lines = [*rows(6), *({"text": text, "key": key} for key, text in copies)]
    recipe, root = parse_recipe(local_source(tmp_path, "notes", lines), dedup={}), tmp_path / "data"
    build(recipe, run_in(root))

    answer = forget_ids(root, ["note_2", "same"])
    build(recipe, run_in(root, replace=True))

    assert [copy[0] for copy in answer["near_copies"]] == ["copy", "note_3", "third"]  # also a copy of a copy
    assert 0.9 < answer["near_copies"][0][2] < 1 == answer["near_copies"][1][2]
    assert {"copy", "note_3"} < markers(recipe, root).keys()


def test_worker_counts_and_fresh_builds_give_equal_bytes(tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes", keep_work=True)
    forget_ids(root, ["note_7", "note_40"])
    forget_ids(root, ["note_12", "note_7"])
    rebuilt = build(recipe, run_in(root, keep_work=True, replace=True))

    for name, workers in (("nothing", 0), ("workers", 2)):
        (tmp_path / name).mkdir()
        shutil.copytree(root / "removals", tmp_path / name / "removals")
        assert build(recipe, run_in(tmp_path / name, engine=RunSettings(workers))) == rebuilt


def test_an_artifact_is_rebuilt_with_the_list_that_it_was_built_with(tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes", "other")
    forget_ids(root, ["note_7"])
    build(recipe, run_in(root, replace=True))
    (tmp_path / "text").write_text(f"other {row_text(5)}")
    run_forget(root, text=[tmp_path / "text"], reason="later", apply=True)

    for source in ("notes", "other"):
        assert rebuild(root / "stage_a/mixed/normalized" / source, run_in(root), SYSTEMS.kinds).is_identical


def test_artifact_not_compared_with_new_entries_is_stale(tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes")
    add_entries(root, [("id", "note_7"), ("id", "absent")], "r", "2026-11-26")  # as if `forget` had been killed

    [*_, notes] = recipe.targets()
    assert notes.state(root) == (
        "stale",
        "not compared with 2 new entries of the removal list; run `corpusmill forget`",
    )
    with pytest.raises(UsageError) as uncompared:
        raise_if_occupied(notes, root, replace=False)
    assert run_forget(root)["artifacts"] == [str(root / notes.folder)]
    assert notes.state(root) == ("stale", "1 row is on the removal list")
    with pytest.raises(UsageError) as listed:
        raise_if_occupied(notes, root, replace=False)
    # No advice to build under another name, which would leave the row where it is.
    assert (uncompared.value.what, uncompared.value.fix) == (
        "not compared with 2 new entries of the removal list",
        "run `corpusmill forget`, or run with --replace",
    )
    assert (listed.value.what, listed.value.fix) == (
        "1 row is on the removal list",
        "run with --replace to build it without listed rows",
    )


def test_a_crash_while_entries_are_added_leaves_all_or_none(tmp_path: Path) -> None:
    values = [("id", f"note_{n}") for n in range(3)]
    steps, outcomes = itertools.count(1), set()
    for step in steps:
        root = tmp_path / str(step)
        root.mkdir()
        add_entries(root, values[:1], "r", "2026-11-26")
        if kill_at(step, lambda root=root: add_entries(root, values, "r", "2026-11-26")) is None:
            break
        stored = len(read_removal_list(root).entries)
        outcomes.add(stored)
        assert stored in (1, 3)
        assert add_entries(root, values, "r", "2026-11-26") == 3 - stored
        assert len(read_removal_list(root).entries) == 3
    assert outcomes == {1, 3}


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes")

    def refusal(**options: Any) -> str:
        with pytest.raises(UsageError) as refused:
            forget(data=root, **options)
        return str(refused.value)

    assert "--reason: missing" in refusal(url=["a.org"], apply=True)
    assert "--clean: excludes --ids" in refusal(url=["a.org"], clean=True)
    assert "--published: excludes --clean and options that select rows" in refusal(url=["a.org"], published="me/pools")
    assert "me/pools/: not a dataset name" in refusal(published="me/pools/")
    assert "hubs do not allow this repo name" in refusal(published="me/a--b")
    assert "the removal list is empty" in refusal(published="me/pools")
    assert "--url: must be a URL, a host or a pattern with *, got 'http://['" in refusal(url=["http://["])
    assert "--url: must be a URL, a host or a pattern with *, got 'not a url'" in refusal(url=["not a url"])
    for name, content, rule in [
        ("blank", b" \n\n", "the file is empty"),
        ("latin", b"caf\xe9\n", "the file is not UTF-8"),
    ]:
        (tmp_path / name).write_bytes(content)
        assert f"{name}: {rule}" in refusal(ids=tmp_path / name, reason="r", apply=True)
        assert f"{name}: {rule}" in refusal(text=[tmp_path / name], reason="r", apply=True)
    assert "/dev/zero: the file has more than 268,435,456 bytes" in refusal(text=[Path("/dev/zero")])
    assert "--apply: no rows to forget" in refusal(apply=True)
    for other in ({}, {"clean": True}, {"published": "me/pools"}):
        assert "--reason: no rows to forget" in refusal(reason="r", **other)
    assert "--keep-history: needs --clean or --published" in refusal(keep_history=True)
    assert "no document was read from this row" in refusal(source=[f"{tmp_path}/in/sources/notes/rows.jsonl#3"])
    assert not (root / "removals").exists()

    (root / "removals").mkdir()
    (root / "removals/list.json").write_text("{}\n")
    with pytest.raises(InputError, match="not a valid removal list: Expected `array`, got `object`"):
        forget(data=root)


@pytest.mark.slow
def test_killed_build_resumes_to_equal_bytes(tmp_path: Path) -> None:
    recipe = sources(tmp_path / "in", "notes")
    build(recipe, run_in(tmp_path / "first"))
    forget_ids(tmp_path / "first", ["note_7", "note_40"])
    expected = None
    for step in itertools.count(1, 11):
        root = tmp_path / str(step)
        shutil.copytree(tmp_path / "first", root)
        was_killed = kill_at(step, lambda root=root: build(recipe, run_in(root, replace=True)))
        built = build(recipe, run_in(root, replace=True))
        expected = expected or built
        assert built == expected
        if not was_killed:
            break
    assert step > 100


def test_pages_and_threads_are_forgotten_whole_and_their_ledgers_add_up(tmp_path: Path) -> None:
    write_sources(tmp_path)
    recipe = recipe_with(tmp_path, only("wikipedia_en", SITES[0]))
    build(recipe, run_in(tmp_path, keep_work=True))

    answer = forget_ids(tmp_path, ["wikipedia:en:3", f"stackexchange:{SITES[0]}:7"])
    build(recipe, run_in(tmp_path, keep_work=True, replace=True))  # raises if a blocking check fails

    ledgers = {}
    for source in ("wikipedia_en", SITES[0]):
        folder = tmp_path / "stage_a/mixed/normalized" / source
        ledgers[source] = open_artifact(folder).manifest.identity.ledger
        assert ledgers[source].adds_up and ledgers[source].dropped["forgotten"] == 1
    assert len(answer["rows"]) == 2
    assert (ledgers["wikipedia_en"].out, ledgers[SITES[0]].out) == (23, 17)
    kept = tmp_path / "stage_a/mixed/normalized" / f".{SITES[0]}.kept"
    assert not [path for path in kept.rglob("*") if path.is_file() and "spill" in str(path)]


def test_command_searches_adds_entries_and_lists_artifacts_to_rebuild(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, "notes")
    ids = tmp_path / "ids.txt"
    ids.write_text("note_7\n")

    searched = corpusmill("forget", "--ids", ids, "--data", root).stdout
    added = corpusmill("forget", "--ids", ids, "--reason", "request 7", "--apply", "--data", root).stdout
    listed = corpusmill("forget", "--data", root).stdout

    assert "note_7" in searched and "added" not in searched
    assert "entries added to the removal list: 1" in added
    assert f"{root}/stage_a/mixed/normalized/notes" in listed and "forget --clean" in listed
