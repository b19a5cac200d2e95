"""Probabilities of labels from a fastText classifier, read from its `.bin` file.

The file is mapped, so that all workers share one copy of its vectors. Sums are float64 (fastText's are float32), so
that scores rounded to six digits are equal on all processors. Only classifiers with softmax and without quantization,
like DCLM's, are supported. Line feeds are read as spaces, because fastText would classify each line by itself.
"""

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, compiled, compiled_inner
from pipeline_assets.corpus.filters import hashed_words
from pipeline_assets.corpus.filters.characters import to_int64
from pipeline_assets.corpus.filters.text_batch import TextBatch, join_texts
from pipeline_assets.spine.errors import InputError

_HEADER = struct.Struct("<14id3i2q")  # magic, version, 12 settings, `t`; numbers of entries, words, labels; two counts
_MAGIC, _VERSION, _SOFTMAX, _SUPERVISED, _MAX_NGRAM_WORDS = 793712314, 12, 3, 3, 16
_FNV_OFFSET, _FNV_PRIME, _LOW_32_BITS = np.uint64(2166136261), np.uint64(16777619), np.uint64(0xFFFFFFFF)
_SIGN_SHIFT = np.uint64(31)
_BYTE_SIGN_BITS, _HASH_SIGN_BITS = np.uint64(0xFFFFFF00), np.uint64(0xFFFFFFFF00000000)
_NGRAM_PRIME = np.uint64(116049371)
# Hashes of `__label__`, with which labels begin, and of `</s>`, the last word of every text; also its fastText hash.
_LABEL_PREFIX_HASH, _END_WORD_HASH = np.uint64(0x7CD68B05C47C1D99), np.uint64(0x7BD4011AD427EA99)
_END_FASTTEXT_HASH = np.uint64(0xD79C9359)


class Classifier(NamedTuple):
    """Dictionary, vectors and settings of a classifier."""

    words: hashed_words.HashedWords  # table from the hash of each word to its row in `input_vectors`
    input_vectors: NDArray[np.float32]  # vectors of words, then of n-grams by bucket; shape (rows, dimension)
    output_vectors: NDArray[np.float32]  # vectors of labels, shape (labels, dimension)
    word_count: int
    max_ngram_words: int  # maximum number of words in a word n-gram
    ngram_character_range: tuple[int, int]  # minimum and maximum length; a maximum of 0 disables character n-grams


def load_classifier(path: Path) -> tuple[list[str], Classifier]:
    """Map a classifier into memory; return its labels, in order, and the classifier.

    Raise InputError if the file cannot be read, or is not a classifier of the supported form.
    """
    try:
        with open(path, "rb") as file:
            return _parse_classifier(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError, struct.error) as error:
        what = f"not a fastText classifier of the supported form ({error})"
        raise InputError(what, path, "save a supervised model with softmax, not quantized, as .bin") from None


def _parse_classifier(mapped_file: mmap.mmap) -> tuple[list[str], Classifier]:
    header = _HEADER.unpack_from(mapped_file)
    (magic, version, dimension), (max_words, loss, model, buckets, *characters) = header[:3], header[7:13]
    size, number, labels, _, pruned = header[-5:]
    if (magic, version, model, loss) != (_MAGIC, _VERSION, _SUPERVISED, _SOFTMAX) or pruned >= 0:
        raise ValueError("magic number, version, model, loss or pruning differ")
    offset, words = _HEADER.size, list[bytes]()
    while len(words) < size and (end := mapped_file.find(b"\0", offset)) >= 0:
        words.append(mapped_file[offset:end])
        offset = end + 10  # after the NUL: eight bytes of the word's count, and one of its type
    input_vectors, offset = _read_matrix(mapped_file, offset)
    output_vectors, offset = _read_matrix(mapped_file, offset)
    shapes = (number + buckets, dimension), (labels, dimension)
    lacks_ngrams = buckets == 0 and (max_words > 1 or characters[1] > 0)
    if (input_vectors.shape, output_vectors.shape) != shapes or lacks_ngrams or not 0 < max_words <= _MAX_NGRAM_WORDS:
        raise ValueError("the sizes of dictionary and matrices differ")
    hashes = hashed_words.hash_strings(join_texts(words[:number]))
    table = hashed_words.build_table(hashes, np.arange(number, dtype=np.int32))
    classifier = Classifier(table, input_vectors, output_vectors, number, max_words, (characters[0], characters[1]))
    return [word.decode() for word in words[number:]], classifier


def _read_matrix(mapped_file: mmap.mmap, offset: int) -> tuple[NDArray[np.float32], int]:
    is_quantised, rows, columns = struct.unpack_from("<?2q", mapped_file, offset)
    if is_quantised:
        raise ValueError("the model is quantized")
    matrix = np.frombuffer(mapped_file, np.float32, rows * columns, offset + 17).reshape(rows, columns)
    return matrix, offset + 17 + matrix.nbytes


