"""Tokenizer o200k Harmony: ranks of o200k_base with Harmony's special tokens.

The ids equal tiktoken's for every text. The vocabulary file is next to this module; each load checks its sha256. Corpus
text is ordinary text: `<|endoftext|>` in a text is encoded by its characters, and only builders add special ids. The
library gigatoken encodes the texts. The library tiktoken, which is several times slower, is the oracle: it encodes a
sample of every build for comparison. tiktoken also encodes the few texts for which gigatoken's ids may differ.
"""

import functools
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.o200k_vocabulary import (
    END_OF_TEXT,
    NUM_RANKS,
    SPECIAL_TOKENS,
    VOCABULARY_SIZE,
    load_oracle,
)
from pipeline_assets.corpus.tokens.pinned_file import read_pinned
from pipeline_assets.corpus.tokens.rust_panics import panics
from pipeline_assets.corpus.tokens.token_runs import TokenRuns
from pipeline_assets.corpus.tokens.tokenizer import ControlledIds, Tokenizer
from pipeline_assets.spine.section import RecipeSection
from pipeline_assets.spine.usage import resident_bytes

if TYPE_CHECKING:
    import gigatoken
    import tiktoken


logger = logging.getLogger("corpusmill")
Driver = Literal["gigatoken", "tiktoken"]

VOCABULARY_PATH = Path(__file__).with_name("o200k_base.tiktoken")
VOCABULARY_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
# tiktoken's regex engine overflows its stack on 999,999 spaces in a row, a panic that no `except Exception` catches.
# The lookbehind tries only the beginning of a run; otherwise a run that is slightly shorter takes 5e11 steps.
_LONG_BLANKS = re.compile(r"(?<!\s)\s{999999}")
# gigatoken 0.10 and tiktoken 0.14 have different Unicode versions: only one of them treats these code points as letters
# or marks. The ranges come from encoding every code point in many contexts; a test repeats that.
_DIFFERING_CHARACTERS = (
    "\u088f\u0c5c\u0cdc\u1acf-\u1add\u1ae0-\u1aeb\ua7ce\ua7cf\ua7d2\ua7d4\ua7f1\U00010940-\U00010959"
    "\U00010ec5-\U00010ec7\U00010efa\U00010efb\U00011b60-\U00011b67\U00011db0-\U00011ddb\U00011de0-\U00011de9"
    "\U00016ea0-\U00016eb8\U00016ebb-\U00016ed3\U00016ff2-\U00016ff6\U000187f8-\U000187ff\U00018d09-\U00018d1e"
    "\U00018d80-\U00018df2\U0001e6c0-\U0001e6de\U0001e6e0-\U0001e6f5\U0001e6fe\U0001e6ff\U0002b73a-\U0002b73f"
    "\U0002cea2-\U0002cead\U000323b0-\U00033479"
)
_DIFFERING_CHARACTER = re.compile(f"[{_DIFFERING_CHARACTERS}]")
# First UTF-8 byte of these characters, and a pattern of their first two bytes. Few texts have such a first byte, and
# searching for a single byte is almost free.
_FIRST_BYTES = {
    b"\xe0": re.compile(b"\xe0[\xa2\xb1\xb3]"),
    b"\xe1": re.compile(b"\xe1\xab"),
    b"\xea": re.compile(b"\xea\x9f"),
    b"\xf0": re.compile(b"\xf0[\x90\x91\x96\x98\x9e\xab\xac\xb2\xb3]"),
}
# gigatoken's word cache only grows, by doubling its table (64, 128, 256 MiB), with old and new in memory together.
# Above this limit, which a table of 128 MiB exceeds, the encoder is replaced by a new one.
_MAX_CACHE_BYTES = 96 << 20
# Below this number of ids, gigatoken's result may have a buffer of 4 KiB and more, which a copy frees.
_COPY_BELOW_IDS = 1024
_CACHE_GROWTH_FACTOR = 4  # cache bytes per byte of text, for systems on which a process cannot measure its memory


class HarmonyRecipe(RecipeSection):
    """Recipe of o200k Harmony; `sha256` pins the vocabulary file."""

    family: Literal["o200k_harmony"] = "o200k_harmony"
    sha256: str = VOCABULARY_SHA256

    def describe(self) -> dict[str, object]:
        """Return the recipe's content with the vocabulary file's path in the project."""
        return {**self.content(), "path": VOCABULARY_PATH.relative_to(VOCABULARY_PATH.parents[3]).as_posix()}

    @pydantic.field_validator("sha256")
    @classmethod
    def _check_sha256(cls, sha256: str) -> str:
        if sha256 != VOCABULARY_SHA256:
            raise ValueError(f"the vocabulary that ships with this program has {VOCABULARY_SHA256}")
        return sha256


