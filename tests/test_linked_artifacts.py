"""Artifacts with common files: no command writes through hard links."""

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill
from stage_a_build import local_source, parse_recipe

TEXTS = [f"Note {number} is unlike each of the others: {'abcdefghij'[number] * 9}." for number in range(10)]
STEPS = {"normalized": "notes", "filtered": "notes", "deduplicated": "mixed"}
Files = dict[str, tuple[str, int]]


def write_recipe(root: Path, **source: object) -> None:
    rows = [{"text": text, "key": f"note-{number}"} for number, text in enumerate(TEXTS)]
    section = local_source(root, "notes", rows, filters={}) | source
    recipe = parse_recipe(section, dedup={"mode": "exact"}, shard_text_bytes=300, refuse_licences=[])
    path = root / "recipes" / "mixed.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({name: value for name, value in recipe.content().items() if value is not None}))


def artifact_folder(root: Path, step: str) -> Path:
    return root / "stage_a" / "mixed" / step / STEPS[step]


def list_shards(root: Path, step: str) -> list[Path]:
    return sorted((artifact_folder(root, step) / "shards").iterdir())


def hash_files(root: Path) -> Files:
    """Map each file in a folder to its hash and permissions."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(root)): (hashlib.sha256(path.read_bytes()).hexdigest(), stat.S_IMODE(path.stat().st_mode))
        for path in files
    }


@pytest.fixture(scope="module")
def template(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a data root whose three corpora have the same files."""
    root = tmp_path_factory.mktemp("linked") / "data"
    root.mkdir()
    write_recipe(root)
    assert corpusmill("run", "mixed", "--data", root).returncode == 0
    assert len(list_shards(root, "normalized")) > 2
    for first, *copies in zip(*(list_shards(root, step) for step in STEPS), strict=True):
        assert all(first.samefile(copy) for copy in copies)
    return root


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", template, tmp_path / "data"], check=True)  # which keeps the links
    write_recipe(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def witnesses(data: Path, tmp_path: Path) -> Iterator[Path]:
    """Link every sealed file into a folder that must not change in bytes or mode."""
    root = tmp_path / "witnesses"
    for step in STEPS:
        shutil.copytree(artifact_folder(data, step), root / step, copy_function=os.link)
    before = hash_files(root)
    yield root
    assert hash_files(root) == before


def replace_filtered(run: Callable[..., None], data: Path) -> None:
    write_recipe(data, filters={"length": {"max_characters": 50}})
    run("run", "mixed", "--replace")


def replace_normalized(run: Callable[..., None], data: Path) -> None:
    write_recipe(data, domain="letters")
    run("run", "mixed", "--replace")


def repair_normalized(run: Callable[..., None], data: Path) -> None:
    damaged = list_shards(data, "normalized")[0]
    damaged.unlink()
    damaged.write_bytes(b"short")
    run("run", "mixed", "--replace")


def remove_normalized(run: Callable[..., None], data: Path) -> None:
    shutil.rmtree(artifact_folder(data, "normalized"))
    run("run", "mixed", "--replace")


def collect_garbage(run: Callable[..., None], data: Path) -> None:
    recipe = yaml.safe_load((data / "recipes" / "mixed.yaml").read_text())
    (data / "recipes" / "mixed.yaml").write_text(yaml.safe_dump(recipe | {"outputs": {"up_to": "normalized"}}))
    run("gc", "--apply")
    assert not artifact_folder(data, "filtered").exists() and artifact_folder(data, "normalized").exists()


def collect_all_garbage(run: Callable[..., None], data: Path) -> None:
    (data / "recipes" / "mixed.yaml").unlink()
    run("gc", "--apply")
    assert not artifact_folder(data, "normalized").exists()


def pull_over_damaged(run: Callable[..., None], data: Path) -> None:
    store = f"file://{data.parent / 'store'}"
    (data.parent / "store").mkdir()
    run("push", artifact_folder(data, "filtered"), store)
    list_shards(data, "filtered")[0].unlink()
    run("pull", store, artifact_folder(data, "filtered"), "--replace")


def rebuild_and_keep(run: Callable[..., None], data: Path) -> None:
    run("rebuild", artifact_folder(data, "deduplicated"), "--upstream", "--keep")


SLOW = [replace_filtered, replace_normalized, remove_normalized, collect_garbage, collect_all_garbage]
SLOW += [rebuild_and_keep, pull_over_damaged]
COMMANDS = [repair_normalized, *(pytest.param(command, marks=pytest.mark.slow) for command in SLOW)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_no_command_writes_through_a_link(
    command: Callable[[Callable[..., None], Path], None], corpusmill: Corpusmill, data: Path, witnesses: Path
) -> None:
    def run(*args: object) -> None:
        result = corpusmill(*args, "--data", data)
        assert result.returncode == 0, result.stderr

    command(run, data)

    for step in STEPS:
        if artifact_folder(data, step).exists():
            assert corpusmill("verify", artifact_folder(data, step)).returncode == 0
