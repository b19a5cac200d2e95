"""Versions of a recipe at the heads of its datasets, with names and folders."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline_assets.build import drive
from pipeline_assets.build.recipe_versions import (
    RecipeVersion,
    delete_old_artifacts,
    find_or_write_version,
    raise_if_in_future,
)
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.systems.registry import SYSTEMS


@pytest.fixture
def write_weekly(demo_root: Path, tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Return a function that writes an old recipe, and returns its text and the head."""
    (tmp_path / "recipes").mkdir()
    demo = demo_root / "recipes" / "healing_text_v1.yaml"
    revision = SYSTEMS.read_recipe(demo).revisions()[0][1]

    def write(name: str, head: str) -> tuple[str, str]:
        rest = demo.read_text().replace("name: healing_text_v1\n", "", 1).replace(revision, "0a" * 20)
        (tmp_path / "recipes" / f"{name}.yaml").write_text(f"{head}\n{rest}")
        return rest, revision

    return write


@pytest.fixture
def hub(demo_hub: LoopbackHub, tmp_path: Path) -> HubFiles:
    return HubFiles(tmp_path / "cache", endpoint=demo_hub.endpoint)


def test_a_recipe_without_hub_datasets_has_no_head_changes(notes_root: Path) -> None:
    version = find_or_write_version("mixed", notes_root, SYSTEMS, None, datetime(2026, 1, 1, tzinfo=UTC))  # type: ignore[arg-type]
    assert (version.path.stem, version.changes) == ("mixed", [])


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("name: weekly", "name: weekly_20261102"),
        ("\ufeffname: weekly", "name: weekly_20261102"),  # Notepad begins a file with a byte order mark
        ('"name" : weekly', '"name": weekly_20261102'),
        ("name:\n  weekly", "name: weekly_20261102"),
    ],
)
def test_a_version_has_its_own_name_in_any_yaml_form(
    write_weekly: Callable[..., tuple[str, str]], hub: HubFiles, tmp_path: Path, head: str, expected: str
) -> None:
    rest, revision = write_weekly("weekly", head)

    version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))

    written = version.path.read_text()
    assert written == f"{expected}\n{rest.replace('0a' * 20, revision)}"
    assert SYSTEMS.read_recipe(version.path).name == "weekly_20261102"


@pytest.mark.parametrize("name", ["123", "1_2", "1.5"])
def test_a_version_of_a_recipe_with_a_numeric_name_is_readable(
    write_weekly: Callable[..., tuple[str, str]], hub: HubFiles, tmp_path: Path, name: str
) -> None:
    write_weekly(name, f"name: '{name}'")

    version = find_or_write_version(name, tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))

    assert SYSTEMS.read_recipe(version.path).name == f"{name}_20261102"


def test_a_version_repins_its_datasets_except_those_read_at_two_commits(tmp_path: Path) -> None:
    news, wiki = "maker/news", "maker/wiki"
    for name in (news, wiki):
        folder = tmp_path / "hub" / "datasets" / name
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text("{}\n")
    path = tmp_path / "recipes" / "weekly.yaml"
    path.parent.mkdir()

    def version_on(day: int, *commits: tuple[str, str]) -> tuple[list[tuple[str, str]], list[str]]:
        source = "{kind: hub, split: train, files: ['*'], license_tag: odc-by, domain: web, columns: {text: text},"
        rows = [
            f"- {source} source: s{number}, amount: {{files: 1}}, dataset: {dataset}, revision: {commit}}}"
            for number, (dataset, commit) in enumerate(commits)
        ]
        path.write_text("\n".join(["system: stage_a", "name: weekly", "sources:", *rows, ""]))
        with LoopbackHub(tmp_path / "hub") as server:
            hub = HubFiles(tmp_path / "cache", endpoint=server.endpoint)
            version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, day, tzinfo=UTC))
        return SYSTEMS.read_recipe(version.path).revisions(), list(map(str, version.head_errors))

    with LoopbackHub(tmp_path / "hub") as server:
        heads = server.commits()
    commit, older_commit = "0a" * 20, "0b" * 20
    assert version_on(2, (news, commit), (news, older_commit), (wiki, commit)) == (
        [(news, commit), (news, older_commit), (wiki, heads[wiki])],
        [
            f"{path}: this recipe reads {news} at 2 revisions; write the commits by hand, or set one revision for all "
            "its sources"
        ],
    )
    assert version_on(3, (news, commit), (wiki, commit)) == ([(news, heads[news]), (wiki, heads[wiki])], [])
    (tmp_path / "recipes" / "weekly_20261103.yaml").write_text(path.read_text().replace("weekly", "weekly_20261103"))
    assert version_on(4, (wiki, commit)) == ([(wiki, heads[wiki])], [])  # the last version read news, too