class HarmonyEncoder(Tokenizer):
    """Single-threaded tokenizer o200k Harmony; `load_encoder` creates it."""

    vocabulary_size = VOCABULARY_SIZE
    end_of_document_id = padding_id = END_OF_TEXT
    special_ids = SPECIAL_TOKENS

    def __init__(self, vocabulary_file: Path, sha256: str, driver: Driver) -> None:
        self._vocab_file, self._sha256 = vocabulary_file, sha256
        self.driver = driver
        self._fast_tokenizers: dict[tuple[str, ...], gigatoken.Tokenizer] = {}  # by the control tokens that each knows
        self._grown_bytes = 0

    def __reduce__(self) -> tuple[Callable[..., "HarmonyEncoder"], tuple[object, ...]]:
        """Pickle only the arguments of `load_encoder`; unpickling loads a new encoder."""
        return load_encoder, (self._sha256, self._vocab_file, self.driver)

    @property
    def oracle(self) -> "tiktoken.Encoding":
        """Tokenizer of tiktoken with the same vocabulary."""
        return load_oracle(self._vocab_file, self._sha256)

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Encode texts as ordinary text; each text must pass `can_encode`."""
        raw = [text if text.isascii() else text.encode("utf-8") for text in texts]
        text_bytes = sum(map(len, raw))
        if self.driver == "tiktoken" or not texts:
            return TokenRuns.from_lists([self.oracle_ids(text) for text in texts], text_bytes)
        runs = self._encode_each(raw)
        for number, text in enumerate(raw):
            if isinstance(text, bytes) and _may_split_differently(text):
                runs[number] = self.oracle_ids(texts[number]).view(np.uint32)
        lengths = np.fromiter(map(len, runs), np.int32, len(runs))
        return TokenRuns(np.concatenate(runs).view(np.int32), lengths, text_bytes)

    def encode_controlled(self, texts: Sequence[bytes], controls: Sequence[str]) -> list[ControlledIds]:
        if self.driver == "tiktoken":
            return super().encode_controlled(texts, controls)
        runs = [ids.view(np.int32) for ids in self._encode_each(texts, *controls)]
        for number in [number for number, text in enumerate(texts) if _may_split_differently(text)]:
            ids = self.oracle.encode(texts[number].decode(), allowed_special=set(controls), disallowed_special=())
            runs[number] = np.array(ids, np.int32)
        return [ControlledIds(ids, np.flatnonzero(ids >= NUM_RANKS)) for ids in runs]

    def decode(self, ids: NDArray[np.int32]) -> str:
        """Decode ids; special ids become their names, and invalid UTF-8 becomes U+FFFD."""
        return self.oracle.decode(ids.tolist())

    def oracle_ids(self, text: str) -> NDArray[np.int32]:
        """Encode a text with tiktoken."""
        return np.array(self.oracle.encode_ordinary(text), np.int32)

    def contains_special(self, ids: NDArray[np.int32]) -> bool:
        """Check whether one of `ids` is a special id or out of range."""
        return bool(ids.view(np.uint32).max(initial=0) >= NUM_RANKS)  # a negative id is above all others as uint32

    def can_encode(self, text: str) -> bool:
        """Check whether tiktoken can encode a text; it panics on 999,999 spaces in a row."""
        if len(text) < 999_999 or _LONG_BLANKS.search(text) is None:
            return True
        return not panics(lambda: self.oracle.encode_ordinary(text))

    def _encode_each(self, texts: Sequence[str | bytes], *controls: str) -> list[NDArray[np.uint32]]:
        """Encode each text with gigatoken.

        Each name in `controls` is encoded as a control token. A text is a `str` if it is ASCII, otherwise UTF-8 bytes.
        """
        if self._grown_bytes > _MAX_CACHE_BYTES:
            self._fast_tokenizers, self._grown_bytes = {}, 0
        if controls not in self._fast_tokenizers:
            import gigatoken

            special = {control: SPECIAL_TOKENS[control] for control in controls}
            fast = gigatoken.Tokenizer.from_tiktoken(self._vocab_file, pretokenizer="o200k", special_tokens=special)
            fast.encode(b"the first text builds the tables")
            self._fast_tokenizers[controls] = fast
        before = resident_bytes()
        # Text by text: a batch is not faster, and its result imports awkward, which takes a fifth of a second.
        results = map(self._fast_tokenizers[controls].backend.encode, texts)
        runs = [ids.copy() if len(ids) < _COPY_BELOW_IDS else ids for ids in results]
        after, result_bytes = resident_bytes(), sum(ids.nbytes for ids in runs)
        is_known = before and after  # else this system cannot measure the memory of a process
        growth = max(after - before - result_bytes, 0) if is_known else _CACHE_GROWTH_FACTOR * sum(map(len, texts))
        self._grown_bytes += growth  # the caches grow by all new memory but the result's
        return runs


def load_encoder(sha256: str, vocabulary_file: Path | None = None, driver: Driver = "gigatoken") -> HarmonyEncoder:
    """Load the encoder of a vocabulary file; each process caches the last four.

    If gigatoken is not installed, tiktoken encodes: more slowly, but to the same ids. Raise InputError if the file's
    hash is not `sha256`.
    """
    return _load_cached(sha256, vocabulary_file or VOCABULARY_PATH, driver)


@functools.lru_cache(maxsize=4)
def _load_cached(sha256: str, vocabulary_file: Path, driver: Driver) -> HarmonyEncoder:
    check_vocabulary(vocabulary_file, sha256)
    if driver == "gigatoken":
        try:
            import gigatoken  # noqa: F401
        except ImportError as error:
            logger.warning("cannot load gigatoken (%s); tiktoken encodes to the same ids, more slowly", error)
            driver = "tiktoken"
    return HarmonyEncoder(vocabulary_file, sha256, driver)


def check_vocabulary(vocabulary_file: Path, sha256: str) -> None:
    """Raise InputError if a vocabulary file does not have its pinned sha256."""
    fix = "reinstall the program" if vocabulary_file == VOCABULARY_PATH else "pass the path of a .tiktoken file"
    read_pinned(vocabulary_file, sha256, fix)


def _may_split_differently(text: bytes) -> bool:
    """Check whether gigatoken and tiktoken may split a UTF-8 text differently."""
    for first, pair in _FIRST_BYTES.items():
        if first in text and pair.search(text):
            return _DIFFERING_CHARACTER.search(text.decode()) is not None
    return False
