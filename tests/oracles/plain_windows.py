"""Repeated windows in plain Python, by the rule in docs/filters.md."""

from collections.abc import Sequence
from fractions import Fraction

BASE, MODULUS = 0x9E3779B97F4A7C15, 2**64


def mixed(state: int) -> int:
    """Apply SplitMix64's finaliser."""
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % MODULUS
    state = (state ^ state >> 27) * 0x94D049BB133111EB % MODULUS
    return state ^ state >> 31


def plain_hash(window: bytes) -> int:
    polynomial = 0
    for byte in window:
        polynomial = (polynomial * BASE + byte + 1) % MODULUS
    return mixed(polynomial)


def plain_windows(text: bytes, window_bytes: int, every: int) -> list[int]:
    """Return the hashes of selected windows, in text order."""
    starts = range(max(len(text) - window_bytes, 0) + 1)
    hashes = [plain_hash(text[start : start + window_bytes]) for start in starts]
    return [value for value in hashes if value % every == 0] or [min(hashes)]


def plain_repeats(texts: Sequence[bytes], window_bytes: int, every: int, max_share: Fraction) -> dict[int, float]:
    """Return dropped documents with the share of windows seen before."""
    seen: set[int] = set()
    dropped: dict[int, float] = {}
    for number, text in enumerate(texts):
        own = set(plain_windows(text, window_bytes, every))
        if Fraction(len(own & seen), len(own)) > max_share:
            dropped[number] = len(own & seen) / len(own)
        else:
            seen |= own
    return dropped
