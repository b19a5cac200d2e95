"""Commands with own steps: the docs' example, a kill, another environment."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_results import Corpusmill, Started, code_blocks, refused
from paused_runs import pause_at, wait_for

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "filters.md"
FILTERED = Path("stage_a", "mine", "filtered", "notes")


def read_example() -> tuple[str, dict[str, Any]]:
    """Return the code and the filters of the docs' example."""
    [code] = [block for block in code_blocks(PAGE, "python") if "def keep" in block]
    [section] = [block for block in code_blocks(PAGE, "yaml") if "my_filter.py" in block]
    return code, yaml.safe_load(section)["filters"]


def write_recipe(root: Path, code: str, filters: dict[str, Any], texts: list[str], **keys: object) -> Path:
    folder = root / "notes"
    folder.mkdir(parents=True)
    rows = [
        {"text": text, "id": f"note-{number}", "title": "Draft" if number == 3 else "Note"}
        for number, text in enumerate(texts)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"kind": "local", "source": "notes", "path": "notes", "files": ["*.jsonl"], "text_unit": None}
    source |= {"domain": "notes", "license_tag": "cc0-1.0", "filters": filters}
    source["columns"] = {"text": "text", "id": "id", "created_at": None, "license": None}
    content = {"system": "stage_a", "name": "mine", "sources": [source], "outputs": {"up_to": "filtered"}, **keys}
    path = root / "recipes" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(content))
    (path.parent / filters["python"]["file"]).write_text(code)
    return path


NOTES = [
    "The harbour opens at six in the morning.\n-- \nThe harbour office",
    "Too short.",
    "again and " * 20,
    "This is a draft of a longer note about ships.",
    "Ships that arrive after dark wait outside the harbour.",
]


def read_manifest(root: Path) -> dict[str, dict[str, object]]:
    manifest: dict[str, dict[str, object]] = json.loads((root / FILTERED / "manifest.json").read_text())
    return manifest


def test_the_example_of_the_docs_works(corpusmill: Corpusmill, tmp_path: Path) -> None:
    write_recipe(tmp_path, *read_example(), NOTES)

    ran = corpusmill("run", "mine", "--data", tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].endswith("2 documents; other rows: 1 own_step, 1 repetitive, 1 too_short")
    why = corpusmill("stage-a", "why", "note-2", "--data", tmp_path)
    assert "  dropped for repetitive\n    repetitive by my_filter.py" in why.stdout
    traced = corpusmill("trace", tmp_path / FILTERED, "--doc-id", "note-0")
    assert "notes/rows.jsonl#0" in traced.stdout and "The harbour opens at six in the morning." in traced.stdout


def test_an_edited_step_is_stale_and_only_a_build_runs_it(corpusmill: Corpusmill, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, *read_example(), NOTES)
    assert corpusmill("run", "mine", "--data", tmp_path).returncode == 0
    with (path.parent / "my_filter.py").open("a") as file:
        file.write(f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")

    listed = [corpusmill(word, "mine", "--data", tmp_path) for word in ("status", "plan")]

    assert all("`filters.python.pins.my_filter.py`: " in result.stdout for result in listed)
    refused_run = refused(corpusmill("run", "mine", "--data", tmp_path))
    assert "another version is sealed here: the recipe changed (`filters.python.pins.my_filter.py`: " in refused_run
    replaced = corpusmill("run", "mine", "--data", tmp_path, "--replace")
    places = "Python, packages, /usr, /lib, /proc, /sys and /dev"
    assert f": PermissionError: a step must not write, or read files outside {places}, got " in replaced.stderr
    assert not (tmp_path / "ran").exists()


SLOW = """import time


def keep(document):
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass
    return document if "7" not in document.text else "seven"
"""


@pytest.mark.slow
def test_a_kill_ends_every_step_and_the_next_run_builds_equal_bytes(
    started: Started, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    texts = [f"Note {number} is about the harbour. " * 5 for number in range(120)]
    filters = {"python": {"file": "killed_filter.py", "function": "keep"}}
    for name in ("killed", "whole"):
        write_recipe(tmp_path / name, SLOW, filters, texts, shard_text_bytes=2000)
    root = tmp_path / "killed"
    args = ("run", "mine", "--data", root, "--workers", "2")
    process = started(*args, env=pause_at("/.receipts/filter/", tmp_path / "first"))
    wait_for(process, root, "stage_a/mine/filtered/.notes.building.*/.receipts/filter/*.json")

    process.send_signal(signal.SIGKILL)
    process.wait()

    deadline = time.monotonic() + 30
    while list_step_processes():
        assert time.monotonic() < deadline, "a step survives its build"
        time.sleep(0.05)
    assert not (root / FILTERED).exists()
    for folder in (root, tmp_path / "whole"):
        ran = corpusmill("run", "mine", "--data", folder, "--workers", "0")
        assert ran.returncode == 0, ran.stderr
    assert read_manifest(root)["provenance"]["adopted_shards"] != 0
    assert read_manifest(root)["digest"] == read_manifest(tmp_path / "whole")["digest"]


def list_step_processes() -> list[Path]:
    """List the processes that run the step of this test."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            args = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"killed_filter.py" in args:
            processes.append(path)
    return processes


@pytest.mark.slow
def test_a_fresh_environment_with_equal_versions_builds_an_equal_digest(corpusmill: Corpusmill, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_recipe(first, *read_example(), NOTES)
    assert corpusmill("run", "mine", "--data", first).returncode == 0
    for name in ("notes", "recipes"):
        shutil.copytree(first / name, second / name)
    venv.create(tmp_path / "venv", with_pip=False)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    shared = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "shared.pth").write_text(f"{shared}\n")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), "HOME": str(tmp_path)}

    ran = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-m", "pipeline_assets", "run", "mine", "--data", second],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert read_manifest(second)["digest"] == read_manifest(first)["digest"]
    rebuilt = corpusmill("rebuild", second / FILTERED, "--data", second)
    assert rebuilt.stdout.startswith("identical"), rebuilt.stderr
