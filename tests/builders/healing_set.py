"""Small sealed healing set and its verification."""

from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.build.run import Run
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.result import FileSample, Verification, VerificationScope
from pipeline_assets.trust.verify import read_and_check, scan_chain

NAMES = ("snapshot", "selection", "train", "valid", "dataset")


@dataclass(frozen=True)
class HealingSet:
    """Recipe and the run that built it; the cache has the hub's bytes."""

    recipe: HealingRecipe
    run: Run

    @property
    def root(self) -> Path:
        return self.run.root

    def folder(self, name: str) -> Path:
        targets = dict(zip(NAMES, self.recipe.targets(), strict=True))
        return self.root / targets[name].folder

    def manifest(self, name: str) -> Manifest:
        return require_manifest(self.folder(name))


def stat_contents(root: Path) -> dict[str, tuple[int, int, int]]:
    """Stat all files and folders of a root except rebuilds and the hub's cache."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(root.rglob("*"))
        if path.relative_to(root).parts[0] not in ("rebuilds", "hub_cache")
    }


def verify(
    folder: Path, root: Path | None = None, sample: str | None = None, seed: str = "0", content: bool = False
) -> Verification:
    """Verify a sealed folder; with a data root, its chain too."""
    found = scan_chain(
        folder,
        VerificationScope(root, None if sample is None else FileSample.parse(sample, seed), content),
        SYSTEMS.label_names,
    )
    read_and_check(found)
    return found
