"""trace, peek: from a token or a document to its source row and back, and what a trainer sees."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.terminal import VISIBLE, AsJson, OptionalRoot, data_root, existing_root
from pipeline_assets.commands.trace_lines import (
    conversation_lines,
    document_lines,
    drawn_lines,
    fate_lines,
    segment_lines,
    token_lines,
)
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.artifact import Artifact
    from pipeline_assets.corpus.trace.conversation_to_source import ConversationTrace
    from pipeline_assets.corpus.trace.document_to_source import DocumentTrace
    from pipeline_assets.corpus.trace.packed_to_source import DrawnDocument, SegmentTrace
    from pipeline_assets.corpus.trace.source_row import AnyRow
    from pipeline_assets.corpus.trace.token_to_source import Trace

app = typer.Typer()
_SHOWN_CHARACTERS = 2_000


@app.command(epilog="Example: corpusmill trace data/megatron/healing_text_v1/train --token 9")
def trace(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a Megatron split, a packed set, a corpus, or normalised rows.")
    ] = None,
    token: Annotated[int | None, typer.Option(help="Position in tokens.bin or input_ids.mmap, from 0.")] = None,
    doc_id: Annotated[
        str | None, typer.Option(help="A document of the split, set or corpus; the id of a normalised row.")
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            help="Row of a split's documents.parquet, of a packed set, of normalised rows, or document; from 0."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Row of a source, REPO@COMMIT:PATH#ROW or PATH#ROW; no FOLDER.")
    ] = None,
    data: OptionalRoot = None,
    as_json: AsJson = False,
) -> None:
    """Say which row of which file a token or document came from; with --source, what became of a row."""
    asked = [option for option in (token, doc_id, row) if option is not None]
    if source is not None:
        if folder is not None or asked:
            raise UsageError("a source row is looked up in the data root", "--source", "give it alone or with --data")
        _trace_source(source, data or Path("data"), as_json)
        return
    if folder is None:
        fix = "give the folder of a split, set or corpus and --token, --doc-id or --row, or --source alone"
        raise UsageError("nothing to trace", "trace", fix)
    if len(asked) != 1:
        what = "several things to trace" if asked else "nothing to trace"
        raise UsageError(what, folder, "give exactly one of --token, --doc-id, --row")
    root = data_root(context, folder, data)
    from pipeline_assets.corpus.spine.held_folder import unreplaced

    with unreplaced(folder):
        show = _traced_in(folder, token, doc_id, row, root)
    show(as_json)


def _traced_in(
    folder: Path, token: int | None, doc_id: str | None, row: int | None, root: Path
) -> Callable[[bool], None]:
    """What shows the answer, which is there already; whether as JSON is asked."""
    from pipeline_assets.corpus.document_shards import holds_documents
    from pipeline_assets.corpus.packing.recipe import PACK_STAGE
    from pipeline_assets.corpus.spine.artifact import open_artifact, sealed_manifest
    from pipeline_assets.corpus.trace.conversation_to_source import holds_conversations

    artifact = open_artifact(folder, sealed_manifest(folder).digest)
    if holds_documents(artifact):
        return functools.partial(_show_document, _traced_document(artifact, token, doc_id, row, root))
    if holds_conversations(artifact):
        return functools.partial(_show_conversation, _traced_conversation(artifact, token, doc_id, row, root))
    if artifact.manifest.identity.stage.name == PACK_STAGE.name:
        return functools.partial(_show_packed, _traced_in_packed(artifact, token, doc_id, row, root))
    return functools.partial(_show_token, _traced(folder, token, doc_id, row, root))


def _show_token(found: "Trace", as_json: bool) -> None:
    if as_json:
        _print_json(dataclasses.asdict(found) | {"source": _row_json(found.source)})
    else:
        typer.echo("\n".join(token_lines(found)))


def _trace_source(source: str, root: Path, as_json: bool) -> None:
    from pipeline_assets.corpus.trace.source_fates import trace_source
    from pipeline_assets.corpus.trace.source_row import parse_row
    from pipeline_assets.corpus.trace.source_to_tokens import RowFate

    wanted = parse_row(source)
    fates = trace_source(existing_root(root), wanted)
    if not as_json:
        typer.echo("\n".join([str(wanted), *(line for fate in fates for line in fate_lines(fate))]))
        return
    snapshots = [dataclasses.asdict(fate) for fate in fates if isinstance(fate, RowFate)]
    corpora = [dataclasses.asdict(fate) for fate in fates if not isinstance(fate, RowFate)]
    _print_json({"source": _row_json(wanted), "snapshots": snapshots, "corpora": corpora})


def _traced(folder: Path, token: int | None, doc_id: str | None, row: int | None, root: Path) -> "Trace":
    from pipeline_assets.corpus.trace.split_sequences import sequence_of_doc_id
    from pipeline_assets.corpus.trace.token_to_source import open_lineage, trace_sequence, trace_token

    lineage = open_lineage(folder, root)
    if token is not None:
        return trace_token(lineage, token)
    return trace_sequence(lineage, sequence_of_doc_id(lineage.split, doc_id) if doc_id is not None else row or 0)


def _traced_document(
    corpus: "Artifact", token: int | None, doc_id: str | None, row: int | None, root: Path
) -> "DocumentTrace":
    from pipeline_assets.corpus.trace.document_to_source import trace_document

    if token is not None:
        raise UsageError("it has documents, no tokens", corpus.folder, "give --doc-id or --row")
    return trace_document(corpus, root, doc_id, row)


def _show_document(found: "DocumentTrace", as_json: bool) -> None:
    if as_json:
        _print_json(_document_json(found))
    else:
        typer.echo("\n".join(document_lines(found)))


def _document_json(found: "DocumentTrace") -> dict[str, Any]:
    rows = {"source": _row_json(found.source), "answers": [_row_json(answer) for answer in found.answers]}
    return dataclasses.asdict(found) | rows


def _traced_conversation(
    rows: "Artifact", token: int | None, row_id: str | None, row: int | None, root: Path
) -> "ConversationTrace":
    from pipeline_assets.corpus.trace.conversation_to_source import trace_conversation

    if token is not None:
        raise UsageError("it has texts, no tokens", rows.folder, "give --doc-id or --row")
    return trace_conversation(rows, root, row_id, row)


def _show_conversation(found: "ConversationTrace", as_json: bool) -> None:
    if as_json:
        _print_json(dataclasses.asdict(found) | {"source": _row_json(found.source)})
    else:
        typer.echo("\n".join(conversation_lines(found)))


def _traced_in_packed(
    packed: "Artifact", token: int | None, doc_id: str | None, row: int | None, root: Path
) -> "list[SegmentTrace] | list[DrawnDocument]":
    from pipeline_assets.corpus.trace.packed_to_source import PackedLineage

    lineage = PackedLineage(packed, root)
    if token is not None:
        return [lineage.trace_token(token)]
    return lineage.trace_document(doc_id) if doc_id is not None else lineage.trace_row(row or 0)


def _show_packed(found: "list[SegmentTrace] | list[DrawnDocument]", as_json: bool) -> None:
    from pipeline_assets.corpus.trace.packed_to_source import SegmentTrace

    if as_json:
        _print_json([dataclasses.asdict(one) | {"document": _document_json(one.document)} for one in found])
        return
    lines = [segment_lines(one) if isinstance(one, SegmentTrace) else drawn_lines(one) for one in found]
    typer.echo("\n\n".join("\n".join(of_one) for of_one in lines))


@app.command(epilog="Example: corpusmill peek data/megatron/healing_text_v1/train --row 7")
def peek(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a Megatron split, a packed set, a corpus, or normalised rows.")
    ],
    row: Annotated[
        int | None, typer.Option(help="Sequence, row of a packed set, or document, from 0; default: 0.")
    ] = None,
    token: Annotated[int | None, typer.Option(help="The sequence or row that holds this token.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one sequence or row as a trainer would see it, or one document."""
    from pipeline_assets.corpus.packing.recipe import PACK_STAGE
    from pipeline_assets.corpus.spine.artifact import sealed_manifest
    from pipeline_assets.corpus.spine.held_folder import unreplaced
    from pipeline_assets.corpus.trace.peek import peek as peek_at

    if row is not None and token is not None:
        raise UsageError("two places to look at", folder, "give --row or --token")
    if sealed_manifest(folder).identity.stage.name == PACK_STAGE.name:
        _show_row(folder, row, token, as_json)
        return
    with unreplaced(folder):
        seen = peek_at(folder, row, token)
    if as_json:
        _print_json(dataclasses.asdict(seen))
        return
    tokens = "" if seen.tokens is None else f", {seen.tokens:,} tokens"
    tokens += "" if seen.first_token is None else f" from {seen.first_token:,} on"
    typer.echo(f"row {seen.row:,}: {seen.doc_id}{tokens}")
    typer.echo(f"{seen.shard} row {seen.shard_row:,}\n")
    _show_text(seen.text)


def _show_row(folder: Path, row: int | None, token: int | None, as_json: bool) -> None:
    from pipeline_assets.corpus.spine.held_folder import unreplaced
    from pipeline_assets.corpus.trace.peek import peek_packed

    with unreplaced(folder):
        seen = peek_packed(folder, row, token)
    if as_json:
        _print_json(dataclasses.asdict(seen))
        return
    typer.echo(f"row {seen.row:,}: {len(seen.segments):,} segments, {seen.padding:,} tokens of padding")
    for segment in seen.segments:
        stop = segment.start + segment.tokens
        typer.echo(f"\n{segment.source} {segment.doc_id}, tokens {segment.start:,} to {stop - 1:,} of it\n")
        _show_text(segment.text)


def _show_text(text: str) -> None:
    typer.echo(text[:_SHOWN_CHARACTERS].translate(VISIBLE))
    if len(text) > _SHOWN_CHARACTERS:
        typer.echo(f"\n… {len(text) - _SHOWN_CHARACTERS:,} more characters; --json gives all")


def _row_json(row: "AnyRow") -> dict[str, Any]:
    return {"name": str(row), **dataclasses.asdict(row)}


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1, default=str))
