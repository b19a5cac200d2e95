"""The command `dropped`, which lists dropped and rejected rows."""

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pipeline_assets.commands import terminal
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.spine.visible import to_one_line

if TYPE_CHECKING:
    from pipeline_assets.corpus.dropped_rows import DroppedRow

_EXCERPT_CHARACTERS = 300
# A line further down gets no number, because counting would read all bytes before it.
_MAX_LINE_COUNTING_BYTES = 1 << 24


def dropped(
    folder: Annotated[Path, typer.Argument(help="Folder of an artifact that drops or rejects rows.")],
    reason: Annotated[str | None, typer.Option(help="List only rows with this reason.")] = None,
    limit: Annotated[int, typer.Option(min=0, max=10_000, help="Number of rows to list.")] = 20,
    text: Annotated[bool, typer.Option("--text", help="Show the beginning of each text.")] = False,
    data: terminal.OptionalRoot = None,
    as_json: terminal.AsJson = False,
) -> None:
    """List the rows that an artifact dropped or rejected, by reason.

    Example: corpusmill dropped data/stage_a/notes/filtered/notes --reason few_words --text
    """
    from pipeline_assets.corpus.dropped_rows import dropped_rows

    require_manifest(folder)
    artifact = open_artifact(folder)
    if "ledger" not in artifact.manifest.identity.counts:
        raise UsageError("this artifact counts no rows", folder, "choose a folder of documents, rows or tokens")
    ledger = artifact.manifest.identity.ledger
    reasons = {name: count for _, name, count in ledger.other_outcomes() if name and reason in (None, name)}
    if reason is not None and not reasons:
        known = ", ".join(name for _, name, _ in ledger.other_outcomes() if name)
        fix = f"choose one of {known}" if known else "omit it: no row was dropped or rejected"
        raise UsageError(f"no row has the reason {reason!r}", "--reason", fix)
    with forbid_replacement(folder):
        matching = (row for row in dropped_rows(artifact) if row.reason in reasons)
        rows = list(itertools.islice(matching, limit if reasons else 0))
        listed = [*_locate_rows(artifact, rows, Lineage(terminal.data_root(folder, data)), text)]
    lines = [f"{folder}: {ledger}"]
    lines += [f"  {count:>9,} {f'{fate}: {name}' if name else fate}" for fate, name, count in ledger.other_outcomes()]
    lines += [to_one_line(line) for entry in listed for line in _row_lines(*entry, text)]
    shown, more = Counter(row.reason for row in rows), sum(reasons.values()) - len(rows)
    if more and len(rows) == limit:
        lines.append(f"and {more:,} more; --limit sets how many are listed, --reason selects one reason")
    elif more:
        unlisted = ", ".join(name for name in reasons if not shown[name])
        lines.append(f"counted, but not listed row by row: {unlisted}")
    content = []
    for row, place, excerpt in listed:
        beginning = {"text": excerpt and excerpt[:_EXCERPT_CHARACTERS]} if text else {}
        content.append({**msgspec.structs.asdict(row), "place": place, **beginning})
    terminal.print_answer(as_json, {"folder": folder, "ledger": ledger.to_json(), "rows": content}, lines)


def _locate_rows(
    artifact: Artifact, rows: "Sequence[DroppedRow]", lineage: Lineage, reads_text: bool
) -> Iterator[tuple["DroppedRow", str, str | None]]:
    """Yield each row with its place, and its text (None if unknown).

    If possible, the place is in the source file; otherwise, it is in the file that the artifact recorded. The text
    comes from an input or, if `reads_text`, from a local source file. If an input has the document, add the document's
    id and source to the row.
    """
    from pipeline_assets.build.rows.source_listing import corpus_inputs, find_listing, input_for_source
    from pipeline_assets.build.rows.source_record import read_record
    from pipeline_assets.build.rows.source_row import LocalRow, format_place
    from pipeline_assets.build.run import open_hub
    from pipeline_assets.corpus.document import Document
    from pipeline_assets.corpus.document_shards import SHARDS_FOLDER
    from pipeline_assets.corpus.formats.jsonl_rows import read_chosen_lines
    from pipeline_assets.corpus.sealed_shards import rows_by_shard

    shards = {}
    for row in rows:
        prefix, _, name = row.file.rpartition(f"{SHARDS_FOLDER}/")  # rejects of deduplication begin with their source
        owner = row.source or prefix.rstrip("/")
        if not owner and len(corpus_inputs(artifact.manifest)) > 1:
            continue  # a reject of decontamination: any of the inputs may have a shard of this name
        digest = input_for_source(artifact.manifest, owner)["digest"]
        corpus = lineage.open_by_digest(digest, artifact.manifest.name) if digest in lineage else None
        if corpus is not None and (path := f"{SHARDS_FOLDER}/{name}") in rows_by_shard(corpus):
            shards[row] = corpus.path(path), row.row
    documents = read_chosen_lines(shards.values(), Document)
    for row in rows:
        file, number, place, text = row.file, row.row, f"{row.file} row {row.row:,}", None
        if (document := documents.get(shards.get(row, (Path(), 0)))) is not None:
            row = msgspec.structs.replace(row, doc_id=document.doc_id, source=row.source or document.source)
            file, number, text = document.meta.source_file, document.meta.source_row, document.text
        with contextlib.suppress(InputError):  # an input is missing, or has changed
            listing = find_listing(lineage, artifact, row.source or artifact.folder.name)
            listing.file_entry(file)  # raises if the file is a shard
            place = str(source := listing.row_address(file, number))
            if isinstance(source, LocalRow) and number < _MAX_LINE_COUNTING_BYTES:
                line = format_place(source)
                place += "" if line.startswith("row ") else f", {line}"
            if reads_text and document is None and isinstance(source, LocalRow):
                text = read_record(source, open_hub(lineage.root, os.environ)).decode(errors="replace")
        yield row, place, text


def _row_lines(row: "DroppedRow", place: str, text: str | None, shows_text: bool) -> Iterator[str]:
    yield "  ".join(filter(None, (row.reason, row.detail.removeprefix(f"{row.reason} "), row.doc_id, place)))
    if shows_text:
        yield f"    {'(only its source has the text)' if text is None else text[:_EXCERPT_CHARACTERS]}"
