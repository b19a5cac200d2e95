"""Push and pull of a healing set's artifacts, in short forms for tests."""

import dataclasses
import shutil
from pathlib import Path

from healing_set import HealingSet

from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.trust.pull import find_ref, pull_all
from pipeline_assets.trust.push import PushResult, push

HOUR_S = 3600.0


def ref_name(folder: Path, root: Path) -> str:
    return folder.relative_to(root).as_posix()


def send(folder: Path, built: HealingSet, store: ObjectStore, upstream: bool = True) -> PushResult:
    return push(folder, built.root, store, with_upstream=upstream, log_every_s=HOUR_S)


def fetch(store: ObjectStore, name: str, root: Path, upstream: bool = True, replace: bool = False) -> tuple[int, int]:
    ref = find_ref(store, name, None)
    pulled = pull_all(store, ref, root / name, root if upstream else None, replace, HOUR_S)
    return pulled.artifacts + pulled.present_artifacts, pulled.bytes


def read_files(folder: Path) -> dict[str, bytes]:
    """Read all files but locks and manifests, which name their builder."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith((".lock", "fest.json")))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def other_set(built: HealingSet, folder: Path) -> HealingSet:
    """Return a set whose split's folder has another artifact: its snapshot."""
    root = folder / "other"
    for target in built.recipe.targets()[:1]:
        shutil.copytree(built.root / target.folder, root / built.folder("train").relative_to(built.root))
    return dataclasses.replace(built, run=dataclasses.replace(built.run, root=root))
