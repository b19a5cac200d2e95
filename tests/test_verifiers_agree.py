"""The verifier of docs/manifest.md agrees with `verify` after any change."""

import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest
from healing_set import verify
from hypothesis import example, given, settings
from hypothesis import strategies as st
from manifest_page import read_lines, run_verifier_here
from root_changes import copy_writable, flip, reseal
from sealed_roots import artifact_folders, unpack_latest

from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Extract the latest root of each system; tests only read them."""
    return unpack_latest(tmp_path_factory.mktemp("intact"))


def is_damaged_for_verify(folder: Path, root: Path) -> bool:
    try:
        return verify(folder, root, content=True).verdict != "intact"
    except (InputError, UsageError):
        return True


def mutate(root: Path, rng: random.Random) -> str:
    """Change a random file of a root; return a description of the change."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    path, other = rng.choice(paths), rng.choice(paths)
    folder = rng.choice(artifact_folders(root))
    kind = rng.choice(
        ["flip", "flip manifest", "cut", "append", "remove", "add", "swap", "link", "provenance", "label"]
    )
    if kind == "flip manifest":
        path = folder / MANIFEST_FILE
    data = path.read_bytes()
    match kind:
        case "flip" | "flip manifest" if data:
            flip(path, rng.randrange(8 * len(data)))
        case "cut":
            path.write_bytes(data[: rng.randrange(len(data))] if data else b"")
        case "append":
            path.write_bytes(data + b"\n")
        case "remove" if path.name != MANIFEST_FILE or json.loads(data)["storage"]:  # otherwise no file remains
            path.unlink()
        case "add":
            (folder / rng.choice(["new.parquet", ".new", "report.html"])).write_bytes(data)
        case "swap":
            path.write_bytes(other.read_bytes())
        case "link":
            path.unlink()
            path.symlink_to(other)
        case "provenance":
            reseal(folder, lambda manifest: manifest["provenance"].update(host="another"))
        case "label":
            (folder / "notes.md").write_bytes(data)
            entry = {"path": "notes.md", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            reseal(folder, lambda manifest: manifest["storage"].append(entry))
    return f"{kind} {path.relative_to(root)} {folder.relative_to(root)}"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@settings(max_examples=25, database=None)
@example(system="healing", seed=0)
@given(system=st.sampled_from(["healing", "stage_a", "parallel_text"]), seed=st.integers(0, 1 << 32))
def test_the_verifier_agrees_with_verify_after_any_change(intact: Path, scratch: Path, system: str, seed: int) -> None:
    shutil.rmtree(scratch)
    root = copy_writable(intact / system, scratch)
    folders = artifact_folders(root)

    change = mutate(root, random.Random(seed))

    found = {folder for folder, lines in read_lines(run_verifier_here(root)).items() if lines}
    damaged = {str(folder.relative_to(root)) for folder in folders if is_damaged_for_verify(folder, root)}
    assert bool(found) == bool(damaged), change
    # A folder without a manifest has lines for its subfolders, too.
    assert [folder for folder in found if not {folder, *map(str, Path(folder).parents)} & damaged] == [], change