@always_inline
def _extend_fasttext_hash(prefix_hash: np.uint64, byte: int) -> np.uint64:
    """Extend a string's fastText hash (32-bit FNV-1a of signed bytes) by one byte."""
    sign_bits = _BYTE_SIGN_BITS if byte >= 0x80 else np.uint64(0)
    return ((prefix_hash ^ (np.uint64(byte) | sign_bits)) * _FNV_PRIME) & _LOW_32_BITS


@compiled_inner
def _add_input_vector(row: int, classifier: Classifier, hidden: NDArray[np.float64]) -> int:
    """Add a row of the input vectors to `hidden`; return 1, the number of added rows."""
    for column in range(len(hidden)):
        hidden[column] += classifier.input_vectors[row, column]
    return 1


@compiled_inner
def _add_ngram_vector(ngram_hash: np.uint64, classifier: Classifier, hidden: NDArray[np.float64]) -> int:
    bucket = to_int64(ngram_hash % np.uint64(len(classifier.input_vectors) - classifier.word_count))
    return _add_input_vector(classifier.word_count + bucket, classifier, hidden)


@compiled_inner
def _add_character_ngrams(word: NDArray[np.uint8], classifier: Classifier, hidden: NDArray[np.float64]) -> int:
    """Add the vectors of a word's character n-grams to `hidden`; return their number.

    The word is read as `<word>`, in angle brackets; a bracket alone is not an n-gram.
    """
    added, size = 0, len(word) + 2
    for start in range(size if classifier.ngram_character_range[1] else 0):
        if 0 < start < size - 1 and word[start - 1] & 0xC0 == 0x80:  # not the first byte of a character
            continue
        state, at, characters = _FNV_OFFSET, start, 0
        while at < size and characters < classifier.ngram_character_range[1]:
            state = _extend_fasttext_hash(state, 0x3C if at == 0 else 0x3E if at == size - 1 else word[at - 1])
            at += 1
            if at >= size - 1 or word[at - 1] & 0xC0 != 0x80:  # the character ends here
                characters += 1
                is_bracket = characters == 1 and (start == 0 or at == size)
                if characters >= classifier.ngram_character_range[0] and not is_bracket:
                    added += _add_ngram_vector(state, classifier, hidden)
    return added


@compiled
def label_probabilities(batch: TextBatch, classifier: Classifier) -> NDArray[np.float64]:
    """Return the probability of each label for each text, shape (texts, labels).

    A text is read up to its first word `</s>`; if it has none, `</s>` is appended. All probabilities of a text are 0 if
    none of its words is in the dictionary and it has no n-gram.
    """
    text, offsets = batch
    probabilities = np.zeros((len(offsets) - 1, len(classifier.output_vectors)))
    hidden, ngrams = np.empty(classifier.input_vectors.shape[1]), np.zeros(_MAX_NGRAM_WORDS, np.uint64)
    for number in range(len(probabilities)):
        at, end, is_end, added, words = offsets[number], offsets[number + 1], False, 0, 0
        hidden[:] = 0  # sum of the vectors of `added` words and n-grams
        while not is_end:
            # Read a word up to the next space: `key` is its hash in `model.words`, `state` its fastText hash.
            start, key, state, is_label = at, hashed_words.FNV_OFFSET, _FNV_OFFSET, False
            while at < end and text[at] != 0 and text[at] != 0x20 and not 0x09 <= text[at] <= 0x0D:
                key, state = hashed_words.extend_hash(key, text[at]), _extend_fasttext_hash(state, text[at])
                is_label |= key == _LABEL_PREFIX_HASH
                at += 1
            is_end = start >= end or key == _END_WORD_HASH
            if start >= end:  # `</s>` follows the last word
                key, state = _END_WORD_HASH, _END_FASTTEXT_HASH
            at += 1
            if is_label or (start == at - 1 and not is_end):  # labels and empty words do not count
                continue
            row = hashed_words.find_value(classifier.words, key)
            added += _add_input_vector(row, classifier, hidden) if row >= 0 else 0
            added += 0 if is_end else _add_character_ngrams(text[start : at - 1], classifier, hidden)
            state |= _HASH_SIGN_BITS if state >> _SIGN_SHIFT else np.uint64(0)  # fastText extends the sign to 64 bits
            # `ngrams[size]` is the hash of the last `size` + 1 words: extend those of one word less, longest first.
            for size in range(min(words, classifier.max_ngram_words - 1), 0, -1):
                ngrams[size] = ngrams[size - 1] * _NGRAM_PRIME + state
                added += _add_ngram_vector(ngrams[size], classifier, hidden)
            ngrams[0] = state
            words += 1
        if added:  # softmax of the products of the mean vector and the labels' vectors
            for label in range(len(classifier.output_vectors)):
                for column in range(len(hidden)):
                    probabilities[number, label] += classifier.output_vectors[label, column] * hidden[column] / added
            probabilities[number] = np.exp(probabilities[number] - probabilities[number].max())
            probabilities[number] /= probabilities[number].sum()
    return probabilities
