"""Vocabulary of o200k Harmony, with the tokenizer that tiktoken builds from it."""

import binascii
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_assets.spine.errors import InputError

if TYPE_CHECKING:
    import tiktoken


FAMILY = "o200k_harmony"
NUM_RANKS = 199_998
VOCABULARY_SIZE = 201_088
END_OF_TEXT = 199_999
_NAMED_TOKENS = {
    "<|startoftext|>": 199_998,
    "<|endoftext|>": END_OF_TEXT,
    "<|return|>": 200_002,
    "<|constrain|>": 200_003,
    "<|channel|>": 200_005,
    "<|start|>": 200_006,
    "<|end|>": 200_007,
    "<|message|>": 200_008,
    "<|call|>": 200_012,
}
# From openai-harmony 0.0.8; every id without a name of its own is reserved.
SPECIAL_TOKENS: dict[str, int] = _NAMED_TOKENS | {
    f"<|reserved_{number}|>": number
    for number in range(NUM_RANKS, VOCABULARY_SIZE + 1)
    if number not in _NAMED_TOKENS.values()
}
# Split pattern of o200k_base, from tiktoken_ext/openai_public.py of tiktoken 0.14.
SPLIT_PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


@functools.lru_cache(maxsize=1)
def load_oracle(vocabulary_file: Path, sha256: str) -> "tiktoken.Encoding":
    """Load tiktoken's tokenizer from a verified file; cache the last one loaded."""
    import tiktoken

    ranks = read_ranks(vocabulary_file)
    return tiktoken.Encoding(name=FAMILY, pat_str=SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL_TOKENS)


def read_ranks(vocabulary_file: Path) -> dict[bytes, int]:
    """Map token bytes to ranks, from lines `<base64> <rank>`; InputError if invalid."""
    fields = vocabulary_file.read_bytes().split()
    try:
        ranks = dict(zip(map(binascii.a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
    except ValueError:
        ranks = {}
    if not ranks or list(ranks.values()) != list(range(len(ranks))):
        what = "expected lines of `<base64> <rank>` with ranks 0, 1, 2, …"
        raise InputError(what, vocabulary_file, "use a .tiktoken rank file")
    return ranks
