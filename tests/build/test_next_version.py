"""Next versions of a corpus reuse unchanged work, with the bytes of a fresh build."""

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from crash_points import count_steps, kill_at
from stage_a_build import local_source, parse_recipe

from pipeline_assets.build import drive
from pipeline_assets.build.run import Run
from pipeline_assets.spine import durable, task_digest
from pipeline_assets.spine.artifact import open_artifact, verify
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.kept_folder import KEPT_TASKS_FILE, kept_folder
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

STORIES, NOTES = "stories", "notes"
FILES = {name: range(number * 40, number * 40 + 40) for number, name in enumerate(("b", "c", "d", "e"))}
Change = Callable[[dict[str, Any], Path], None]


def page(number: int) -> dict[str, str]:
    """Build a page of its own words; every fifth repeats most of the page before it."""
    seed = number - 1 if number % 5 == 4 else number
    words = [f"word{seed}x{place}" for place in range(60)] + [f"end{number}"]
    return {"text": " ".join(words), "key": f"page-{number}"}


def write_pages(folder: Path, files: Mapping[str, Iterable[int]], suffix: str = "") -> None:
    """Write files of pages; the suffix gives repeated pages their own keys."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, numbers in files.items():
        rows = ({**page(number), "key": f"page-{number}{suffix}"} for number in numbers)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def build_content(root: Path, name: str) -> dict[str, Any]:
    """Build recipe content for two folders of four files, each file a shard."""
    sources = [local_source(root, source, [], columns={"text": "text", "id": "key"}) for source in (STORIES, NOTES)]
    for first, source in zip((0, 1000), sources, strict=True):
        folder = Path(source["path"])
        (folder / "rows.jsonl").unlink()
        write_pages(folder, {name: [first + number for number in numbers] for name, numbers in FILES.items()})
        source["filters"] = {"length": {"min_words": 3}}
    return {
        "name": name,
        "shard_text_bytes": 10_000,
        "sources": sources,
        "dedup": {},
        "pack": {"seq_len": 32},
        "decontamination": None,
    }


def recipe(content: Mapping[str, Any]) -> StageARecipe:
    changes = {key: value for key, value in content.items() if key != "sources"}
    return parse_recipe(*content["sources"], **changes)


def build(version: StageARecipe, run: Run) -> dict[str, str]:
    for target in version.targets():
        drive.build(target, run)
    return {target.role: open_artifact(run.root / target.folder).manifest.digest for target in version.targets()}


def run_in(root: Path, **settings: Any) -> Run:
    return Run(root, RunSettings(workers=0), **settings)


def add_file(content: dict[str, Any], root: Path) -> None:
    write_pages(root / "sources" / STORIES, {"f": range(200, 240)})


def add_file_in_front(content: dict[str, Any], root: Path) -> None:
    write_pages(root / "sources" / STORIES, {"a": range(200, 240)})


def repeat_old_pages(content: dict[str, Any], root: Path) -> None:
    write_pages(root / "sources" / NOTES, {"a": [4, 9, 14]}, " again")


def change_file(content: dict[str, Any], root: Path) -> None:
    write_pages(root / "sources" / STORIES, {"c": [*range(40, 60), *range(300, 320)]})


def remove_file(content: dict[str, Any], root: Path) -> None:
    (root / "sources" / STORIES / "c.jsonl").unlink()


def change_filter(content: dict[str, Any], root: Path) -> None:
    content["sources"][0]["filters"] = {"length": {"min_words": 61}, "characters": {"min_ascii_ratio": "0.9"}}


def change_selection(content: dict[str, Any], root: Path) -> None:
    content["dedup"] = {"selection": "longest"}


def reorder_sources(content: dict[str, Any], root: Path) -> None:
    content["sources"].reverse()


SLOW = [add_file_in_front, change_file, remove_file, change_filter, change_selection, reorder_sources]
CHANGES = [add_file, repeat_old_pages, *(pytest.param(change, marks=pytest.mark.slow) for change in SLOW)]


@pytest.fixture(autouse=True)
def _same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the program, because the commit of an edited checkout may change."""
    monkeypatch.setattr(task_digest, "_versions_json", lambda: "this program")


@pytest.fixture(scope="module")
def first_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the first version with kept work; return its data root."""
    root = tmp_path_factory.mktemp("first") / "data"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_digest, "_versions_json", lambda: "this program")
        build(recipe(build_content(root, "first")), run_in(root, keep_work=True))
    return root


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build the version with a new file alone; return its digests."""
    root = tmp_path_factory.mktemp("fresh") / "data"
    content = build_content(root, "second")
    add_file(content, root)
    return build(recipe(content), run_in(root))


def next_version(first_root: Path, root: Path, change: Change) -> tuple[StageARecipe, Run]:
    """Copy the first version to a new data root; return recipe and run of the next."""
    shutil.copytree(first_root, root)
    content = build_content(root, "first")
    previous = recipe(content).folder
    change(content, root)
    return recipe(content | {"name": "second"}), run_in(root, keep_work=True, find_previous_folder=previous)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_next_version_equals_a_fresh_build(change: Change, first_root: Path, tmp_path: Path) -> None:
    second, run = next_version(first_root, tmp_path / "data", change)

    built = build(second, run)

    assert built == build(second, run_in(tmp_path / "empty"))
    for target in second.targets():
        list(verify(open_artifact(tmp_path / "data" / target.folder), SYSTEMS.label_names))


