"""Small healing set with all artifacts sealed, and a function that verifies it."""

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
    """A recipe, and the run that built it; the hub's bytes are in its cache."""

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


def contents_of(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every file and folder below a root, and when it was last touched; rebuilds and the hub's cache left out."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(root.rglob("*"))
        if path.relative_to(root).parts[0] not in ("rebuilds", "hub_cache")
    }


def verify(
    folder: Path, root: Path | None = None, sample: str | None = None, seed: str = "0", content: bool = False
) -> Verification:
    """What is sealed in a folder held against its manifest; with a data root, its chain too."""
    found = scan_chain(
        folder,
        VerificationScope(root, None if sample is None else FileSample.parse(sample, seed), content),
        SYSTEMS.label_names,
    )
    read_and_check(found)
    return found
