"""Pins: a branch, tag or missing revision becomes a commit; other text is kept."""

import fcntl
import os
from pathlib import Path

import pytest
import yaml

from pipeline_assets.build.recipe_pins import pin_recipe, read_revision
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.systems.registry import SYSTEMS

RECIPES = Path(__file__).parents[2] / "manifests" / "recipes"
FINEWEB = "HuggingFaceFW/fineweb-edu"
PINNED = "revision: 87f09149ef4734204d70ed1d046ddc9ca3f2b8f9  # `corpusmill pin --recipe` writes a newer one"
COMMIT = "b" * 40


def write_recipe(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """Write a shipped recipe with parts of its text replaced."""
    text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / f"{name}.yaml"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("line", "before", "pinned"),
    [
        ("revision: main  # a branch", "main", f"revision: {COMMIT} # a branch"),
        ("revision: 'v1.0.0'", "v1.0.0", f"revision: '{COMMIT}'"),
        ('revision: "refs/convert/parquet"', "refs/convert/parquet", f'revision: "{COMMIT}"'),
        ("revision: 87f0914", "87f0914", f"revision: {COMMIT}"),
        ("revision:  # nobody knows", "", f"revision: {COMMIT} # nobody knows"),
        ("revision: null", "", f"revision: {COMMIT}"),
        (f'revision: "{UNPINNED}"', UNPINNED, f'revision: "{COMMIT}"'),
    ],
)
@pytest.mark.parametrize("system", ["healing_text_v1", "stage_a_v1"])
def test_any_revision_becomes_the_commit(system: str, line: str, before: str, pinned: str, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, system, (PINNED, line))
    text = path.read_text(encoding="utf-8")

    assert pin_recipe(path, FINEWEB, COMMIT, SYSTEMS) == before

    assert path.read_text(encoding="utf-8") == text.replace(line, pinned)
    assert SYSTEMS.read_recipe(path).revisions() == [(FINEWEB, COMMIT)]


def test_linked_recipe_is_pinned_in_its_own_file(tmp_path: Path) -> None:
    """Pin a file of a repository through a link in `recipes`."""
    (tmp_path / "repository").mkdir()
    original = write_recipe(tmp_path / "repository", "healing_text_v1")
    link = tmp_path / "healing_text_v1.yaml"
    link.symlink_to(original)

    pin_recipe(link, FINEWEB, COMMIT, SYSTEMS)

    assert link.is_symlink()
    assert SYSTEMS.read_recipe(original).revisions() == [(FINEWEB, COMMIT)]


