"""Data root of an artifact, found from the path of its folder."""

from pathlib import Path

from pipeline_assets.spine.areas import AREAS, MANIFEST_COPIES_FOLDER


def find_data_root(folder: Path) -> Path | None:
    """Return the data root that contains an artifact's folder; None if not in a root.

    The area is the nearest parent folder with a name in `AREAS`, and the root is the area's parent. If no parent has
    such a name, the path's symlinks are resolved. A recipe may have the name of an area: in
    `ROOT/stage_a/corpora/packed`, `corpora` is a recipe, not an area, if `ROOT` has a folder `recipes` or `manifests`
    and `ROOT/stage_a` has neither. The root is then `ROOT`.
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
