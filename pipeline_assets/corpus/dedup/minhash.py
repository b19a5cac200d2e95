"""MinHash signatures of documents, their bands and binary sketches.

MinHash: Broder 1997; Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, chapter 3.

A shingle is n consecutive words. Its hash is a polynomial modulo 2**64: the hashes of its words are the coefficients,
and the base is the odd constant `POLYNOMIAL`. The result is mixed, and 0 becomes 1.

Signatures equal those of datasketch 2.0 with its default scheme `affine32`. MurmurHash3's finalizer mixes the lower 32
bits of a shingle's hash to h, and permutation k is `a[k] * h + b[k]` modulo 2**32. Number k of a signature is the
minimum of permutation k over all shingles.
"""

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe, MinHashRecipe
from pipeline_assets.corpus.dedup.words import POLYNOMIAL, NormalizedBatch, mix_bits

# Multipliers of MurmurHash3's 32-bit finalizer.
_FIRST_MULTIPLIER, _SECOND_MULTIPLIER = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_16, _13 = np.uint32(16), np.uint32(13)
_NO_SHINGLES = np.uint32(2**32 - 1)  # number in the signature of a document without shingles
_ONE = np.uint64(1)


@functools.cache
def draw_permutations(recipe: MinHashRecipe | BinarySketchRecipe) -> NDArray[np.uint32]:
    """Draw the coefficients `a` and `b` of each permutation, shape (2, permutations)."""
    random = np.random.RandomState(recipe.seed)
    # 2 * n + 1 is odd, so it has an inverse modulo 2**32 and each permutation is a bijection.
    a = random.randint(0, 1 << 31, recipe.permutations, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return np.stack([a, random.randint(0, 1 << 32, recipe.permutations, dtype=np.uint32)])


def _text_shingles(batch: NormalizedBatch, shingle_words: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hash all shingles in text order, with duplicates; return as in `shingle_sets`."""
    sizes = np.maximum(batch.word_counts() - shingle_words + 1, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    hashes = np.empty(offsets[-1], np.uint64)
    _hash_shingles(batch, shingle_words, hashes, offsets)
    return hashes, offsets


@compiled
def _hash_shingles(
    batch: NormalizedBatch, shingle_words: int, hashes: NDArray[np.uint64], offsets: NDArray[np.int64]
) -> None:
    # Horner's rule: each new word multiplies the sum by the base once more. So after `shingle_words` further words, a
    # word contributes its hash times base ** shingle_words. The rolling hash subtracts this for the oldest word.
    power = np.uint64(1)
    for _ in range(shingle_words):
        power = power * POLYNOMIAL
    for document in range(len(offsets) - 1):
        words = batch.word_hashes[batch.first_words[document] : batch.first_words[document + 1]]
        shingles = hashes[offsets[document] : offsets[document + 1]]
        rolled = np.uint64(0)
        # Start with all words of the first shingle except its last, which the loop below adds.
        for word in range(min(shingle_words - 1, len(words))):
            rolled = rolled * POLYNOMIAL + words[word]
        for shingle in range(len(shingles)):
            rolled = rolled * POLYNOMIAL + words[shingle + shingle_words - 1]  # add the newest word
            if shingle:
                rolled -= words[shingle - 1] * power  # remove the word before the shingle
            shingles[shingle] = max(mix_bits(rolled), _ONE)  # 1 instead of 0


def shingle_sets(batch: NormalizedBatch, shingle_words: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hash the distinct shingles of each document; its hashes are in ascending order.

    Returns:
        Hashes, and offsets of shape (documents + 1,). Document d has `hashes[offsets[d] : offsets[d + 1]]`,
        which is empty if the document has too few words.
    """
    hashes, offsets = _text_shingles(batch, shingle_words)
    for start, stop in itertools.pairwise(offsets.tolist()):
        hashes[start:stop].sort()
    is_last = np.append(hashes[:-1] != hashes[1:], True)  # keep the last of several equal hashes
    # Keep the last hash of each document, which ends before the next offset, even if the next document begins with an
    # equal hash. (Without any hash, `is_last` has one entry too many, which the slice drops.)
    is_last[offsets[1:][offsets[1:] > 0] - 1] = True
    kept = np.flatnonzero(is_last[: len(hashes)])
    # A new offset is the number of kept hashes before the old offset.
    return hashes[kept], np.searchsorted(kept, offsets)


def minhash_signatures(batch: NormalizedBatch, recipe: MinHashRecipe | BinarySketchRecipe) -> NDArray[np.uint32]:
    """Compute the MinHash signatures of documents, shape (documents, permutations).

    All numbers in the signature of a document without shingles are 2**32 - 1.
    """
    hashes, offsets = _text_shingles(batch, recipe.shingle_words)
    signatures = np.full((len(batch.starts), recipe.permutations), _NO_SHINGLES)
    _fill_signatures(hashes, offsets, draw_permutations(recipe), signatures)
    return signatures


@compiled_inner
def _murmur_mix(shingle: np.uint64) -> np.uint32:
    """Mix the lower 32 bits of a shingle's hash with MurmurHash3's 32-bit finalizer."""
    key = np.uint32(shingle)
    key = np.uint32((key ^ (key >> _16)) * _FIRST_MULTIPLIER)
    key = np.uint32((key ^ (key >> _13)) * _SECOND_MULTIPLIER)
    return key ^ (key >> _16)


@compiled
def _fill_signatures(
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    permutations: NDArray[np.uint32],
    signatures: NDArray[np.uint32],
) -> None:
    """Fill `signatures`, in which all numbers must be `_NO_SHINGLES` at first."""
    # A pass takes four shingles, because reading and writing the signature costs as much as one shingle.
    a, b = permutations[0], permutations[1]
    for document in range(len(signatures)):
        shingles, signature = hashes[offsets[document] : offsets[document + 1]], signatures[document]
        last = len(shingles) - 1
        # A pass that has fewer than four shingles left repeats the last one, which changes no minimum.
        for shingle in range(0, len(shingles), 4):
            h0 = _murmur_mix(shingles[shingle])
            h1 = _murmur_mix(shingles[min(shingle + 1, last)])
            h2 = _murmur_mix(shingles[min(shingle + 2, last)])
            h3 = _murmur_mix(shingles[min(shingle + 3, last)])
            for k in range(len(a)):  # products and sums of uint32 wrap around: modulo 2**32
                first = min(np.uint32(a[k] * h0 + b[k]), np.uint32(a[k] * h1 + b[k]))
                second = min(np.uint32(a[k] * h2 + b[k]), np.uint32(a[k] * h3 + b[k]))
                signature[k] = min(signature[k], min(first, second))


def band_keys(signatures: NDArray[np.uint32], bands: int, salt: np.uint64) -> NDArray[np.uint64]:
    """Compute band keys of signatures; documents with a common key are candidates.

    A signature is cut into `bands` bands twice. In the first cut, a band consists of adjacent numbers; in the second,
    of every `bands`-th number. Bands of different cuts share few numbers, so the second cut finds many more pairs.

    Args:
        signatures: Signatures, shape (documents, permutations).
        bands: Number of bands in one cut.
        salt: Documents with different salts share no key, except by a collision of hashes.

    Returns:
        Keys, shape (documents, 2 * bands). With one band, or one number per band, both cuts are equal, and the shape
        is (documents, bands).
    """
    keys = np.empty((len(signatures), bands if bands in (1, signatures.shape[1]) else 2 * bands), np.uint64)
    _hash_bands(signatures, bands, salt, keys)
    return keys


@compiled
def _hash_bands(signatures: NDArray[np.uint32], bands: int, salt: np.uint64, keys: NDArray[np.uint64]) -> None:
    rows = signatures.shape[1] // bands
    for document in range(len(keys)):
        for band in range(keys.shape[1]):
            # First cut: band 0, 1, … takes `rows` adjacent numbers. Second cut: band `bands` + i takes number i and
            # every `bands`-th number after it.
            first, step = (band * rows, 1) if band < bands else (band - bands, bands)
            key = mix_bits(mix_bits(salt) ^ np.uint64(band))  # equal numbers in different bands give different keys
            for row in range(rows):
                key = mix_bits(key ^ np.uint64(signatures[document, first + row * step]))
            keys[document, band] = key


def binary_sketches(signatures: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Convert signatures to binary sketches of shape (documents, permutations / 8).

    A sketch has one bit for each number of a signature: the lowest bit after mixing. Permutations are affine modulo
    2**32, so the lowest bits of unmixed numbers would only show whether a hash is odd.
    """
    key = (signatures ^ (signatures >> _16)) * _FIRST_MULTIPLIER  # `_murmur_mix` for arrays
    key = (key ^ (key >> _13)) * _SECOND_MULTIPLIER
    return np.packbits((key ^ (key >> _16)) & np.uint32(1), axis=1)
