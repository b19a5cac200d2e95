"""Data root of an artifact, found from the path of its folder."""

from pathlib import Path

from pipeline_assets.spine.areas import AREAS, MANIFEST_COPIES_FOLDER


def find_data_root(folder: Path) -> Path | None:
    """Return the data root that contains an artifact's folder; None if not in a root.

    The root is the parent of the nearest folder with a name from `AREAS`, on the path as typed, else with symlinks
    resolved. If the parent's name is also in `AREAS`, the nearest folder may be named after a recipe: the grandparent
    is then the root if it has recipes or copies of manifests, and the parent has neither.
    """
    parents = (*folder.parents, *folder.resolve().parents)
    root = next((parent.parent for parent in parents if parent.name in AREAS), None)
    if root is None:
        return None
    area = root.absolute()
    is_area = area.name in AREAS and not _has_root_folders(area) and _has_root_folders(area.parent)
    return area.parent if is_area else root


def _has_root_folders(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in ("recipes", MANIFEST_COPIES_FOLDER))