def reused(caplog: pytest.LogCaptureFixture) -> dict[str, tuple[int, int]]:
    """Read the counts of finished and of all shards, by stage and source."""
    matches = re.findall(
        r"^(.+): (\d+) of (\d+) shards were finished earlier$", "\n".join(caplog.messages), re.MULTILINE
    )
    return {stage: (int(finished), int(shards)) for stage, finished, shards in matches}


def test_only_new_files_are_read_filtered_sketched_and_encoded(
    first_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second, run = next_version(first_root, tmp_path / "data", add_file)
    with caplog.at_level(logging.INFO, "corpusmill"):
        build(second, run)

    shards = reused(caplog)
    assert {shards[f"{stage} {STORIES}"] for stage in ("normalize", "filter")} == {(8, 11)}
    assert {shards[stage] for stage in ("sketches", "encode-gigatoken")} == {(20, 23)}
    assert "pairs" not in shards and "edges" not in shards and "decide" not in shards  # of all documents together


@pytest.mark.slow
def test_edited_recipe_reuses_the_work_of_the_artifacts_that_it_replaces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = build_content(tmp_path / "data", "edited")
    build(recipe(content), run_in(tmp_path / "data", keep_work=True))
    add_file(content, tmp_path / "data")
    with caplog.at_level(logging.INFO, "corpusmill"):
        built = build(recipe(content), run_in(tmp_path / "data", keep_work=True, replace=True))

    assert reused(caplog)["sketches"] == (20, 23)
    assert built == build(recipe(content), run_in(tmp_path / "empty"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.unlink()  # so that hard links of the file keep their content
    path.write_bytes(bytes(data))


def forge_task(task: dict[str, str], folder: str) -> dict[str, str]:
    """Forge a kept task with a valid receipt of files outside its folder."""
    content = task["receipt"].partition("\n")[2].replace(".work/", f".work/../{folder}/")
    return task | {"receipt": f"{hashlib.sha256(content.encode()).hexdigest()}\n{content}"}


@pytest.mark.parametrize("damage", ["flipped", "missing", "list damaged", "list forged"])
def test_damaged_work_is_redone(
    damage: str, first_root: Path, fresh: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second, run = next_version(first_root, tmp_path / "data", add_file)
    for task_list in tmp_path.rglob(f".*.kept/{KEPT_TASKS_FILE}"):
        if damage == "list damaged":
            task_list.write_bytes(task_list.read_bytes()[:-9])
        elif damage == "list forged":
            tasks, folder = json.loads(task_list.read_text()), task_list.parent.name
            task_list.write_text(json.dumps([forge_task(task, folder) for task in tasks]))
        else:
            for path in filter(Path.is_file, task_list.parent.rglob("*")):
                if path != task_list:
                    flip(path) if damage == "flipped" and path.stat().st_size else path.unlink()
    with caplog.at_level(logging.INFO, "corpusmill"):
        built = build(second, run)

    assert "sketches" not in reused(caplog)
    assert built == fresh


def test_another_program_reuses_nothing(
    first_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    second, run = next_version(first_root, tmp_path / "data", add_file)
    monkeypatch.setattr(task_digest, "_versions_json", lambda: "another program")
    with caplog.at_level(logging.INFO, "corpusmill"):
        build(second, run)

    assert reused(caplog) == {}


def test_the_work_of_an_artifact_is_kept_only_on_request(tmp_path: Path) -> None:
    version = recipe(build_content(tmp_path, "plain"))
    build(version, run_in(tmp_path))

    assert not [*tmp_path.rglob(".*.kept")]


@pytest.mark.slow
def test_version_killed_at_any_step_resumes_to_equal_bytes(first_root: Path, tmp_path: Path) -> None:
    second, run = next_version(first_root, tmp_path / "data", add_file)
    expected = build(second, run_in(tmp_path / "empty"))
    filtered = second.target("stage_a/filtered", STORIES)
    for target in second.targets():
        if target.folder == filtered.folder:
            break
        drive.build(target, run)

    def build_filtered() -> None:
        drive.build(filtered, run)

    kinds = set[str | None]()
    for step in range(1, count_steps(build_filtered), 2):
        for folder in [tmp_path / "data" / filtered.folder, kept_folder(tmp_path / "data" / filtered.folder)]:
            durable.remove(folder)
        kinds.add(kill_at(step, build_filtered))

        build_filtered()

        artifact = open_artifact(tmp_path / "data" / filtered.folder)
        assert artifact.manifest.digest == expected[filtered.role]
        list(verify(artifact, SYSTEMS.label_names))
    assert {"link", "rename", "fsync", "unlink"} <= kinds
    assert build(second, run) == expected
