"""A small healing set, every artifact of it sealed."""

from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.systems.healing import HealingRecipe

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
        manifest = read_manifest(self.folder(name))
        assert manifest is not None
        return manifest


def contents_of(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every file and folder below a root, and when it was last touched; rebuilds and the hub's cache left out."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(root.rglob("*"))
        if path.relative_to(root).parts[0] not in ("rebuilds", "hub_cache")
    }
