"""Document samples for estimating the token count of a source.

Documents are sampled by the hash of their doc_id, so the sample depends on neither workers nor shard order. A small
source is sampled whole. In other sources, a document up to the mean length is sampled with probability f, the sampling
rate. A longer document is sampled with a probability that is proportional to its length. A document that is sampled
with probability p has the weight f / p.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from pipeline_assets.corpus.document import utf8_size
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer

LENGTH_BINS = 32
SAMPLE_BYTES, SAMPLE_DOCUMENTS = 4 << 20, 128  # expected sample; if all documents are equally long, the error is 1 %
WEIGHT_ONE = 1 << 32  # weights and rates are integers in units of 1 / WEIGHT_ONE, so sums do not depend on the order
_STANDARD_ERRORS = 1.96  # in half of a 95 % interval


class SamplingRule(NamedTuple):
    """Rule that samples the documents of a source."""

    rate: int  # probability that a document up to the mean length is sampled, in units of 1 / WEIGHT_ONE
    mean_bytes: int  # mean length of the documents; longer ones have a higher probability and a lower weight

    @classmethod
    def for_size(cls, documents: int, text_bytes: int) -> "SamplingRule":
        """Return the rule for a source of this size."""
        rates = ((SAMPLE_BYTES, text_bytes), (SAMPLE_DOCUMENTS, documents))
        return cls(max(WEIGHT_ONE * part // max(part, total) for part, total in rates), text_bytes // max(documents, 1))

    def weigh(self, doc_id: str, utf8_bytes: int) -> int:
        """Return a document's weight in units of 1 / WEIGHT_ONE; 0 if not sampled."""
        if self.rate == WEIGHT_ONE:
            return WEIGHT_ONE
        weight = min(max(WEIGHT_ONE * self.mean_bytes // max(utf8_bytes, 1), self.rate), WEIGHT_ONE)
        # The prefix makes this sample independent of other samples by the hash of doc_id.
        number = int.from_bytes(hashlib.sha256(b"tokens\0" + doc_id.encode()).digest()[:8])
        return weight if number * weight < self.rate << 64 else 0


class SampleSums(NamedTuple):
    """Sums over sampled documents; the sums of two samples are added field by field.

    `documents` and `utf8_bytes` count each document once. In `weights` and the weighted fields, a document counts w
    times, where w is its weight. The last three fields estimate the variance: they sum bytes², bytes * tokens and
    tokens², each multiplied by w * (w - f), where f is the sampling rate.
    """

    documents: int = 0
    utf8_bytes: int = 0
    weights: int = 0
    weighted_bytes: int = 0
    weighted_tokens: int = 0
    bytes_squares: int = 0
    byte_token_products: int = 0
    tokens_squares: int = 0

    def relative_error(self) -> float:
        """Return the 95 % margin of error of the token count, as a share of the count.

        Draws are assumed independent; see Särndal, Swensson, Wretman, Model Assisted Survey Sampling, 1992, ch. 5.6.
        """
        ratio = self.weighted_tokens / max(self.weighted_bytes, 1)
        variance = self.tokens_squares - 2 * ratio * self.byte_token_products + ratio * ratio * self.bytes_squares
        return _STANDARD_ERRORS * math.sqrt(max(variance, 0)) / max(self.weighted_tokens, 1)


def count_tokens(
    texts: Sequence[str], weights: Sequence[int], rate: int, tokenizer: Tokenizer
) -> tuple[SampleSums, list[int]]:
    """Count the tokens of sampled texts; unencodable texts count as 0 tokens.

    `weights` and `rate` are in units of 1 / WEIGHT_ONE. Return the sums over the texts, and the sum of weights per
    length bin. Bin i has the texts with 2**i to 2**(i + 1) - 1 tokens; bin 0 also has the texts with 0 tokens.
    """
    tokens = tokenizer.encode([text if tokenizer.can_encode(text) else "" for text in texts]).lengths.tolist()
    rows, lengths = list[SampleSums](), [0] * LENGTH_BINS
    for w, b, t in zip(weights, map(utf8_size, texts), tokens, strict=True):
        spread = w * (w - rate)
        rows.append(SampleSums(1, b, w, w * b, w * t, spread * b * b, spread * b * t, spread * t * t))
        lengths[max(t.bit_length() - 1, 0)] += w
    return SampleSums(*map(sum, zip(*rows, strict=True))), lengths


def scale(part: int, whole: int, new_whole: int) -> int:
    """Return `new_whole * part / whole`, rounded to an integer."""
    return (new_whole * part + whole // 2) // max(whole, 1)
