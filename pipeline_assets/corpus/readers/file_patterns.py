"""File patterns of local sources, in shell syntax."""

import fnmatch
import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path, PurePosixPath

from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.files import require_folder

_MAX_LEVELS = 400  # folders inside one another; Python recurses through them, and its limit is 1,000 calls
_WILDCARD = re.compile(r"[*?\[]")
_UNDECODED_BYTE = re.compile("[\udc80-\udcff]")  # how Python stores a byte of a name that is not UTF-8


def matching_names(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return the sorted paths of files that match any pattern; see `list_files`.

    Paths are relative to `root`. Raise UsageError for a pattern that matches no file.
    """
    names: set[str] = set()
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        if not parts or (root / pattern).is_file():
            matches = {PurePosixPath(pattern).as_posix(): not parts}
        else:
            matches = dict(_glob(root, "", parts, real_folder_and_parents(root)))
        files = {name for name, is_folder in matches.items() if not is_folder}
        if not files:
            raise _no_match_error(root, pattern, bool(matches))
        names |= files
    return sorted(names)


def glob_paths(pattern: str) -> Iterator[Path]:
    """Yield the paths that an absolute pattern matches.

    A path with exactly this name is the only one. Unlike in `glob`, links that loop are not followed.
    """
    if os.path.lexists(pattern):
        yield Path(pattern)
        return
    parts = PurePosixPath(pattern).parts
    root = Path(*itertools.takewhile(lambda part: not _WILDCARD.search(part), parts[:-1]))
    for name, _ in _glob(root, "", parts[len(root.parts) :], real_folder_and_parents(root)) if parts else ():
        yield root / name


def real_folder_and_parents(folder: Path) -> Set[Path]:
    """Return the real paths of a folder and its parents, to detect links that loop."""
    real = Path(os.path.realpath(folder))
    return {real, *real.parents}


def _glob(root: Path, folder: str, parts: Sequence[str], ancestors: Set[Path]) -> Iterator[tuple[str, bool]]:
    """Yield each path below `folder` that matches `parts`, and whether it is a folder.

    `parts` are the remaining parts of a pattern. `folder` is empty or ends with `/`; `folder` and the yielded paths are
    relative to `root`. `ancestors` are the real paths of `folder` and of all folders above it. A link to one of them is
    not followed, so that the search ends.
    """
    (first, *rest), is_any_depth = parts, parts[0] == "**"
    if is_any_depth and rest:
        yield from _glob(root, folder, rest, ancestors)
    _check_depth(root, folder.count("/"))
    for entry in os.scandir(root / folder) if (root / folder).is_dir() else ():
        is_hidden = entry.name.startswith(".") and not first.startswith(".")
        if is_hidden or not (is_any_depth or fnmatch.fnmatchcase(entry.name, first)):
            continue
        is_folder = Path(entry.path).is_dir() if entry.is_symlink() else entry.is_dir()
        if is_folder and (is_any_depth or rest):
            real = Path(os.path.realpath(entry.path))
            if real not in ancestors:
                deeper = parts if is_any_depth else rest
                yield from _glob(root, f"{folder}{entry.name}/", deeper, ancestors | {real})
        elif not rest:
            yield folder + entry.name, is_folder


def walk_folder(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each folder's path and the names of its folders and files, as in os.walk.

    Raise UsageError if folders are nested too deep.
    """
    for name, folders, names in os.walk(root):
        parent = Path(name)
        _check_depth(root, len(parent.parts) - len(root.parts))
        yield parent, folders, names


def _check_depth(root: Path, levels: int) -> None:
    if levels > _MAX_LEVELS:
        fix = "move the inner folders up, or out of this folder"
        raise UsageError(f"folders are nested more than {_MAX_LEVELS} levels deep", root, fix)


def is_excluded(name: str, patterns: Sequence[str]) -> bool:
    """Check whether any pattern matches the path of a file or of a folder above it.

    Unlike in `matching_names`, wildcards also match hidden names. Patterns are matched against `utf8_name(name)`.
    """
    if not patterns:
        return False
    parts, (plain, special) = PurePosixPath(utf8_name(name)).parts, _parse_exclude(tuple(patterns))
    is_named = any(parts[:length] in plain for length in range(len(parts) + 1))
    return is_named or any(_matches_start(parts, pattern) for pattern in special)


def utf8_name(name: str) -> str:
    """Return a file name with U+FFFD in place of each byte that is not UTF-8."""
    return name if name.isascii() else _UNDECODED_BYTE.sub("\ufffd", name)


@functools.lru_cache(maxsize=8)
def _parse_exclude(patterns: tuple[str, ...]) -> tuple[Set[tuple[str, ...]], list[tuple[str, ...]]]:
    """Split patterns at slashes; return (patterns without wildcards, with wildcards)."""
    plain = {PurePosixPath(pattern).parts for pattern in patterns if not _WILDCARD.search(pattern)}
    return plain, [PurePosixPath(pattern).parts for pattern in patterns if _WILDCARD.search(pattern)]


def _matches_start(names: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_matches_start(names[start:], pattern[1:]) for start in range(len(names)))
    return bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and _matches_start(names[1:], pattern[1:])


def _no_match_error(root: Path, pattern: str, has_folders: bool) -> UsageError:
    """Return the error for a pattern that matches no file, with a proposed correction."""
    require_folder(root, "correct the source's folder")
    if has_folders:
        fix = f"write {f'{pattern}/*'.lstrip('/').replace('//', '/')} for the files in the folder"
        return UsageError(f"the pattern {pattern!r} matches only folders", root, fix)
    folder = next(parent for parent in (root / pattern).parents if parent.is_dir())
    entries = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    preview = ", ".join(entries[:5]) + (f" and {len(entries) - 5} more" if len(entries) > 5 else "")
    fix = f"correct `files`; the folder contains {preview or 'no files'}"
    return UsageError(f"no file matches {pattern!r}", folder, fix)