def test_changed_files_get_a_version_although_no_dataset_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A note about the sea.")
    path = tmp_path / "recipes" / "weekly.yaml"
    path.parent.mkdir()

    def write(commit: str) -> None:
        hub_source = f"{{kind: hub, source: news, dataset: maker/news, revision: {commit}, split: train, files: ['*'],"
        hub_source += " amount: {files: 1}, license_tag: odc-by, domain: web, columns: {text: text}}"
        notes = "{kind: local, source: notes, path: notes, files: ['*.txt'], license_tag: mit, domain: web}"
        path.write_text(f"system: stage_a\nname: weekly\nsources: [{hub_source}, {notes}]\n")

    def find(hub: HubFiles) -> RecipeVersion:
        return find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))

    with LoopbackHub(tmp_path / "hub") as server:
        hub = HubFiles(tmp_path / "cache", endpoint=server.endpoint)
        write("0" * 40)
        with pytest.raises(InputError, match="maker/news"):  # no commit can be kept
            find(hub)
        write("0a" * 20)
        [notes] = [target for target in SYSTEMS.read_recipe(path).targets() if target.role.endswith("raw/notes")]
        drive.build(notes, Run(tmp_path, RunSettings(workers=0)))
        assert find(hub).path == path
        (tmp_path / "notes" / "b.txt").write_text("Another note.")
        version = find(hub)

    assert version.path == path.with_name("weekly_20261102.yaml")
    assert SYSTEMS.read_recipe(version.path).revisions() == [("maker/news", "0a" * 20)]
    assert [error.where for error in version.head_errors] == [f"maker/news on {hub.endpoint}"]


def test_versions_that_would_share_a_folder_are_refused_before_a_write(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "datasets" / "maker" / "news"
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text("{}\n")
    path = tmp_path / "recipes" / "weekly.yaml"
    path.parent.mkdir()
    source = f"{{kind: hub, source: news, dataset: maker/news, revision: {'0a' * 20}, split: train, files: ['*'],"
    source += " amount: {files: 1}, license_tag: odc-by, domain: web, columns: {text: text}}"
    text = f"system: stage_a\nname: weekly\nsources: [{source}]\n"
    path.write_text(text + "outputs: {normalized_dir: stage_a/normalized, up_to: normalized}\n")

    with LoopbackHub(tmp_path / "hub") as server:
        hub = HubFiles(tmp_path / "cache", endpoint=server.endpoint)
        with pytest.raises(UsageError) as refused:
            find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))

        assert str(refused.value) == (
            f"{path}: each version would replace the artifact of the earlier one in stage_a/raw/news; "
            "remove `outputs.normalized_dir`, so that each version has its own folders"
        )
        assert list(path.parent.iterdir()) == [path]
        path.write_text(text)
        version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))
    assert version.path.name == "weekly_20261102.yaml"


def test_an_error_that_keeps_artifacts_of_old_versions_is_reported(notes_root: Path) -> None:
    recipes, reported = notes_root / "recipes", list[str]()
    for date in ("20261102", "20261103"):
        text = (recipes / "mixed.yaml").read_text().replace("name: mixed", f"name: mixed_{date}")
        (recipes / f"mixed_{date}.yaml").write_text(text)
    (recipes / "other.yaml").write_text("name: other\nsystem: stage_a\n")

    delete_old_artifacts("mixed", notes_root, SYSTEMS, 1, reported.append)

    assert reported == [
        f"WARNING {recipes / 'other.yaml'}: the key `sources` is missing; add it; "
        "until then the artifacts of old versions are kept"
    ]


def test_a_repeated_run_of_an_earlier_period_writes_no_version(
    write_weekly: Callable[..., tuple[str, str]], hub: HubFiles, tmp_path: Path
) -> None:
    for name in ("weekly", "weekly_20261109"):
        _, revision = write_weekly(name, f"name: {name}")

    def written(day: int) -> list[str]:
        version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, day, tzinfo=UTC), "week")
        return [version.path.stem, *version.changes]

    def previous(day: int) -> str:
        version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, day, tzinfo=UTC), "week")
        return "" if version.previous_path is None else version.previous_path.stem

    assert (written(2), previous(2)) == (["weekly_20261109"], "weekly")
    assert written(16) == ["weekly_20261116", f"HuggingFaceFW/fineweb-edu: {'0a' * 20} → {revision}"]
    assert (written(9), previous(9)) == (["weekly_20261109"], "weekly")
    # The newest version may be continued, so it links files of the one before.
    assert (written(23), previous(23)) == (["weekly_20261116"], "weekly_20261109")


def test_a_version_of_a_wrong_clock_is_an_error_until_it_is_deleted(tmp_path: Path) -> None:
    now, recipes = datetime(2026, 11, 2, 12, tzinfo=UTC), tmp_path / "recipes"
    recipes.mkdir()
    for name in ("weekly", "weekly_20261026", "weekly_20261103", "weekly_20361103"):
        (recipes / f"{name}.yaml").touch()

    with pytest.raises(UsageError) as caught:
        raise_if_in_future("weekly", tmp_path, now)
    (recipes / "weekly_20361103.yaml").unlink()
    raise_if_in_future("weekly", tmp_path, now)  # it may be the third of November elsewhere

    assert str(caught.value) == (
        f"{recipes / 'weekly_20361103.yaml'}: the date of this version is later than today, 20261102, "
        "so no version can follow it; correct the clock, or delete the file if a wrong clock dated it"
    )
