"""Paths of a dataset that a pattern of its card means, as `datasets` reads it (fsspec's glob).

`*`, `?` and `[…]` stay in a folder and pass over hidden names, `**` stands for any number of folders. By fnmatch, whose
`*` crosses folders, one split would have the files of another.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pipeline_assets.corpus.spine.errors import InputError

_ANY_FOLDERS = "**"
_HIDDEN = "."


def matching_paths(paths: Iterable[str], patterns: Sequence[str], where: object) -> list[str]:
    """The paths that one of the patterns means, in their order; a pattern that is a path is that path alone.

    Raises:
        InputError: `**` is beside other characters, which is no pattern of `datasets` either.
    """
    there = dict.fromkeys(paths)
    named = dict.fromkeys(PurePosixPath(pattern).as_posix() for pattern in patterns)  # without `./` and `//`
    globs = [PurePosixPath(pattern).parts for pattern in named if pattern not in there]
    for parts in globs:
        if any(_ANY_FOLDERS in part and part != _ANY_FOLDERS for part in parts):
            what = f"in the pattern {'/'.join(parts)!r}, `**` is no folder of its own"
            raise InputError(what, where, "write `**/` for folders and `*` in a name")
    return [path for path in there if path in named or any(_is_meant(tuple(path.split("/")), glob) for glob in globs)]


def _is_meant(names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether the names of folders and of a file are what the parts of a pattern stand for."""
    if not names or not parts:
        return not names and not parts
    if parts[0] != _ANY_FOLDERS:
        return _is_named(names[0], parts[0]) and _is_meant(names[1:], parts[1:])
    rest = parts[1:] or ("*",)
    if _is_meant(names, rest):
        return True
    return not names[0].startswith(_HIDDEN) and _is_meant(names[1:], parts)


def _is_named(name: str, part: str) -> bool:
    return fnmatchcase(name, part) and (part.startswith(_HIDDEN) or not name.startswith(_HIDDEN))
