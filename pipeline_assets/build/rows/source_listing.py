"""Listings of sources: artifacts that list the input files of corpora."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_assets.build.rows.source_row import AnySourceRow, HubRow, LocalRow
from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.readers.source_folder import has_changed_since_seal, input_folder_path
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import Manifest


@dataclass(frozen=True)
class TextSource:
    """Rows from which a text was made, with their hub file or local file."""

    file: str
    rows: tuple[AnySourceRow, ...]  # in the order of the text, for example a question and its answers
    digest: str  # of the file, according to the listing
    license_tag: str
    license_evidence: str  # basis of the licence tag, for example `recipe` or `row: license`


@dataclass(frozen=True)
class SourceListing:
    """Listing of a source's files, and the corpus that was read from these files."""

    artifact: Artifact  # raw pin or snapshot whose manifest lists the files
    corpus: Artifact  # read from these files, before any filter
    root: Path  # data root of both

    def row_address(self, file: str, row: int) -> AnySourceRow:
        """Return a row's address; `file` and `row` come from a Document's `meta`."""
        folder = input_folder_path(self.artifact.manifest, self.root)
        if folder is not None:
            return LocalRow(folder / file, row, has_changed_since_seal(self.artifact.manifest, folder, file))
        recipe = self.artifact.manifest.identity.recipe
        source = HubRow(recipe["dataset"], recipe["revision"], file, row)
        entries = (entry for entry in self.artifact.manifest.identity.inputs if entry["name"] == source.file)
        return replace(source, is_numbered=any("row_groups" in entry for entry in entries))

    def file_entry(self, file: str) -> Mapping[str, Any]:
        """Return the manifest entry of a file; InputError if it is missing."""
        row = self.row_address(file, 0)
        name = row.file if isinstance(row, HubRow) else file
        for entry in self.artifact.manifest.identity.inputs:
            if entry["name"] == name:
                return entry
        fix = "run `corpusmill verify`, then rebuild the artifact"
        raise InputError(f"manifest does not list {name}", self.artifact.folder, fix)

    def text_source(self, file: str, positions: Sequence[int], license_tag: str, evidence: str) -> TextSource:
        """Return the source of a text that came from the rows `positions` of a file."""
        rows = tuple(self.row_address(file, row) for row in positions)
        return TextSource(file, rows, self.file_entry(file)["digest"], license_tag, evidence)


def find_listing(lineage: Lineage, corpus: Artifact, source: str) -> SourceListing:
    """Find a source's listing upstream of a corpus; raise InputError if it is missing."""
    listing = corpus
    while not any("bytes" in entry for entry in listing.manifest.identity.inputs):
        corpus = listing
        if not listing.manifest.identity.inputs:
            what = f"{listing.manifest.kind} has no inputs"
            raise InputError(what, listing.folder, "choose a corpus that is derived from a source")
        listing = lineage.open_by_digest(input_for_source(listing.manifest, source)["digest"], listing.manifest.name)
    return SourceListing(listing, corpus, lineage.root)


def input_for_source(corpus: Manifest, source: str) -> Mapping[str, Any]:
    """Return a corpus's input that is named after a source, or else its first input."""
    inputs = corpus_inputs(corpus)
    return next((entry for entry in inputs if entry["name"].endswith(f"/{source}")), inputs[0])


def corpus_inputs(corpus: Manifest) -> list[Mapping[str, Any]]:
    """Return the inputs of a corpus, except evaluation sets."""
    return [entry for entry in corpus.identity.inputs if f"/{EVALUATION_STAGE.name}/" not in entry["name"]]


def input_file_name(listing: Manifest, source_row: AnySourceRow, root: Path) -> str | None:
    """Return a source row's file name in a listing; None if the listing lacks it."""
    folder = input_folder_path(listing, root)
    names = [entry["name"] for entry in listing.identity.inputs]
    if isinstance(source_row, HubRow):
        return source_row.path if folder is None and source_row.file in names else None
    if folder is None:
        return None
    return next((name for name in names if (folder / name).resolve() == source_row.path.resolve()), None)


def source_name(listing: Manifest, root: Path) -> str:
    """Return the display name of a listed source: repo@commit, or its folder."""
    folder, recipe = input_folder_path(listing, root), listing.identity.recipe
    return str(folder) if folder is not None else f"{recipe['dataset']}@{recipe['revision']}"


def unread_reason(entry: Mapping[str, Any], row: int) -> str | None:
    """Return why a row of a listed hub file was not read; None if it was read."""
    if "row_groups" not in entry:
        return "no row group of the file was drawn"
    ranges = merged_row_ranges(entry["row_groups"])
    if any(row in rows for rows in ranges):
        return None
    return "rows read of the file: " + (", ".join(f"{rows.start:,} to {rows.stop - 1:,}" for rows in ranges) or "none")


def merged_row_ranges(row_groups: Sequence[Mapping[str, int]]) -> list[range]:
    """Return the row ranges of row groups, with adjacent groups merged."""
    ranges: list[range] = []
    for group in sorted(row_groups, key=lambda group: group["first_row"]):
        start, stop = group["first_row"], group["first_row"] + group["rows"]
        if ranges and ranges[-1].stop == start:
            ranges[-1] = range(ranges[-1].start, stop)
        elif group["rows"]:
            ranges.append(range(start, stop))
    return ranges
