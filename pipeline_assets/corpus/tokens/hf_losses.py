"""Losses of a tokenizer.json: lengths of tokens and steps that can lose text."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_assets.corpus.tokens.losses import LossCounter, piece_length

if TYPE_CHECKING:
    import tokenizers

_NESTED = ("normalizers", "pretokenizers")  # of a Sequence
_BYTE_BLANKS = frozenset(" \t\n\r\v\f")


def hf_loss_counter(
    content: Mapping[str, Any], library: "tokenizers.Tokenizer", vocabulary: Mapping[str, int], unknown: set[int]
) -> LossCounter | None:
    """Return what counts the losses of a tokenizer.json; None if it cannot lose text.

    Args:
        content: of the file.
        vocabulary: all ids by token, added tokens among them.
        unknown: ids for text that the vocabulary lacks; empty for a model that drops such text, or raises.
    """
    model, normalizers = content["model"], [*_steps(content.get("normalizer"))]
    splitters = [*_steps(content.get("pre_tokenizer"))]
    is_byte_level = any(step["type"] == "ByteLevel" for step in (*splitters, *normalizers))
    removes, deletes = any(map(_removes, splitters)), any(map(_deletes, normalizers))
    if _has_all_bytes(model, vocabulary, is_byte_level) and not removes and not deletes:
        return None
    size = max(vocabulary.values()) + 1
    is_unknown, lengths = np.zeros(size, bool), np.zeros(size, np.int64)
    is_unknown[list(unknown)] = True
    decoration = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
    for token, number in vocabulary.items():
        lengths[number] = _byte_length(token) if is_byte_level else piece_length(token, *decoration)
    if model.get("byte_fallback"):
        for byte, number in _byte_tokens(vocabulary):
            lengths[number] = byte > ord(" ") and byte & 0xC0 != 0x80  # the first byte of a character counts
    lengths[is_unknown] = 0
    drops_unknown = "merges" in model and not unknown
    has_text = library.normalizer is not None and not any(step["type"] == "ByteLevel" for step in normalizers)
    normalize = library.normalizer.normalize_str if has_text else None
    return LossCounter(is_unknown, lengths, removes or deletes or drops_unknown, normalize, deletes, is_byte_level)


def _steps(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normaliser or pre-tokenizer, a Sequence step by step."""
    nested = next((step[name] for name in _NESTED if name in step), None) if step is not None else ()
    if nested is None and step is not None:
        yield step
    for inner in nested or ():
        yield from _steps(inner)


def _removes(splitter: Mapping[str, Any]) -> bool:
    """Check whether a pre-tokenizer can remove characters that are not blank."""
    return splitter.get("behavior") == "Removed" or bool(str(splitter.get("delimiter", "")).strip())


def _deletes(normalizer: Mapping[str, Any]) -> bool:
    """Check whether a normaliser can delete characters that are not blank."""
    match normalizer["type"]:
        case "StripAccents":
            return True
        case "BertNormalizer":
            return normalizer.get("strip_accents") is not False
        case _:
            return normalizer["type"] == "Replace" and _shortens(normalizer)


def _shortens(replace: Mapping[str, Any]) -> bool:
    """Check whether a Replace may write less than it replaces.

    A regular expression may: its matches are not known.
    """
    pattern = replace["pattern"].get("String")
    return pattern is None or len(pattern.strip()) > len(replace["content"].strip())


def _has_all_bytes(model: Mapping[str, Any], vocabulary: Mapping[str, int], is_byte_level: bool) -> bool:
    if is_byte_level:
        from tokenizers.pre_tokenizers import ByteLevel

        return "merges" in model and vocabulary.keys() >= set(ByteLevel.alphabet())
    return bool(model.get("byte_fallback")) and len(_byte_tokens(vocabulary)) == 256


def _byte_tokens(vocabulary: Mapping[str, int]) -> list[tuple[int, int]]:
    """List the bytes that have a token of their own, with its id."""
    tokens = ((byte, vocabulary.get(f"<0x{byte:02X}>")) for byte in range(256))
    return [(byte, number) for byte, number in tokens if number is not None]


def _byte_length(token: str) -> int:
    """Count the bytes, without blanks, that a token at byte level stands for.

    Each byte is a character of its own. Bytes below 33 are written as U+0100 plus their number, a blank as U+0120.
    """
    return sum(
        chr(ord(character) - 0x100) not in _BYTE_BLANKS if ord(character) >= 0x100 else True for character in token
    )
