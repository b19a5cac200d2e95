"""A tokenizer file, described: its hash, size and special tokens, and whether both drivers encode a probe alike."""

import re
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine.canonical_json import sha256_of
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.tokens.o200k_harmony import (
    END_OF_TEXT,
    FAMILY,
    RANKS,
    SPECIAL_TOKENS,
    VOCABULARY_SIZE,
    load_encoder,
    read_ranks,
)

_PROBE = [
    "Every token traces to a row at a hub commit.",
    "naïve café 日本語 العربية 🙂 \U00011dd2't",
    "<|start|>plain text, not control tokens<|end|>",
    "def f(x):\n\treturn x ** 2   \r\n\n1234567",
]


def describe_tokenizer(path: Path, expected_sha256: str) -> dict[str, Any]:
    """What the file is.

    Raises:
        UsageError: the expected hash is none.
        InputError: missing, another hash, not a rank file, not this family's size, or drivers that disagree.
    """
    if not re.fullmatch("[0-9a-f]{64}", expected_sha256):
        raise UsageError("this is no sha256", expected_sha256, "give 64 hex digits, or nothing for the shipped one's")
    encoder = load_encoder(expected_sha256, path)
    ranks = len(read_ranks(path))
    if ranks != RANKS:
        raise InputError(f"it has {ranks:,} ranks, {FAMILY} has {RANKS:,}", path, "give o200k_base.tiktoken")
    runs = encoder.encode(_PROBE)
    slow = [token for text in _PROBE for token in encoder.oracle.encode_ordinary(text)]
    if runs.ids.tolist() != slow:
        raise InputError(f"{encoder.driver} and tiktoken encode a probe differently", path, "reinstall gigatoken")
    return {
        "family": FAMILY,
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": expected_sha256,
        "ranks": ranks,
        "vocabulary_size": VOCABULARY_SIZE,
        "end_of_text": END_OF_TEXT,
        "special_tokens_sha256": sha256_of(SPECIAL_TOKENS),
        "driver": encoder.driver,
        "probe_ids_sha256": sha256_of(slow),
    }
