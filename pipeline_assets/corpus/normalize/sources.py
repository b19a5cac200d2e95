"""Sections of a stage A recipe for its outputs and for each kind of source."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic

from pipeline_assets.corpus.decontamination.evaluation_items import check_item_columns
from pipeline_assets.corpus.decontamination.recipe import EvaluationSource
from pipeline_assets.corpus.filters.language import LanguageRecipe
from pipeline_assets.corpus.filters.pinned_files import filter_file_problems
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.licence_texts import licence_texts_fingerprint
from pipeline_assets.corpus.licences import licence_table, require_tag
from pipeline_assets.corpus.readers.column_recipe import ColumnMap, LicensedColumns
from pipeline_assets.corpus.readers.local import LocalRecipe, check_first_rows, matches_name
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, list_files
from pipeline_assets.corpus.readers.source_formats import strip_compression_suffix
from pipeline_assets.corpus.readers.stackexchange.threads import SiteRecipe
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe
from pipeline_assets.corpus.snapshot.recipe import HubRowsSection, SnapshotRecipe
from pipeline_assets.corpus.stores.object_source import SourcePath, source_folder
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.key_types import MaxRejectShare, Name, Patterns, split_patterns
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.spine.sealed_folder import find_artifact_above
from pipeline_assets.spine.section import RecipeSection

_LICENCE_TEXTS = "licence_texts"
_KEYS_WITHOUT_EFFECT = frozenset({"path", "filters"})  # on the rows of the normalized source
Step = Literal["normalized", "filtered"]


class OutputsSection(RecipeSection):
    """Artifacts to build, and their folders; no key changes an artifact's bytes.

    Attributes:
        normalized_dir: Folder below the data root with one subfolder per normalized source; sources of kind
            `normalized` are read from it. Other artifacts are in sibling folders with the names of their kinds, such as
            `filtered`. None uses the folder `normalized` in the recipe's own folder.
        up_to: Last step to build; None builds all steps.
        signatures: Whether to store signatures of kept documents, so that later corpora can drop duplicates of these.
    """

    normalized_dir: str | None = None
    up_to: Step | None = None
    signatures: bool = False

    @pydantic.field_validator("normalized_dir")
    @classmethod
    def _check_normalized_dir(cls, folder: str | None) -> str | None:
        path = Path("stage_a/NAME/normalized" if folder is None else folder)
        is_visible = not any(part.startswith(".") for part in path.parts)  # scans of artifacts skip hidden folders
        if path.parts[:1] != ("stage_a",) or not is_visible or len(path.parts) < 2 or "\0" in str(path):
            raise ValueError("must be a visible folder below stage_a/, such as stage_a/NAME/normalized")
        return folder


class SourceSection(RecipeSection):
    """Section of a source, with the keys that all kinds of sources have.

    Attributes:
        source: Name of the source, also used for its Documents, partition and folders.
        filters: Filters that decide which documents are kept and how their texts change.
    """

    source: Name
    filters: FilterRecipe = FilterRecipe()

    @pydantic.field_validator("license_tag", check_fields=False)
    @classmethod
    def _check_tag(cls, tag: str | None) -> str | None:
        if tag is not None:
            require_tag(tag)
        return tag

    def output_content(self, shard_text_bytes: int) -> dict[str, Any]:
        """Return the recipe content that determines the source's unfiltered Documents."""
        content = {key: value for key, value in self.content().items() if key not in _KEYS_WITHOUT_EFFECT}
        if content.get("license_files") is not None:
            content[_LICENCE_TEXTS] = licence_texts_fingerprint()
        return content | {"shard_text_bytes": shard_text_bytes}


class HubSource(SourceSection, HubRowsSection):
    """Hub dataset at a commit, read completely or as a sample of row groups."""

    kind: Literal["hub"]
    columns: LicensedColumns = LicensedColumns()

    def snapshot_recipe(self, shard_text_bytes: int) -> SnapshotRecipe:
        """Return the recipe of a snapshot that reads the rows of this source."""
        columns = self.columns.content()
        plain = {name: columns[name] if isinstance(columns[name], str) else None for name in ColumnMap.model_fields}
        excluded = {*_KEYS_WITHOUT_EFFECT, "kind", "columns"}
        section = {key: value for key, value in self.content().items() if key not in excluded}
        section |= {"name": self.source, "columns": plain, "shard_text_bytes": shard_text_bytes}
        return SnapshotRecipe.from_content(section)


class FilesSection(SourceSection):
    """Source of files in a local folder or an object store.

    Attributes:
        path: Folder, absolute or below the data root, or URL of an object store, such as `s3://bucket/prefix`. The path
            does not change the Documents.
        max_reject_fraction: Share of rejected rows above which the build stops.
    """

    path: SourcePath
    max_reject_fraction: MaxRejectShare = "0.001"


class WikipediaSource(FilesSection, WikipediaRecipe):
    """Output files of wikiextractor.

    Pages with only a title do not count against the limit on rejects.
    """

    kind: Literal["wikipedia"]
    source: Annotated[Name, Option("Name of the source.", default="wikipedia")]


