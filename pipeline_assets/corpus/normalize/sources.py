"""The sources of a stage A recipe: a section each, by kind."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic

from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.licences import known_tag, licence_table, licence_texts_fingerprint
from pipeline_assets.corpus.readers.column_recipe import ColumnMap, LicensedColumns, Patterns
from pipeline_assets.corpus.readers.local import LocalRecipe, check_first_rows, matches_name
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, list_files
from pipeline_assets.corpus.readers.stackexchange.threads import SiteRecipe
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe
from pipeline_assets.corpus.snapshot.recipe import HubRows, SnapshotRecipe
from pipeline_assets.spine.errors import InputError, UsageError, key
from pipeline_assets.spine.manifest import FILE_NAME
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.spine.section import Name, Option, RecipeError, RecipeSection, RejectShare

_LICENCE_TEXTS = "licence_texts"
_NOT_OF_THE_ROWS = frozenset({"path", "filters"})


Step = Literal["normalized", "filtered"]


class Outputs(RecipeSection):
    """Which artifacts are asked for, and where they lie, below the data root; changes no byte.

    Attributes:
        normalized_dir: a folder for each source; a source of kind `normalized` is found there. What else is made of
            sources lies beside it: raw, filtered, deduplicated, signatures, evaluation, decontaminated, packed,
            report. None for `normalized` in the recipe's own folder.
        up_to: the last step that is asked for; None for all, up to the report.
        signatures: whether a signature store of what stays is made, for corpora that come later.
    """

    normalized_dir: str | None = None
    up_to: Step | None = None
    signatures: bool = False

    @pydantic.field_validator("normalized_dir")
    @classmethod
    def _is_an_area(cls, folder: str | None) -> str | None:
        path = Path("stage_a/NAME/normalized" if folder is None else folder)
        if path.parts[:1] != ("stage_a",) or ".." in path.parts or len(path.parts) < 2:
            raise ValueError("it lies below the data root, in stage_a/: write stage_a/NAME/normalized")
        return folder


class SourceSection(RecipeSection):
    """What every source says.

    Attributes:
        source: its name: of its partition, of its folders, and in each of its Documents.
        filters: which of its documents are kept, and what is changed in them.
    """

    source: Name
    filters: FilterRecipe = FilterRecipe()

    @pydantic.field_validator("license_tag", check_fields=False)
    @classmethod
    def _is_known(cls, tag: str | None) -> str | None:
        if tag is not None:
            known_tag(tag)
        return tag

    def rows_content(self, shard_text_bytes: int) -> dict[str, Any]:
        """What the bytes of its Documents depend on."""
        content = {key: value for key, value in self.content().items() if key not in _NOT_OF_THE_ROWS}
        if content.get("license_files") is not None:
            content[_LICENCE_TEXTS] = licence_texts_fingerprint()
        return content | {"shard_text_bytes": shard_text_bytes}


class HubSource(SourceSection, HubRows):
    """Rows of a hub dataset at a commit: all, or a sample drawn by row group."""

    kind: Literal["hub"]
    columns: LicensedColumns = LicensedColumns()

    def snapshot(self, shard_text_bytes: int) -> SnapshotRecipe:
        """The rows that are read, as the snapshot kernels know them."""
        columns = self.columns.content()
        plain = {name: columns[name] if isinstance(columns[name], str) else None for name in ColumnMap.model_fields}
        left_out = {*_NOT_OF_THE_ROWS, "kind", "columns"}
        section = {key: value for key, value in self.content().items() if key not in left_out}
        return SnapshotRecipe.from_content(
            section | {"name": self.source, "columns": plain, "shard_text_bytes": shard_text_bytes}
        )


class FilesSection(SourceSection):
    """A source of files on this machine.

    Attributes:
        path: their folder, absolute or below the data root; where it lies changes no byte.
        max_reject_fraction: more bad rows than this stop the build.
    """

    path: str
    max_reject_fraction: RejectShare = "0.001"


class WikipediaSource(FilesSection, WikipediaRecipe):
    """What wikiextractor made of a dump. Pages with nothing but a title don't count as bad rows."""

    kind: Literal["wikipedia"]
    source: Annotated[Name, Option("Name of the source.", default="wikipedia")]


class StackExchangeSource(FilesSection, SiteRecipe):
    """One site: its Posts.xml, or the .7z that it came in.

    Attributes:
        files: a pattern that matches that one file.
    """

    kind: Literal["stackexchange"]
    files: Patterns
    source: Name


class LocalSource(FilesSection, LocalRecipe):
    """Files of JSON lines, Parquet or text, and those that say their licences."""

    kind: Literal["local"]
    source: Annotated[Name, Option("Name of the source.")]


class NormalizedSource(SourceSection):
    """A source that is normalised already: it is found by its name in `outputs.normalized_dir`."""

    kind: Literal["normalized"]


FileSource = WikipediaSource | StackExchangeSource | LocalSource
Source = Annotated[HubSource | FileSource | NormalizedSource, pydantic.Field(discriminator="kind")]
_ANY_SOURCE: pydantic.TypeAdapter[Source] = pydantic.TypeAdapter(Source)
_KINDS: dict[str, type[HubSource | FileSource]] = {
    kind: section
    for section in (HubSource, *get_args(FileSource))
    for kind in get_args(section.model_fields["kind"].annotation)
}