def test_two_pins_of_one_recipe_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the recipe is locked while a pin reads and writes it."""
    path, is_locked = write_recipe(tmp_path, "healing_text_v1"), list[bool]()

    def try_lock(operation: durable.Operation, file: Path) -> None:
        descriptor = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked.append(False)
        except BlockingIOError:
            is_locked.append(True)
        finally:
            os.close(descriptor)

    monkeypatch.setattr(durable, "failpoint", try_lock)
    pin_recipe(path, FINEWEB, COMMIT, SYSTEMS)

    assert is_locked and all(is_locked)


@pytest.mark.parametrize("comment", ["", "  # 10 TB"])
def test_missing_revision_follows_the_dataset_and_its_comment(comment: str, tmp_path: Path) -> None:
    dataset = f"  dataset: {FINEWEB}{comment}\n"
    changes = [(f"  {PINNED}\n", ""), (f"  dataset: {FINEWEB}\n", dataset)]
    path = write_recipe(tmp_path, "healing_text_v1", *changes)
    text = path.read_text(encoding="utf-8")

    assert pin_recipe(path, FINEWEB, COMMIT, SYSTEMS) == ""

    assert path.read_text(encoding="utf-8") == text.replace(dataset, f"{dataset}  revision: {COMMIT}\n")


def test_sections_in_braces_and_windows_line_ends_are_preserved(tmp_path: Path) -> None:
    dataset = "nvidia/Nemotron-Math-Proofs-v1"
    text = (
        "system: nemotron\r\nname: proofs\r\nscan: {max_rows: null}\r\n"
        f"datasets:\r\n  - {{dataset: {dataset}, splits: [lean]}}  # one\r\n"
    )
    path = tmp_path / "proofs.yaml"
    path.write_bytes(text.encode())

    pin_recipe(path, dataset, COMMIT, SYSTEMS)

    pinned = text.replace(f"dataset: {dataset}", f"dataset: {dataset}, revision: {COMMIT}").replace("  # one", " # one")
    assert path.read_bytes() == pinned.encode()
    assert SYSTEMS.read_recipe(path).revisions() == [(dataset, COMMIT)]


def test_pin_of_one_of_two_unpinned_datasets_leaves_the_other(tmp_path: Path) -> None:
    text = (RECIPES / "nemotron_v1.yaml").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    pins = [number for number, line in enumerate(lines) if line.startswith("    revision: ")]
    math, proofs = pins[:2]  # nvidia/Nemotron-Math-v2 and nvidia/Nemotron-Math-Proofs-v1
    lines[math], lines[proofs] = "    revision: main\n", ""
    path = tmp_path / "nemotron_v1.yaml"
    path.write_text("".join(lines))

    pin_recipe(path, "nvidia/Nemotron-Math-v2", COMMIT, SYSTEMS)

    assert read_revision(path, "nvidia/Nemotron-Math-v2", SYSTEMS) == COMMIT
    assert read_revision(path, "nvidia/Nemotron-Math-Proofs-v1", SYSTEMS) == ""
    with pytest.raises(UsageError, match="set `revision` for a hub dataset"):
        SYSTEMS.read_recipe(path)


def test_only_pin_reads_a_recipe_that_names_a_branch(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, "healing_text_v1", (PINNED, "revision: main"))

    assert read_revision(path, FINEWEB, SYSTEMS) == "main"
    with pytest.raises(UsageError, match="a revision must be a commit of 40 hex digits, because branches move"):
        SYSTEMS.read_recipe(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("shard_text_bytes:", "shard_bytes:"), "unknown key `snapshot.shard_bytes`"),
        (("  seed: ", "  seed: other\n  seed: "), "repeats the key `seed`"),
    ],
)
def test_recipe_with_another_error_is_not_changed(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, "healing_text_v1", (PINNED, "revision: main"), change)
    before = path.read_bytes()

    with pytest.raises(UsageError, match=message):
        pin_recipe(path, FINEWEB, COMMIT, SYSTEMS)

    assert path.read_bytes() == before


def test_pin_of_a_dataset_at_two_revisions_is_refused(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, "stage_a_v1", (PINNED, "revision: main"))
    text = path.read_text(encoding="utf-8")
    section = text[text.index("  - kind: hub") : text.index("  - kind: wikipedia")]
    second = section.replace("source: fineweb_edu", "source: again").replace("revision: main", f"revision: {COMMIT}")
    path.write_text(text.replace(section, section + second))

    with pytest.raises(UsageError, match=f"this recipe reads {FINEWEB} at 2 revisions; write the commits by hand, or"):
        pin_recipe(path, FINEWEB, COMMIT, SYSTEMS)


def test_unread_dataset_is_refused_with_the_datasets_of_the_recipe(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, "nemotron_v1")

    with pytest.raises(UsageError, match="this recipe reads nvidia/Nemotron-Agentic-v1, nvidia/"):
        pin_recipe(path, "maker/pages", COMMIT, SYSTEMS)


def test_one_line_recipe_keeps_one_line(tmp_path: Path) -> None:
    content = yaml.safe_load((RECIPES / "healing_text_v1.yaml").read_text(encoding="utf-8"))
    next(section for section in content.values() if "revision" in section)["revision"] = "main"
    path = tmp_path / "healing_text_v1.yaml"
    path.write_text(yaml.safe_dump(content, default_flow_style=True, width=10**6), encoding="utf-8")

    pin_recipe(path, FINEWEB, COMMIT, SYSTEMS)

    assert path.read_text(encoding="utf-8").count("\n") == 1
    assert SYSTEMS.read_recipe(path).revisions() == [(FINEWEB, COMMIT)]
