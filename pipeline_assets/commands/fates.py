"""The commands `stage-a why` and `dedup show`, about the fate of a document."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pipeline_assets.build.removal_state import read_removals
from pipeline_assets.build.rows.source_row import format_place
from pipeline_assets.commands import terminal
from pipeline_assets.commands.inputs import warn_of_unsearchable
from pipeline_assets.commands.trace import followed_json, format_licence
from pipeline_assets.corpus.dedup.decision import (
    DocumentGroup,
    GroupMember,
    groups_with_document,
    read_document,
    word_diff,
)
from pipeline_assets.corpus.readers.row_positions import format_row_position
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.visible import VISIBLE_TABLE, to_one_line
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.build.rows.follow import FollowedRow
    from pipeline_assets.build.rows.search import FoundRow
    from pipeline_assets.build.rows.source_listing import TextSource

_EXCERPT_CHARACTERS = 300
_MAX_SHOWN_DUPLICATES = 5
_MAX_LISTED_ROWS = 20


def why(
    doc_id: Annotated[str, typer.Argument(help="Id of a document, name of its file, or a piece of its text.")],
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> bool:
    """Show why a document was kept or dropped.

    If a file or a text matches several documents, they are listed. Exit status 1: no document was found.

    Example: corpusmill stage-a why wikipedia:en:12 --data out
    """
    from pipeline_assets.build.rows.follow import follow_document
    from pipeline_assets.build.rows.row_stores import RowStores
    from pipeline_assets.build.rows.search import search_rows

    if not doc_id.strip():
        fix = "pass the id of a document, the name of its file, or a piece of its text"
        raise UsageError("must not be empty", "DOC_ID", fix)
    stores = RowStores(SYSTEMS.kinds, Lineage(terminal.require_root(data)))
    warn_of_unsearchable(stores)
    followed = list(follow_document(stores, doc_id))
    found = [] if followed else list(itertools.islice(search_rows(stores, doc_id), _MAX_LISTED_ROWS + 1))
    ids = {row.doc_id for row in found}
    if len(ids) == 1 and "" not in ids:
        followed = list(follow_document(stores, *ids))
    if followed:
        content = [followed_json(entry) | {"rejects": entry.rejects} for entry in followed]
        lines = itertools.chain.from_iterable(map(_fate_lines, followed))
        terminal.print_answer(as_json, content, map(to_one_line, lines))
        return True
    if not found and not as_json:
        corpora = len([*stores.source_row_stores()])
        where = f"any corpus of {data} ({corpora:,} searched)" if corpora else f"{data}, which has no corpus yet"
        listed = "; it is on the removal list" if read_removals(data).matches_value("id", doc_id) else ""
        terminal.echo(f"{doc_id!r} is not an id, a file or a text in {where}{listed}", err=True)
    rows = found[:_MAX_LISTED_ROWS]
    more = [f"and more; the first {_MAX_LISTED_ROWS} are listed"] if len(found) > _MAX_LISTED_ROWS else []
    terminal.print_answer(as_json, [row._asdict() for row in rows], [*map(to_one_line, _match_lines(rows)), *more])
    return bool(found)


def _match_lines(rows: "Sequence[FoundRow]") -> Iterator[str]:
    """Yield each corpus folder, then a line for each distinct row in the corpus."""
    seen, folder = set[tuple[str, ...]](), None
    for row in rows:
        if (shown := (row.doc_id, row.place, row.excerpt)) not in seen:
            yield from [f"{row.folder}"] if row.folder != folder else []
            yield f"  {row.doc_id or '-'}  {row.place}  {row.excerpt}"
            folder = row.folder
            seen.add(shown)


def _fate_lines(followed: "FollowedRow") -> Iterator[str]:
    folder, part = followed.fate.artifact.folder, followed.part
    if part is not None:
        yield f"{folder}/{part.shard} row {part.shard_row}"
        try:
            source = cast("TextSource", followed.store.origin(part))
            yield f"  from     {source.file} {_format_position(followed, part.source, source.file, source.rows[0].row)}"
            yield f"  licence  {format_licence(source)}"
        except InputError as error:
            yield f"  from     {error.what}"
        yield f"  text     {pluralize(len(part.text), 'character')}: {part.text[:_EXCERPT_CHARACTERS]}"
    for reject in followed.rejects:
        yield f"{folder}"
        yield f"  rejected  {reject.describe(_format_position(followed, folder.name, reject.file, reject.row))}"
    for _, fate in followed.downstream:
        yield f"{fate.artifact.folder}"
        yield from (f"  {line}" for line in fate.lines or [fate.summary])
    if part is not None and not followed.downstream:
        yield "  no artifact depends on it"


def _format_position(followed: "FollowedRow", source: str, file: str, row: int) -> str:
    """Format a row's place in its source file.

    If the file's listing is missing, use the row number or byte offset instead of the line number.
    """
    with contextlib.suppress(InputError):  # an input is missing
        return format_place(followed.store.listing(source).row_address(file, row))
    return format_row_position(file, row, None)


def show(
    doc_id: Annotated[str, typer.Argument(help="Id of a kept or dropped document.")],
    data: terminal.Root = Path("data"),
    show_all: Annotated[
        bool, typer.Option("--all", help=f"Show all dropped duplicates, not only {_MAX_SHOWN_DUPLICATES}.")
    ] = False,
    as_json: terminal.AsJson = False,
) -> bool:
    """Show a document next to its duplicates, word by word.

    Exit status 1: no deduplicated corpus has the document.

    Example: corpusmill dedup show wikipedia:en:12 --data out
    """
    lineage = Lineage(terminal.require_root(data))
    groups = list(groups_with_document(lineage, doc_id))
    if not groups and not as_json:
        terminal.echo(f"document {doc_id!r} not found in the deduplicated corpora of {data}", err=True)
    lines = (line for group in groups for line in _group_lines(lineage, group, doc_id, show_all))
    terminal.print_answer(as_json, [_group_json(group) for group in groups], lines)
    return bool(groups)


def _group_json(group: DocumentGroup) -> dict[str, Any]:
    kept = group.kept
    return {
        "folder": group.corpus.folder,
        "kept_in": None if kept is None else kept.corpus.folder,
        "seen_in": group.seen_in,
        "kept": {"doc_id": group.kept_id} if kept is None else kept.decision,
        "gone": [member.decision for member in group.dropped],
    }


def _group_lines(lineage: Lineage, group: DocumentGroup, doc_id: str, show_all: bool) -> Iterator[str]:
    duplicates = f"{1 + len(group.dropped):,} duplicates, one is kept" if group.dropped else "kept, without duplicates"
    yield f"{group.corpus.folder}: {duplicates}"
    kept = None
    if group.kept is None:
        where = f"its corpus is not in {lineage.root}"
        yield to_one_line(f"kept  {group.kept_id}  (seen before, in the store {group.seen_in}; {where})")
    else:
        heading, kept, excerpt = _read_member(lineage, group.kept)
        seen = f"  (seen before, in {group.kept.corpus.folder})" if group.seen_in is not None else ""
        yield f"kept  {heading}{seen}"
        yield excerpt
    dropped = sorted(group.dropped, key=lambda member: member.decision.doc_id != doc_id)
    shown = dropped if show_all else dropped[:_MAX_SHOWN_DUPLICATES]
    for member in shown:
        decision, (heading, text, excerpt) = member.decision, _read_member(lineage, member)
        yield f"{decision.decision.replace('_', ' ')}  {heading}"
        yield f"  similarity {decision.similarity:.4f}, {decision.containment:.1%} of its shingles are in the kept one"
        if decision.copy_of is not None and decision.copy_of != group.kept_id:
            yield to_one_line(f"  same words as {decision.copy_of}")
        if kept is None or text is None:
            yield excerpt
        else:
            yield "  " + " ".join(word_diff(kept, text)).translate(VISIBLE_TABLE)
    if len(shown) < len(dropped):
        yield f"and {len(dropped) - len(shown):,} more (--all)"


def _read_member(lineage: Lineage, member: GroupMember) -> tuple[str, str | None, str]:
    """Return a document's heading line, its text, and a line with an excerpt.

    If the document's source is missing, return None as the text, and an error message in the last line.
    """
    from pipeline_assets.build.rows.source_listing import find_listing

    decision, text = member.decision, None
    place, excerpt = f"{decision.shard} row {decision.row:,}", ""
    try:
        document = read_document(lineage, member)
        text, meta = document.text, document.meta
        row = find_listing(lineage, member.corpus, decision.source).row_address(meta.source_file, meta.source_row)
        place = f"{row.file} {format_place(row)}"
    except InputError as error:  # an input of the corpus is missing
        excerpt = f"(its text is missing: {error.what})"
    excerpt = excerpt if text is None else text[:_EXCERPT_CHARACTERS]
    return to_one_line(f"{decision.doc_id}  ({decision.source}, {place})"), text, to_one_line(f"  {excerpt}")
