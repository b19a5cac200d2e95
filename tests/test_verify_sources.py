"""`corpusmill verify --upstream` of what was made from files of this machine: these are hashed again too, where they
still are.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from stage_a_root import step

from pipeline_assets.corpus.readers.held import CHANGED

PROJECT = Path(__file__).parents[1]
Typed = subprocess.CompletedProcess[str]
Corpusmill = Callable[..., Typed]
FILTERED = step(Path(), "filtered", "notes")
# The command, killed before its n-th note, the first of which only begins the journal.
KILLED = """
import itertools, os, signal
from pipeline_assets.corpus.spine import durable
notes = itertools.count()
def stop(step, path):
    if path.suffix == ".jsonl" and step == "append" and next(notes) == {note}:
        os.kill(os.getpid(), signal.SIGKILL)
durable.failpoint = stop
from pipeline_assets.cli import main
main()
"""


def line_of(result: Typed, beginning: str) -> str:
    [line] = [line for line in result.stdout.splitlines() if line.startswith(beginning)]
    return line.removeprefix(beginning)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_chain_of_hub_and_local_sources_is_read_down_to_the_files_of_both(
    corpusmill: Corpusmill, stage_a_root: Path
) -> None:
    result = corpusmill("verify", stage_a_root / "stage_a" / "mixed" / "report" / "mixed", "--upstream")

    assert (result.returncode, result.stderr) == (0, "")
    assert line_of(result, "hub cache: ").startswith("of 2 files read, 2 are here whole, 0 in part (")
    # The posts of both made sites are the same bytes, so that their raw sources are one artifact.
    words = line_of(result, "source files: ")
    assert words.startswith("of 6 files read, 6 are here (")
    assert words.endswith(" bytes, all hashed), 0 changed; not here: 0 files")
    assert "intact: 54 of 54 files, " in result.stdout


def test_where_nothing_was_read_from_a_hub_nothing_is_said_of_its_cache(
    corpusmill: Corpusmill, notes_root: Path
) -> None:
    result = corpusmill("verify", notes_root / FILTERED, "--upstream")

    assert result.returncode == 0
    assert "hub cache" not in result.stdout
    size = sum(path.stat().st_size for path in (notes_root / "sources" / "notes").iterdir())
    assert line_of(result, "source files: ") == (
        f"of 2 files read, 2 are here ({size:,} bytes, all hashed), 0 changed; not here: 0 files"
    )


def test_without_upstream_source_files_are_left_alone(corpusmill: Corpusmill, notes_root: Path) -> None:
    (notes_root / "sources" / "notes" / "0.jsonl").unlink()

    result = corpusmill("verify", notes_root / FILTERED)

    assert result.returncode == 0
    assert "source files" not in result.stdout


def test_a_folder_that_is_gone_is_said_and_is_no_failure(corpusmill: Corpusmill, notes_root: Path) -> None:
    folder = notes_root / "sources" / "notes"
    shutil.rmtree(folder)

    result = corpusmill("verify", notes_root / FILTERED, "--upstream")

    assert result.returncode == 0
    assert line_of(result, "source files: ") == (
        f"of 2 files read, 0 are here (0 bytes, all hashed), 0 changed; not here: 2 files, {folder} is gone"
    )
    assert "\nintact: 13 of 13 files, " in result.stdout


def test_a_source_file_of_other_bytes_is_named_and_what_was_made_of_it_stays_intact(
    corpusmill: Corpusmill, notes_root: Path
) -> None:
    path = notes_root / "sources" / "notes" / "0.jsonl"
    flip(path)

    result = corpusmill("verify", notes_root / FILTERED, "--upstream")

    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert lines[0].startswith(f"{path}: sha256 is ")
    assert ", the manifest lists " in lines[0]
    assert lines[0].endswith(f"; {CHANGED}")
    assert [line.split()[0] for line in lines[1:4]] == ["intact"] * 3
    assert line_of(result, "source files: ").endswith(" bytes, all hashed), 1 changed; not here: 0 files")
    assert lines[-2].startswith("SOURCE CHANGED: 13 of 13 files, ")


@pytest.mark.parametrize(("change", "words"), [(Path.unlink, "the file is gone"), (Path.touch, None)])
def test_a_source_file_that_is_gone_is_a_change_and_one_that_was_only_touched_is_none(
    corpusmill: Corpusmill, notes_root: Path, change: Callable[[Path], None], words: str | None
) -> None:
    path = notes_root / "sources" / "notes" / "1.jsonl"
    change(path)

    result = corpusmill("verify", notes_root / FILTERED, "--upstream")

    assert result.returncode == (1 if words else 0)
    assert (f"{path}: {words}; {CHANGED}" in result.stdout) == (words is not None)


def test_a_source_file_that_grew_is_told_by_its_size(corpusmill: Corpusmill, notes_root: Path) -> None:
    path = notes_root / "sources" / "notes" / "1.jsonl"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\n")

    result = corpusmill("verify", notes_root / FILTERED, "--upstream", "--json")

    found = json.loads(result.stdout)
    assert (result.returncode, found["verdict"]) == (1, "source changed")
    assert found["findings"][0]["what"] == f"has {size + 1:,} bytes, the manifest lists {size:,}; {CHANGED}"
    assert (found["sources"]["listed"], found["sources"]["changed"]) == (2, [str(path)])
    assert [(file["path"], file["state"]) for file in found["sources"]["files"]] == [
        (str(path.with_name("0.jsonl")), "as_sealed")
    ]


def test_damage_and_what_is_missing_count_for_more_than_a_changed_source(
    corpusmill: Corpusmill, notes_root: Path
) -> None:
    flip(notes_root / "sources" / "notes" / "0.jsonl")
    flip(notes_root / FILTERED / "dropped.jsonl.zst")

    result = corpusmill("verify", notes_root / FILTERED, "--upstream")

    assert result.returncode == 1
    assert "\nDAMAGED: 12 of 13 files, " in result.stdout


@pytest.mark.slow
def test_a_sample_draws_among_source_files_too(corpusmill: Corpusmill, notes_root: Path) -> None:
    words = ("verify", notes_root / FILTERED, "--upstream", "--sample", "60%", "--json")
    flip(notes_root / "sources" / "notes" / "0.jsonl")

    found = [json.loads(corpusmill(*words, "--seed", seed).stdout) for seed in "abcdefgh"]

    states = {tuple(file["state"] for file in one["sources"]["files"]) for one in found}
    assert states == {("damaged", "not_read"), ("not_read", "as_sealed")}
    assert {one["verdict"] for one in found} == {"source changed", "intact of a sample"}


def test_killed_among_the_source_files_the_same_command_goes_on(
    corpusmill: Corpusmill, notes_root: Path, tmp_path: Path
) -> None:
    folder, cache = notes_root / "sources" / "notes", tmp_path / "cache"
    words = ["verify", str(notes_root / FILTERED), "--upstream", "--workers", "1", "--json"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(PROJECT)}
    killed = subprocess.run([sys.executable, "-c", KILLED.format(note=3), *words], env=environment, timeout=60)

    resumed = json.loads(corpusmill(*words, env={"XDG_CACHE_HOME": str(cache)}).stdout)

    # The largest files are read first, and those are the sources.
    assert killed.returncode == -signal.SIGKILL
    assert [file["state"] for file in resumed["sources"]["files"]] == ["read_before"] * len(list(folder.iterdir()))
    assert (resumed["verdict"], resumed["read_before"]["files"]) == ("intact", 2)


def test_a_local_file_that_is_named_like_one_of_a_hub_is_looked_for_in_its_folder(
    corpusmill: Corpusmill, tmp_path: Path
) -> None:
    from stage_a_root import build, write_notes_recipe
    from stage_a_sources import write_notes

    folder = tmp_path / "sources" / "notes"
    write_notes(folder)
    (folder / f"maker@{'a' * 40}:0.jsonl").write_bytes((folder / "0.jsonl").read_bytes())
    (folder / "0.jsonl").unlink()
    build(write_notes_recipe(tmp_path), tmp_path)

    result = corpusmill("verify", tmp_path / FILTERED, "--upstream")

    assert result.returncode == 0
    assert "hub cache" not in result.stdout
    assert line_of(result, "source files: ").startswith("of 2 files read, 2 are here (")
