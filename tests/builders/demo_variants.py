"""Variants of the demo's data root for tests of commands that inspect a root."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS

INLINE = RunSettings(workers=0)
V1 = Path("megatron", "healing_text_v1")


def write_recipe(root: Path, changes: Mapping[str, Mapping[str, object]], name: str) -> Path:
    """Write the demo's recipe, changed and renamed, into a data root."""
    recipe = yaml.safe_load((root / "recipes" / "healing_text_v1.yaml").read_text())
    for section, keys in changes.items():
        recipe[section] |= keys
    path = root / "recipes" / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe | {"name": name}, sort_keys=False))
    return path


def build(path: Path, root: Path, cache: Path) -> None:
    run = Run(root, INLINE, HubFiles(cache, endpoint="http://127.0.0.1:9"))
    for target in SYSTEMS.read_recipe(path).targets():
        target.kind.build(target, run)


def copy_demo(demo_root: Path, root: Path) -> Path:
    shutil.copytree(demo_root, root, ignore=shutil.ignore_patterns("dagster", "hub", "hub_cache"))
    return root


def find_snapshot(root: Path) -> Path:
    return next((root / "corpora" / "fineweb_edu").glob("[!.]*"))
