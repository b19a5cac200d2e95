"""Files that filters read, such as lists and models, pinned by their sha256."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic

from pipeline_assets.spine.disk_errors import read_error_text
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.key_types import SHA256_RULE, pattern_rule
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.section import RecipeSection

_FILTER_FILES = "filter_files"  # provenance key: sha256, size and modification time of each file, by path


class PinnedFile(RecipeSection):
    """File that a filter reads.

    Attributes:
        path: Absolute path, or path relative to the data root. The path is not part of the recipe's `content`, because
            it does not change the output.
        sha256: Hash of the file. If empty, the build fails with an error that contains the actual hash.
    """

    path: str = pydantic.Field("", exclude=True)
    sha256: Annotated[str, pattern_rule("([0-9a-f]{64})?", SHA256_RULE)] = ""


@dataclass(frozen=True)
class FilterFiles:
    """Sha256 hashes of the files that filters read, by path.

    Paths are absolute, or relative to the data root.
    """

    hashes: Mapping[str, str]

    @classmethod
    def from_files(cls, files: Iterable[PinnedFile]) -> "FilterFiles | None":
        """Return the hashes of a recipe's pinned files; None if it has no such files."""
        hashes = {file.path: file.sha256 for file in files}
        return cls(hashes) if hashes else None

    @classmethod
    def from_manifest(cls, manifest: Manifest, root: Path) -> "FilterFiles | None":
        """Return the hashes of a corpus's filter files; None if its filters read no file.

        Paths become absolute; `root` is the data root.
        """
        files = manifest.provenance.get(_FILTER_FILES)
        return cls({str((root / path).absolute()): sha256 for path, (sha256, *_) in files.items()}) if files else None

    def provenance(self, root: Path) -> dict[str, Any]:
        """Return the sha256, size and modification time of each file, for provenance."""
        return {_FILTER_FILES: {path: _file_record(root / path, sha256) for path, sha256 in self.hashes.items()}}

    def describe_changes(self, root: Path, manifest: Manifest) -> str | None:
        """Describe the first file whose hash differs from its pin; None if all match.

        Files that cannot be read are skipped. A file is hashed only if its pin, size or modification time differs from
        the provenance in the manifest.
        """
        recorded = manifest.provenance.get(_FILTER_FILES, {}).values()
        for path, sha256 in self.hashes.items():
            with contextlib.suppress(OSError):
                is_recorded = _file_record(root / path, sha256) in recorded
                if not is_recorded and (actual := file_sha256(root / path)) != sha256:
                    return f"{path} changed: its sha256 is {actual}, the recipe pins {sha256}"
        return None

    def check_and_resolve(self, content: Mapping[str, Any], root: Path) -> dict[str, Any]:
        """Check all files against their pins; add their paths to a recipe's `content`.

        `content` is the recipe content of filters. The result has an absolute `path` next to each `sha256`.

        Raises:
            InputError: A file cannot be read, is not pinned, or its hash differs from its pin.
        """
        for path, sha256 in self.hashes.items():
            try:
                actual = file_sha256(root / path)
            except OSError as error:
                fix = "restore the file, or correct its `path` in the recipe"
                raise InputError(f"a file of the filters {read_error_text(error)}", root / path, fix) from None
            if not sha256:
                raise InputError("the recipe does not pin the file", root / path, f"write `sha256: {actual}`")
            if actual != sha256:
                fix = "restore the file, or pin the hash of the intended file"
                raise InputError(f"sha256 is {actual}, the recipe pins {sha256}", root / path, fix)
        return _with_paths(content, {sha256: str((root / path).absolute()) for path, sha256 in self.hashes.items()})


def filter_file_problems(
    keys: tuple[str | int, ...], filters: Mapping[str, object], root: Path, is_built: bool
) -> Iterator[RecipeProblem]:
    """Yield an error for each filter file that is missing, or has no path or no hash.

    If the hash is missing, the error states the hash to add. `keys` is the path of the filters in the recipe. Files of
    filters whose corpus `is_built` may be missing. A file that cannot be read is skipped; the build reports it.
    """
    blocklist, score = section_at(filters, "blocklist"), section_at(filters, "score")
    files: dict[tuple[str, ...], Any] = {
        ("blocklist", kind, name): file
        for kind in ("domains", "urls", "words")
        for name, file in section_at(blocklist, kind).items()
    }
    files |= {("score", "model"): score["model"]} if "model" in score else {}
    for place, file in files.items():
        path = file.get("path", "") if isinstance(file, Mapping) else None
        if path == "":
            yield RecipeProblem((*keys, *place), "the file has no `path`", "add it")
        elif isinstance(path, str):
            with contextlib.suppress(OSError):  # the build reports it
                if not is_built and not (root / path).exists():
                    fix = "restore the file, or correct `path`"
                    yield RecipeProblem((*keys, *place, "path"), f"file {root / path} not found", fix)
                elif not file.get("sha256") and (root / path).is_file():
                    fix = f"add `sha256: {file_sha256(root / path)}`"
                    yield RecipeProblem((*keys, *place), f"{path} is not pinned", fix)


def _file_record(path: Path, sha256: str) -> list[str | int]:
    status = path.stat()
    return [sha256, status.st_size, status.st_mtime_ns]


def _with_paths(section: Mapping[str, Any], paths_by_hash: Mapping[str, str]) -> dict[str, Any]:
    filled = {
        key: _with_paths(value, paths_by_hash) if isinstance(value, Mapping) else value
        for key, value in section.items()
    }
    return filled | {"path": paths_by_hash[section["sha256"]]} if "sha256" in filled else filled