class StackExchangeSource(FilesSection, SiteRecipe):
    """Stack Exchange site; `files` must match only its Posts.xml or its .7z archive."""

    kind: Literal["stackexchange"]
    files: Patterns
    source: Name


class LocalSource(FilesSection, LocalRecipe):
    """Files of rows or texts in many formats, and their licence files."""

    kind: Literal["local"]
    source: Annotated[Name, Option("Name of the source.")]


class NormalizedSource(SourceSection):
    """Source that is already normalized, in a subfolder of `outputs.normalized_dir`."""

    kind: Literal["normalized"]


FileSource = WikipediaSource | StackExchangeSource | LocalSource
Source = Annotated[HubSource | FileSource | NormalizedSource, pydantic.Field(discriminator="kind")]
_SOURCE_ADAPTER: pydantic.TypeAdapter[Source] = pydantic.TypeAdapter(Source)
_SECTIONS_BY_KIND: dict[str, type[HubSource | FileSource]] = {
    kind: section
    for section in (HubSource, *get_args(FileSource))
    for kind in get_args(section.model_fields["kind"].annotation)
}


def to_source_folder(source: FileSource) -> SourceFolder:
    """Return a source's folder, with patterns for its files and licence files."""
    licences = (f"**/{source.license_files}",) if isinstance(source, LocalSource) and source.license_files else ()
    return source_folder(source.path, (*source.files, *licences), getattr(source, "exclude", ()))


def parse_source(output_content: Any) -> tuple[HubSource | FileSource, int]:
    """Parse `output_content` into (section, shard size); a FileSource's path is `.`."""
    added = ("shard_text_bytes", "licences", _LICENCE_TEXTS)
    content = {key: value for key, value in output_content.items() if key not in added}
    section = _SECTIONS_BY_KIND[content["kind"]]
    placeholder = {} if section is HubSource else {"path": "."}
    return section.from_content(content | placeholder), output_content["shard_text_bytes"]


