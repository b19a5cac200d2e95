"""Artifacts with common files: no command writes through the hard links."""

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
from stage_a_build import local_source, recipe_of

TEXTS = [f"Note {number} is unlike each of the others: {'abcdefghij'[number] * 9}." for number in range(10)]
STEPS = {"normalized": "notes", "filtered": "notes", "deduplicated": "mixed"}
Files = dict[str, tuple[str, int]]


def write_recipe(root: Path, **source: object) -> None:
    rows = [{"text": text, "key": f"note-{number}"} for number, text in enumerate(TEXTS)]
    section = local_source(root, "notes", rows, filters={}) | source
    recipe = recipe_of(section, dedup={"mode": "exact"}, shard_text_bytes=300, refuse_licences=[])
    path = root / "recipes" / "mixed.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({name: value for name, value in recipe.content().items() if value is not None}))


def folder(root: Path, step: str) -> Path:
    return root / "stage_a" / "mixed" / step / STEPS[step]


def shards(root: Path, step: str) -> list[Path]:
    return sorted((folder(root, step) / "shards").iterdir())


def files_in(place: Path) -> Files:
    """Hash and permissions of each file below a folder."""
    files = [path for path in place.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(place)): (hashlib.sha256(path.read_bytes()).hexdigest(), stat.S_IMODE(path.stat().st_mode))
        for path in files
    }


@pytest.fixture(scope="module")
def template(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a data root whose three corpora have the same files."""
    root = tmp_path_factory.mktemp("linked") / "data"
    root.mkdir()
    write_recipe(root)
    assert corpusmill("run", "mixed", "--data", root).returncode == 0
    assert len(shards(root, "normalized")) > 2
    for first, *copies in zip(*(shards(root, step) for step in STEPS), strict=True):
        assert all(first.samefile(copy) for copy in copies)
    return root


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", template, tmp_path / "data"], check=True)  # which keeps the links
    write_recipe(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def witnesses(data: Path, tmp_path: Path) -> Iterator[Path]:
    """Link every sealed file to a place whose bytes and permissions must not change."""
    place = tmp_path / "witnesses"
    for step in STEPS:
        shutil.copytree(folder(data, step), place / step, copy_function=os.link)
    before = files_in(place)
    yield place
    assert files_in(place) == before


def replace_filtered(run: Callable[..., None], data: Path) -> None:
    write_recipe(data, filters={"length": {"max_characters": 50}})
    run("run", "mixed", "--replace")


def replace_normalized(run: Callable[..., None], data: Path) -> None:
    write_recipe(data, domain="letters")
    run("run", "mixed", "--replace")


def repair_normalized(run: Callable[..., None], data: Path) -> None:
    damaged = shards(data, "normalized")[0]
    damaged.unlink()
    damaged.write_bytes(b"short")
    run("run", "mixed", "--replace")


def remove_normalized(run: Callable[..., None], data: Path) -> None:
    shutil.rmtree(folder(data, "normalized"))
    run("run", "mixed", "--replace")


def collect_garbage(run: Callable[..., None], data: Path) -> None:
    recipe = yaml.safe_load((data / "recipes" / "mixed.yaml").read_text())
    (data / "recipes" / "mixed.yaml").write_text(yaml.safe_dump(recipe | {"outputs": {"up_to": "normalized"}}))
    run("gc", "--apply")
    assert not folder(data, "filtered").exists() and folder(data, "normalized").exists()


def collect_all_garbage(run: Callable[..., None], data: Path) -> None:
    (data / "recipes" / "mixed.yaml").unlink()
    run("gc", "--apply")
    assert not folder(data, "normalized").exists()


def pull_in_place_of_a_damaged_one(run: Callable[..., None], data: Path) -> None:
    store = f"file://{data.parent / 'store'}"
    (data.parent / "store").mkdir()
    run("push", folder(data, "filtered"), store)
    shards(data, "filtered")[0].unlink()
    run("pull", store, folder(data, "filtered"), "--replace")


def rebuild_and_keep(run: Callable[..., None], data: Path) -> None:
    run("rebuild", folder(data, "deduplicated"), "--upstream", "--keep")


COMMANDS = [
    repair_normalized,
    *(
        pytest.param(command, marks=pytest.mark.slow)
        for command in (
            replace_filtered,
            replace_normalized,
            remove_normalized,
            collect_garbage,
            collect_all_garbage,
            rebuild_and_keep,
            pull_in_place_of_a_damaged_one,
        )
    ),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_no_command_writes_through_a_link(
    command: Callable[[Callable[..., None], Path], None], corpusmill: Corpusmill, data: Path, witnesses: Path
) -> None:
    def run(*words: object) -> None:
        done = corpusmill(*words, "--data", data)
        assert done.returncode == 0, done.stderr

    command(run, data)

    for step in STEPS:
        if folder(data, step).exists():
            assert corpusmill("verify", folder(data, step)).returncode == 0
