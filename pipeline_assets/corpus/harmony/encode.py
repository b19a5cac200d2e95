"""Texts → token ids: control tokens get their special ids, all else is ordinary text.

Ids equal openai-harmony's of the same rendering. What stands between two control tokens is encoded by itself; no text
there can give a special id.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.harmony.control_tokens import MESSAGE, STRUCTURE_OR_TEXT
from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.harmony.refusal import Reason, Refusal
from pipeline_assets.corpus.tokens.o200k_harmony import SPECIAL_TOKENS, Encoder

_NONE = -1
_MESSAGE = SPECIAL_TOKENS[MESSAGE]


@dataclass(frozen=True)
class HarmonyTokens:
    """A text's ids, shape (tokens,), and its messages' bodies, shape (messages, 2): first token, and the terminator's.

    A body without content has both the same.
    """

    ids: NDArray[np.int32]
    bodies: NDArray[np.int64]


def encode_harmony(texts: Sequence[ParsedText], encoder: Encoder) -> list[HarmonyTokens]:
    """The ids of each text.

    Raises:
        Refusal: a piece of a text that the tokenizer fails on; `message` is then the number of the text.
    """
    pieces: list[str] = []
    closers: list[int] = []  # the control token behind each piece; none behind the last one of a text
    piece_stops: list[int] = []
    bodies: list[int] = []  # the pieces that are bodies
    body_stops: list[int] = []
    for number, parsed in enumerate(texts):
        text = parsed.text
        if not encoder.can_encode(text) and not all(map(encoder.can_encode, STRUCTURE_OR_TEXT.split(text))):
            raise Refusal(Reason.NOT_ENCODABLE, "blanks that the tokenizer fails on", message=number)
        end = 0
        for _, terminator, span, body in parsed.messages:
            header_pieces, header_controls = _split(text[span.start : body.start])
            pieces += header_pieces[:-1]
            closers += header_controls
            bodies.append(len(pieces))
            pieces.append(text[body.start : body.stop])
            closers.append(_NONE if terminator is None else SPECIAL_TOKENS[terminator])
            end = span.stop
        rest_pieces, rest_controls = _split.__wrapped__(text[end:])
        bodies += (len(pieces) + 1 + place for place, control in enumerate(rest_controls) if control == _MESSAGE)
        pieces += rest_pieces
        closers += (*rest_controls, _NONE)
        body_stops.append(len(bodies))
        piece_stops.append(len(pieces))
    if not texts:
        return []
    runs = encoder.encode(pieces)
    closing = np.array(closers, np.int32)
    closed = closing != _NONE
    stops = np.cumsum(runs.lengths + closed, dtype=np.int64)
    ids = np.empty(int(stops[-1]), np.int32)
    is_text = np.ones(len(ids), bool)
    is_text[stops[closed] - 1] = False
    ids[is_text] = runs.ids
    ids[stops[closed] - 1] = closing[closed]
    text_stops = stops[np.array(piece_stops) - 1].tolist()
    body_ends = stops[bodies] - closed[bodies]
    spans = np.stack([body_ends - runs.lengths[bodies], body_ends], axis=1)
    bounds = zip(itertools.pairwise([0, *text_stops]), itertools.pairwise([0, *body_stops]), strict=True)
    return [
        HarmonyTokens(ids[start:stop], spans[first_body:body_stop] - start)
        for (start, stop), (first_body, body_stop) in bounds
    ]


@lru_cache(maxsize=4096)  # of headers, which a dataset has few of
def _split(text: str) -> tuple[list[str], list[int]]:
    """What stands around the control tokens of a text, empty pieces included, and the ids of those."""
    parts = STRUCTURE_OR_TEXT.split(text)
    return parts[::2], [SPECIAL_TOKENS[control] for control in parts[1::2]]