def check_sources(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield an error for each source with an ambiguous name or a refused licence.

    A name is ambiguous if an earlier source has it, or if it ends with `.manifest.json`, as copies of manifests do.
    `recipe` is the content of a recipe file, which need not be valid.
    """
    earlier = set[str]()
    refused = set(map(licence_table().match_tag, _only_strings(recipe.get("refuse_licences"))))
    for position, section in sections_at(recipe, "sources"):
        name, keys = str(section.get("source")), ("sources", position)
        if name in earlier and "source" in section:
            yield RecipeProblem((*keys, "source"), f"two sources have the name {name}", "give each source its own name")
        earlier.add(name)
        if name.endswith(f".{MANIFEST_FILE}"):
            what = f"source name {name} is reserved for the manifest copy of another source"
            yield RecipeProblem((*keys, "source"), what, "choose another name")
        tag = _source_licence(section) if refused else None
        if tag is not None and tag in refused:
            what = f"source {name} has the licence {tag}, which `refuse_licences` refuses"
            yield RecipeProblem((*keys, "license_tag"), what, "remove one of them")


def _source_licence(section: Mapping[str, Any]) -> str | None:
    """Return a source's default licence tag; None if the section has no valid one."""
    with contextlib.suppress(pydantic.ValidationError):
        source = _SOURCE_ADAPTER.validate_python({key: section[key] for key in section if key != "filters"})
        if isinstance(source, WikipediaSource):
            return source.licence()[0]
        tag = getattr(source, "license_tag", None)
        return None if tag is None else licence_table().match_tag(tag)
    return None


def _only_strings(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list | tuple) else []


def check_outputs(recipe: Mapping[str, Any], reserved_names: Collection[str]) -> Iterator[RecipeProblem]:
    """Yield an error for each wrong value in the sections `outputs` and `seen`.

    `recipe` is the content of a recipe file, which need not be valid.
    """
    outputs, seen = section_at(recipe, "outputs"), recipe.get("seen")
    place = Path(str(outputs.get("normalized_dir")))
    if place.name in reserved_names:
        what = f"the folder name {place.name} is reserved for another artifact"
        yield RecipeProblem(("outputs", "normalized_dir"), what, f"write {place.parent}/normalized")
    stores = [Path(str(folder)).name for folder in seen] if isinstance(seen, list) else []
    for name in dict.fromkeys(name for name in stores if stores.count(name) > 1):
        yield RecipeProblem(("seen",), f"two stores in `seen` have the name {name}", "rename one of them")
    for value, location in ((seen, ("seen",)), (outputs.get("signatures"), ("outputs", "signatures"))):
        if value and recipe.get("dedup") is None:
            key = ".".join(location)
            yield RecipeProblem(location, f"`{key}` requires `dedup`", f"add `dedup`, or remove `{key}`")


def check_folders(recipe: Mapping[str, Any], root: Path) -> Iterator[RecipeProblem]:
    """Yield errors for missing folders, files and columns, and wrong filters.

    The folder of normalized sources must not be inside a sealed artifact, which these sources would damage. For a
    source or evaluation set that is in an object store or already listed, only the filters are checked; if its corpus
    is already filtered, only the hashes of filter files. `recipe` is the content of a recipe file, which need not be
    valid.
    """
    normalized = section_at(recipe, "outputs").get("normalized_dir")
    own = Path(str(recipe.get("system")), str(recipe.get("name")))
    artifacts = root / (Path(normalized).parent if isinstance(normalized, str) else own)
    folder = root / normalized / MANIFEST_FILE if isinstance(normalized, str) and "\0" not in normalized else None
    if folder is not None and (artifact := find_artifact_above(folder)) is not None:
        what = f"the folder is inside the sealed artifact {artifact}"
        yield RecipeProblem(("outputs", "normalized_dir"), what, "choose another folder")
    for keys, step, name in (
        (("sources",), "raw", "source"),
        (("decontamination", "evaluation"), "evaluation", "name"),
    ):
        for position, section in sections_at(recipe, *keys):
            filters, place = section_at(section, "filters"), (*keys, position, "filters")
            is_filtered = (artifacts / "filtered" / str(section.get(name))).exists()
            yield from filter_file_problems(place, filters, root, is_filtered)
            if "language" in filters and not is_filtered:
                yield from _check_language((*place, "language"), filters["language"])
            path, is_listed = section.get("path"), (artifacts / step / str(section.get(name))).exists()
            if not isinstance(path, str) or is_listed or "://" in path:
                continue
            if (root / path).is_dir():
                yield from _check_files((*keys, position), section, root / path)
            else:
                yield missing_folder_problem((*keys, position, "path"), root / path)


def _check_language(keys: tuple[str | int, ...], section: object) -> Iterator[RecipeProblem]:
    """Yield an error if the detector does not know a language to keep."""
    with contextlib.suppress(pydantic.ValidationError):  # reported as errors of the recipe
        try:
            LanguageRecipe.model_validate(section).check_codes()
        except UsageError as error:
            if error.key:  # otherwise, the detector is not installed; the build reports it
                yield RecipeProblem((*keys, "keep"), error.what, error.fix)


def missing_folder_problem(keys: tuple[str | int, ...], path: Path) -> RecipeProblem:
    """Return the problem of a source whose `path` is not a folder."""
    if path.is_file():
        return RecipeProblem(keys, f"{path} is a file", "write its folder, and name the file in `files`")
    return RecipeProblem(keys, f"folder {path} not found", "correct `path`")


def _check_files(keys: tuple[str | int, ...], section: Mapping[str, Any], folder: Path) -> Iterator[RecipeProblem]:
    """Yield an error for each key of a section that does not fit the folder's files."""
    kind, files = _SECTIONS_BY_KIND.get(str(section.get("kind"))), list[SourceFile]()
    patterns = section.get("files", kind.model_fields["files"].default if kind else ())
    with contextlib.suppress(InputError, pydantic.ValidationError):  # the readers report these errors
        excluded, has_matches = _only_strings(split_patterns(section.get("exclude"))), False
        try:
            list_files(folder, [], excluded)
        except UsageError as error:
            yield _to_recipe_problem((*keys, "exclude"), error)
            return
        for position, pattern in enumerate(_only_strings(split_patterns(patterns))):
            try:
                files += list_files(folder, [pattern], excluded)
                has_matches = True
            except UsageError as error:
                yield _to_recipe_problem((*keys, "files", position), error)
        if has_matches and not files:
            yield RecipeProblem((*keys, "exclude"), "all files of the source are excluded", "correct `exclude`")
        if licences := "".join(_only_strings([section.get("license_files")])):
            files = [file for file in files if not matches_name(file.name, licences)]
            try:
                list_files(folder, [f"**/{licences}"])
            except UsageError:
                fix = "correct or remove `license_files`"
                yield RecipeProblem((*keys, "license_files"), f"no file named {licences} in {folder}", fix)
        endings = tuple(_only_strings(section.get("text_endings", [])))
        names = [strip_compression_suffix(file.name).lower() for file in files]
        if names and endings and not any(name.endswith(endings) for name in names):
            fix = f"add the files to `files`, such as **/*{endings[0]}, or remove `text_endings`"
            yield RecipeProblem((*keys, "text_endings"), f"no file of the source ends with {', '.join(endings)}", fix)
        # Check no columns if an unknown key may be a misspelt `columns`, or if a limit allows many bad first rows.
        known = LocalSource.model_fields.keys() - {"max_reject_fraction"}
        try:
            if section.get("kind") == "local" and section.keys() <= known:
                check_first_rows(files, LicensedColumns.model_validate(section.get("columns", {})))
            elif keys[0] == "decontamination":
                check_item_columns(files, EvaluationSource.model_validate(section))
        except UsageError as error:
            yield _to_recipe_problem((*keys, "columns"), error)


def _to_recipe_problem(keys: tuple[str | int, ...], error: UsageError) -> RecipeProblem:
    return RecipeProblem(keys, f"{error.where}: {error.what}", error.fix)
