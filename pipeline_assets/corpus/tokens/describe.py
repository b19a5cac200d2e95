"""Human-readable descriptions of tokenizer files, whose hashes are checked."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.tokens import o200k_harmony, o200k_vocabulary
from pipeline_assets.corpus.tokens.pinned_file import read_pinned
from pipeline_assets.corpus.tokens.sentencepiece_model import SentencePieceModel, parse_sentencepiece
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import canonical_sha256

CHECKSUM_FILE = "checksum.json"  # next to a model: {"file", "sha256", "bytes"}


def expected_hash(path: Path, explicit_sha256: str = "") -> str:
    """Return `explicit_sha256`, else the hash in checksum.json, else ''."""
    sibling = path.with_name(CHECKSUM_FILE)
    if explicit_sha256 or not sibling.is_file():
        return explicit_sha256
    with errors_as_damage(sibling, "checksum of a tokenizer"):
        checksum = json.loads(sibling.read_bytes())
        return str(checksum["sha256"]) if checksum.get("file", path.name) == path.name else ""


def describe_sentencepiece(path: Path, expected_sha256: str = "") -> dict[str, Any]:
    """Describe a SentencePiece model: piece counts, special ids, an encoded sample.

    Special ids that the model lacks are -1. If `expected_sha256` is empty, `is_expected` is None. Raise UsageError if
    `expected_sha256` is not a sha256, and InputError for a wrong hash or an invalid model.
    """
    if expected_sha256 and not re.fullmatch("[0-9a-f]{64}", expected_sha256):
        raise UsageError("not a sha256", expected_sha256, "pass 64 lower-case hex digits")
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    pieces = parse_sentencepiece(read_pinned(path, expected_sha256 or actual, "correct the path"), path)
    model = SentencePieceModel(pieces, pieces.eos_id())
    kinds = {"control": pieces.is_control, "unknown": pieces.is_unknown, "byte": pieces.is_byte}
    ids = range(model.vocabulary_size)
    return {
        "family": "sentencepiece",
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": actual,
        "is_expected": True if expected_sha256 else None,
        "vocabulary_size": model.vocabulary_size,
        "pieces": {kind: sum(map(is_kind, ids)) for kind, is_kind in kinds.items()},
        "ids": {"unknown": pieces.unk_id(), "begin": pieces.bos_id(), "end": pieces.eos_id(), "pad": pieces.pad_id()},
        "probe": [pieces.id_to_piece(piece) for piece in model.encode(["Hello, world: 3.14!"]).ids.tolist()],
    }


_PROBE_TEXTS = [
    "Every token traces to a row at a hub commit.",
    "naïve café 日本語 العربية 🙂 \U00011dd2't",
    "<|start|>plain text, not control tokens<|end|>",
    "def f(x):\n\treturn x ** 2   \r\n\n1234567",
]


def describe_o200k(path: Path, expected_sha256: str) -> dict[str, Any]:
    """Describe an o200k Harmony rank file; InputError for a wrong hash, rank or id."""
    if not re.fullmatch("[0-9a-f]{64}", expected_sha256):
        fix = "pass 64 lower-case hex digits, or omit it for the shipped file"
        raise UsageError("not a sha256", expected_sha256, fix)
    encoder = o200k_harmony.load_encoder(expected_sha256, path)
    ranks = len(o200k_vocabulary.read_ranks(path))
    if ranks != o200k_vocabulary.NUM_RANKS:
        what = f"the file has {ranks:,} ranks, expected {o200k_vocabulary.NUM_RANKS:,} of {o200k_vocabulary.FAMILY}"
        raise InputError(what, path, "use o200k_base.tiktoken")
    runs = encoder.encode(_PROBE_TEXTS)
    slow = [token for text in _PROBE_TEXTS for token in encoder.oracle.encode_ordinary(text)]
    if runs.ids.tolist() != slow:
        raise InputError(f"{encoder.driver} and tiktoken encode a probe differently", path, "reinstall gigatoken")
    return {
        "family": o200k_vocabulary.FAMILY,
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": expected_sha256,
        "ranks": ranks,
        "vocabulary_size": o200k_vocabulary.VOCABULARY_SIZE,
        "end_of_text": o200k_vocabulary.END_OF_TEXT,
        "special_tokens_sha256": canonical_sha256(o200k_vocabulary.SPECIAL_TOKENS),
        "driver": encoder.driver,
        "probe_ids_sha256": canonical_sha256(slow),
    }
