"""What trace prints."""

from typing import TYPE_CHECKING

from pipeline_assets.commands.terminal import IN_ONE_LINE

if TYPE_CHECKING:
    from pipeline_assets.corpus.packing.summary import DrawnLine
    from pipeline_assets.corpus.trace.conversation_to_source import ConversationTrace
    from pipeline_assets.corpus.trace.document_to_source import DocumentTrace
    from pipeline_assets.corpus.trace.packed_to_source import DrawnDocument, SegmentTrace
    from pipeline_assets.corpus.trace.source_row import AnyRow
    from pipeline_assets.corpus.trace.source_to_corpora import CorpusFate, FilterFate
    from pipeline_assets.corpus.trace.source_to_tokens import RowFate, SplitFate
    from pipeline_assets.corpus.trace.token_to_source import Trace


def token_lines(found: "Trace") -> list[str]:
    """A sequence of a split, or a token of it."""
    last = found.first_token + found.tokens - 1
    lines = []
    if found.token is not None:
        token = found.token
        place = f"number {token.number:,} of its document, at byte {token.byte_offset:,} of the text"
        if token.is_end_of_text:
            place = f"the end of text that closes the document, after byte {token.byte_offset:,}"
        lines = [f"token     {token.position:,}: id {token.id}, {place}"]
    lines += [
        f"sequence  {found.sequence:,}: {found.tokens:,} tokens, {found.first_token:,} to {last:,} of tokens.bin",
        f"document  {found.doc_id}",
        f"shard     {found.snapshot / found.shard} row {found.shard_row:,}",
        f"source    {found.source}",
        f"          {found.source_digest}",
        f"licence   {found.license_tag}",
    ]
    if found.token is None:
        return [*lines, f"text      {found.beginning.translate(IN_ONE_LINE)}"]
    before, own, after = (
        text.translate(IN_ONE_LINE) for text in (found.token.before, found.token.text, found.token.after)
    )
    return [*lines, f"text      {before}»{own}«{after}"]


def document_lines(found: "DocumentTrace") -> list[str]:
    """A document of a corpus."""
    lines = [
        f"document  {found.doc_id}",
        f"shard     {found.corpus / found.shard} row {found.shard_row:,}",
        f"source    {found.source}",
        f"          {found.source_digest}",
        *_line_of(found.source),
        *(f"answer    {answer}" for answer in found.answers),
        f"licence   {found.license_tag} ({found.license_evidence})",
        f"text      {found.beginning}",
    ]
    return [line.translate(IN_ONE_LINE) for line in lines]


def conversation_lines(found: "ConversationTrace") -> list[str]:
    """A normalised row."""
    lines = [
        f"row       {found.id}",
        f"shard     {found.folder / found.shard} row {found.shard_row:,}",
        f"tokens    {found.tokens:,}, {found.completion_tokens:,} of them completion",
        f"source    {found.source}",
        f"          {found.source_digest}",
        *_line_of(found.source),
        f"licence   {found.license or 'not stated'}",
        f"asked     {found.asked}",
    ]
    return [line.translate(IN_ONE_LINE) for line in lines]


def _line_of(row: "AnyRow") -> list[str]:
    """Of a file of lines, on which a row is."""
    from pipeline_assets.corpus.trace.source_row import place_told

    place = place_told(row)
    return [] if place.startswith("row ") else [f"          {place}"]


def segment_lines(found: "SegmentTrace") -> list[str]:
    """A segment of a packed row, or a token of it."""
    document, token = document_lines(found.document), found.token
    segment = f"segment   row {found.row:,} from column {found.column:,} on: {_numbers(found.start, found.tokens)}"
    if token is None:
        return [segment, *document]
    place = (
        "the end that closes its document" if token.is_end_of_document else f"number {token.number:,} of its document"
    )
    around = [text.translate(IN_ONE_LINE) for text in (token.before, token.text, token.after)]
    text = "text      {}»{}«{}".format(*around)
    return [f"token     {token.position:,}: id {token.id}, {place}", segment, *document[:-1], text]


def drawn_lines(found: "DrawnDocument") -> list[str]:
    """A document of a packed set."""
    draws = [f"drawn     in epoch {draw.epoch}: {_tokens_of(draw)}" for draw in found.draws]
    pieces = [
        f"packed    row {piece.row:,} from column {piece.column:,} on: {_numbers(piece.start, piece.tokens)}"
        for piece in found.pieces
    ]
    return [*document_lines(found.document), *draws, *pieces]


def draw_words(draw: "DrawnLine") -> str:
    """Where a packed set has a document that it drew."""
    where = f"in row {draw.first_row:,}" if draw.is_whole else f"of which the first is in row {draw.first_row:,}"
    return f"drawn in epoch {draw.epoch}: {_tokens_of(draw)} {where}"


def _tokens_of(draw: "DrawnLine") -> str:
    cut = "" if draw.packed_tokens == draw.tokens else f" of {draw.tokens:,}"
    return f"{draw.packed_tokens:,}{cut} tokens"


def _numbers(start: int, tokens: int) -> str:
    """Which tokens of a document."""
    return f"tokens {start:,} to {start + tokens - 1:,} of it" if tokens > 1 else f"token {start:,} of it"


def fate_lines(fate: "RowFate | CorpusFate") -> list[str]:
    """What became of a source row in a snapshot and its splits, or in a corpus and what was filtered of it."""
    from pipeline_assets.corpus.trace.source_to_tokens import RowFate

    if isinstance(fate, RowFate):
        lines = [f"snapshot  {fate.snapshot}"]
        below = [f"split     {split.split}: {_split_words(split)}" for split in fate.splits]
        below = below or ["split     none was made from it"]
    else:
        lines = [f"corpus    {fate.corpus}"]
        below = [f"filtered  {filtered.corpus}: {_filter_words(filtered)}" for filtered in fate.filtered]
        below = below or ["filtered  nothing was filtered of it"]
    if fate.doc_id is None:
        words = f"          {fate.outcome.replace('_', ' ')}: {fate.detail}"
        return [*lines, words.translate(IN_ONE_LINE)]
    part = ", of which it is an answer" if fate.outcome == "merged" else ""
    document = f"document  {fate.doc_id.translate(IN_ONE_LINE)}{part}"
    return [*lines, document, f"shard     {fate.shard} row {fate.shard_row:,}", *below]


def _split_words(fate: "SplitFate") -> str:
    if fate.outcome == "in_split":
        return f"sequence {fate.sequence:,}, tokens {fate.first_token:,} to {fate.last_token:,}"
    return f"{fate.outcome.replace('_', ' ')}: {fate.detail}"


def _filter_words(fate: "FilterFate") -> str:
    if fate.outcome == "kept":
        return f"kept, {fate.shard} row {fate.shard_row:,}; `corpusmill stage-a why` tells what came then"
    return f"{fate.outcome}: {fate.detail}".translate(IN_ONE_LINE)