def input_patterns(source: FileSource) -> SourceFolder:
    """Where the files of a source lie, and the patterns of all that is read: licence files are inputs, too."""
    licences = (f"**/{source.license_files}",) if isinstance(source, LocalSource) and source.license_files else ()
    return SourceFolder(Path(source.path), (*source.files, *licences))


def parse_source(rows_content: Any) -> tuple[HubSource | FileSource, int]:
    """The section and the shard size that `rows_content` wrote down; what it left out is made up.

    Raises:
        UsageError: this program reads no such section.
    """
    beside = ("shard_text_bytes", "licences", _LICENCE_TEXTS)
    content = {key: value for key, value in rows_content.items() if key not in beside}
    section = _KINDS[content["kind"]]
    made_up = {} if section is HubSource else {"path": "."}
    return section.from_content(content | made_up), rows_content["shard_text_bytes"]


def check_sources(recipe: Mapping[str, Any]) -> Iterator[RecipeError]:
    """Sources of a recipe, as it was read, that can't be told apart, in it or in a folder, or that are under a licence
    of which it keeps no document.
    """
    earlier = set[str]()
    refused = set(map(licence_table().match_tag, _texts(recipe.get("refuse_licences"))))
    for position, section in sections_at(recipe, "sources"):
        name, place = str(section.get("source")), ("sources", position)
        if name in earlier and "source" in section:
            yield RecipeError((*place, "source"), f"two sources are called {name}", "give each a name of its own")
        earlier.add(name)
        if name.endswith(f".{FILE_NAME}"):
            what = f"a source is called {name}, as is the manifest beside the folder of another"
            yield RecipeError((*place, "source"), what, "give it another name")
        tag = _source_licence(section) if refused else None
        if tag is not None and tag in refused:
            what = f"source {name} is under {tag}, which {key('refuse_licences')} refuses"
            yield RecipeError((*place, "license_tag"), what, "leave one of them out")


def _source_licence(section: Mapping[str, Any]) -> str | None:
    """The tag of the licence that all documents of a source are under; None if each says its own, or if it is wrong."""
    with contextlib.suppress(pydantic.ValidationError):
        source = _ANY_SOURCE.validate_python(section)
        if isinstance(source, WikipediaSource):
            return source.licence()[0]
        tag = getattr(source, "license_tag", None)
        return None if tag is None else licence_table().match_tag(tag)
    return None


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list | tuple) else []


def check_folders(recipe: Mapping[str, Any], root: Path) -> Iterator[RecipeError]:
    """Folders, files and columns of a recipe, as it was read, that aren't there, though what is made of the files isn't
    either.
    """
    normalized = section_at(recipe, "outputs").get("normalized_dir")
    own = Path(str(recipe.get("system")), str(recipe.get("name")))
    made = root / (Path(normalized).parent if isinstance(normalized, str) else own)
    for keys, step, name in (
        (("sources",), "raw", "source"),
        (("decontamination", "evaluation"), "evaluation", "name"),
    ):
        for position, section in sections_at(recipe, *keys):
            path, is_made = section.get("path"), (made / step / str(section.get(name))).exists()
            if not isinstance(path, str) or is_made:
                continue
            if (root / path).is_dir():
                yield from _check_files((*keys, position), section, root / path)
            else:
                yield RecipeError((*keys, position, "path"), f"there is no folder {root / path}", "correct `path`")


def _check_files(place: tuple[str | int, ...], section: Mapping[str, Any], folder: Path) -> Iterator[RecipeError]:
    """Patterns that match no file, and columns that footers or first rows show not to be there."""
    kind, files = _KINDS.get(str(section.get("kind"))), list[SourceFile]()
    patterns = section.get("files", kind.model_fields["files"].default if kind else ())
    with contextlib.suppress(InputError, pydantic.ValidationError):  # told by whoever reads them
        for position, pattern in enumerate(_texts(patterns)):
            try:
                files += list_files(folder, [pattern])
            except UsageError as error:
                yield _file_part((*place, "files", position), error)
        if licences := "".join(_texts([section.get("license_files")])):
            files = [file for file in files if not matches_name(file.name, licences)]
            try:
                list_files(folder, [f"**/{licences}"])
            except UsageError:
                fix = "correct `license_files`, or leave it out"
                yield RecipeError((*place, "license_files"), f"{folder}: no file in it is called {licences}", fix)
        # A misspelt key may be `columns`. Who allows bad rows may have many before the first good one.
        known = LocalSource.model_fields.keys() - {"max_reject_fraction"}
        if section.get("kind") == "local" and section.keys() <= known:
            try:
                check_first_rows(files, LicensedColumns.model_validate(section.get("columns", {})))
            except UsageError as error:
                yield _file_part((*place, "columns"), error)


def _file_part(place: tuple[str | int, ...], error: UsageError) -> RecipeError:
    what, where, fix = error.args
    return RecipeError(place, f"{where}: {what}", fix)
