"""Rows of corpora: Documents in `shards/*.jsonl.zst`."""

from collections.abc import Iterator
from itertools import chain

import msgspec

from pipeline_assets.build.rows.file_rows import FileRows, RowSchema
from pipeline_assets.build.rows.row_values import DisplayNames, Part
from pipeline_assets.build.rows.source_listing import TextSource
from pipeline_assets.build.rows.store import UpstreamRow
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS_FOLDER
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.readers.source_formats import COLUMN_FORMATS, detect_format
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.rejects import Reject

OTHER_PROPERTIES = "another source, domain, licence or date"


class _Answer(msgspec.Struct):
    source_row: int


class _Thread(msgspec.Struct):
    answers: list[_Answer]


_thread_decoder = msgspec.json.Decoder(_Thread)


class DocumentRows(FileRows):
    """Documents of a corpus."""

    display_names = DisplayNames("corpus", "corpora", other_properties=OTHER_PROPERTIES)
    schema = RowSchema(
        path_prefix=f"{SHARDS_FOLDER}/",
        struct=Document,
        key_columns=("doc_id",),
        source_column="source",
        text_column="text",
        file_column="meta.source_file",
        row_column="meta.source_row",
        other_columns=("source", "domain", "license_tag", "created_at"),  # `meta` has this build's source row
    )

    def documents(self) -> Iterator[Document]:
        """Yield the Documents in order, with one block of lines in memory."""
        return chain.from_iterable(read_structs(self.artifact.path(shard), Document) for shard in self.rows_by_file)

    def origin(self, part: Part) -> UpstreamRow | TextSource:
        document: Document = part.record
        meta, listing = document.meta, self.listing(part.source)
        rows = _source_rows(meta, _has_answers(listing.corpus))
        return listing.text_source(meta.source_file, rows, document.license_tag, meta.license_evidence)


class SourceRows(DocumentRows):
    """Documents that were read from source files: a snapshot or a normalized source."""

    reads_sources = True

    def find_by_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        """Find the Document of a source row; see `RowStore.find_by_source`.

        The rows of a text file are its lines. A line belongs to the Document whose text contains the line.
        """
        unit, has_answers = self._text_unit(file), _has_answers(self.artifact)
        columns = ("meta", "text") if unit == "paragraph" else ("meta",)
        for number, (meta, *text) in enumerate(self.read(*columns)):
            if meta.source_file == file:
                if source_row in _source_rows(meta, has_answers):
                    return number, meta.source_row != source_row
                end = meta.source_row + len(text[0].encode()) if text else source_row
                if unit in ("file", "paragraph") and meta.source_row < source_row <= end:
                    return number, False
        return None

    def find_in_reject_file(self, file: str, row: int, reject_file: str = REJECTS_FILE) -> Reject | None:
        if self._text_unit(file) == "file":  # any line belongs to the only reject
            return next((reject for reject in self.rejects(reject_file) if reject.file == file), None)
        return super().find_in_reject_file(file, row, reject_file)

    def _text_unit(self, file: str) -> str | None:
        """Return the unit of text per Document, such as `line`; None for a file of rows."""
        recipe = self.artifact.manifest.identity.recipe
        format_ = detect_format(file, recipe.get("text_endings", ()))
        if recipe.get("kind") != "local" or format_ in (None, *COLUMN_FORMATS):
            return None
        return recipe.get("text_unit") or "file" if format_ == "text" else "file"


class SnapshotRows(SourceRows):
    """Documents of a snapshot of a hub dataset."""

    display_names = DisplayNames("snapshot", "snapshots", other_properties=OTHER_PROPERTIES)


def _has_answers(corpus: Artifact) -> bool:
    return corpus.manifest.identity.recipe.get("kind") == "stackexchange"


def _source_rows(meta: Meta, has_answers: bool) -> list[int]:
    """List a Document's source rows: its own row, then the row of each thread answer."""
    answers = _thread_decoder.decode(meta.extra).answers if has_answers else []
    return [meta.source_row, *(answer.source_row for answer in answers)]
