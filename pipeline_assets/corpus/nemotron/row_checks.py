"""What must hold of normalised rows, checked from their texts and tokens, not from what made them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.harmony.control_tokens import CALL, END, MESSAGE, RETURN, START
from pipeline_assets.corpus.harmony.encode import HarmonyTokens, encode_harmony
from pipeline_assets.corpus.harmony.loss_spans import AssistantLast, LossMode, loss_messages, loss_spans
from pipeline_assets.corpus.harmony.parse import ParsedText, parse_harmony
from pipeline_assets.corpus.harmony.refusal import Refusal
from pipeline_assets.corpus.tokens.o200k_harmony import SPECIAL_TOKENS, Encoder

_IS_ASSISTANT = re.compile(r"assistant(?=[ :<]|\Z)")
_ENDS = [SPECIAL_TOKENS[end] for end in (END, CALL, RETURN)]


def rows_add_up(counts: Counter[str]) -> bool:
    """Whether every row came out or was rejected with its reason."""
    rejected = sum(count for name, count in counts.items() if name.startswith("rejected_"))
    return counts["rows_in"] == counts["rows_out"] + rejected


def unparsed_rows(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """(row in the batch, why) for each text that says it is Harmony and isn't, or isn't and is."""
    texts, claims = batch.column("text").to_pylist(), batch.column("quality_valid_harmony").to_pylist()
    for row, (text, is_claimed) in enumerate(zip(texts, claims, strict=True)):
        why = _refusal(text)
        if is_claimed is not (why is None):
            yield row, why or "it is Harmony, and says it is not"


def encoding_faults(
    batch: pa.RecordBatch, rows: Sequence[int], loss: LossMode, encoder: Encoder
) -> Iterator[tuple[int, str]]:
    """(row in the batch, what) wherever tokens and text disagree.

    Held against each other: the ids and tiktoken's of the same text, the ids decoded and the text, the counts of the
    row, and the bodies that count in the loss (`span_faults`).

    Args:
        rows: the sample; tiktoken is several times slower than the rest.
    """
    sample = batch.take(pa.array(rows, pa.int64())).to_pylist()
    for row, values in zip(rows, sample, strict=True):
        if not values["quality_valid_harmony"]:
            continue
        text = values["text"]
        parsed = parse_harmony(text)
        [encoded] = encode_harmony([parsed], encoder)
        if encoded.ids.tolist() != encoder.oracle.encode(text, allowed_special="all"):
            yield row, "its ids are not tiktoken's"
        if encoder.decode(encoded.ids) != text:
            yield row, "its ids don't decode to its text"
        completion = sum(stop - start for start, stop in encoded.bodies[loss_messages(parsed, loss)].tolist())
        if (values["stats_tokens"], values["stats_completion_tokens"]) != (len(encoded.ids), completion):
            yield row, f"it has {len(encoded.ids)} tokens, {completion} of them completion"
        yield from ((row, what) for what in span_faults(parsed, encoded, loss, encoder))


def span_faults(parsed: ParsedText, encoded: HarmonyTokens, loss: LossMode, encoder: Encoder) -> Iterator[str]:
    """Where the bodies that count are not exactly the assistant's: read off the control tokens among the ids."""
    starts = np.flatnonzero(encoded.ids == SPECIAL_TOKENS[START]).tolist()
    opened = np.flatnonzero(encoded.ids == SPECIAL_TOKENS[MESSAGE]).tolist()
    closed = np.flatnonzero(np.isin(encoded.ids, _ENDS)).tolist()
    if not len(starts) == len(opened) == len(closed) == len(parsed.messages):
        yield f"{len(parsed.messages)} messages have {len(starts)} starts, {len(opened)} bodies, {len(closed)} ends"
        return
    headers = [encoder.decode(encoded.ids[start + 1 : stop]) for start, stop in zip(starts, opened, strict=True)]
    expected = _counting(headers, loss)
    counting = loss_messages(parsed, loss)
    if counting != expected:
        yield f"messages {counting} count, by their headers {expected} should"
    for number, span in zip(counting, loss_spans(parsed, loss), strict=True):
        first, stop = encoded.bodies[number].tolist()
        if (first, stop) != (opened[number] + 1, closed[number]):
            yield f"the body of message {number} is not between its control tokens"
        if encoder.decode(encoded.ids[first:stop]) != parsed.text[span.start : span.stop]:
            yield f"the body of message {number} is not the text of its span"


def _counting(headers: Sequence[str], loss: LossMode) -> list[int]:
    spoken = [number for number, header in enumerate(headers) if _IS_ASSISTANT.match(header)]
    if isinstance(loss, AssistantLast):
        return [number for number in spoken[-1:] if " to=" not in headers[number]]
    return [
        number
        for number in spoken
        if (loss.calls or " to=" not in headers[number])
        and (loss.analysis or "<|channel|>analysis" not in headers[number])
    ]


def _refusal(text: str) -> str | None:
    try:
        return None if parse_harmony(text).messages else "there are no messages"
    except Refusal as refusal:
        return str(refusal)
