"""Sample of sentence pairs in plain Python.

A row is (source text, target text, weight).
"""

import decimal
import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from plain_packing import MASK, split_mix

Row = tuple[str, str, float]
_EXACT = decimal.Context(prec=28, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)


def canonical(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip()


def equal_pairs(first: Row, other: Row) -> bool:
    return [*map(canonical, first[:2])] == [*map(canonical, other[:2])]


def sha256(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()


def _bits(seed: int, algorithm: str) -> Iterator[int]:
    state = int.from_bytes(sha256(seed, "reservoir", algorithm)[:8], "big")
    while True:
        yield split_mix(state, 0)
        state = state + 0x9E3779B97F4A7C15 & MASK


def draw_classic(rows: Sequence[Row], k: int, seed: int, *, keep: bool) -> tuple[list[Row], Counter[str]]:
    """Draw by algorithm R; skip rows that equal a drawn row, unless `keep`."""
    bits, drawn, dropped, seen = _bits(seed, "classic"), list[Row](), Counter[str](), 0
    for row in rows:
        place = seen if seen < k else next(bits) * (seen + 1) >> 64
        if place < k and not keep and any(equal_pairs(row, other) for other in drawn):
            dropped["duplicate"] += 1
            continue
        seen += 1
        dropped["not_drawn"] += seen > k
        if place < k:
            drawn[place : place + 1] = [row]
    return drawn, +dropped


def draw_weighted(rows: Sequence[Row], k: int, seed: int, *, keep: bool) -> tuple[list[Row], Counter[str]]:
    """Draw by A-ExpJ: a row enters when the weights since the last reach the jump."""
    bits, drawn, dropped, keys, jump = _bits(seed, "es_weighted"), list[Row](), Counter[str](), list[Decimal](), 0.0
    for row in rows:
        if len(drawn) == k and jump > row[2]:
            jump -= row[2]
            dropped["not_drawn"] += 1
            continue
        if not keep and any(equal_pairs(row, other) for other in drawn):
            dropped["duplicate"] += 1
            jump = _draw_jump(next(bits), keys) if len(drawn) == k else jump
            continue
        weight, is_full = Decimal(row[2]), len(drawn) == k
        place = keys.index(min(keys)) if is_full else len(drawn)
        bound = _EXACT.exp(_EXACT.multiply(keys[place], weight)) if is_full else Decimal(0)
        u = _EXACT.fma(_EXACT.subtract(1, bound), _fraction(next(bits)), bound)
        keys[place : place + 1], drawn[place : place + 1] = [_EXACT.divide(_EXACT.ln(u), weight)], [row]
        dropped["not_drawn"] += is_full
        if len(drawn) == k:
            jump = _draw_jump(next(bits), keys)
    return drawn, +dropped


def _draw_jump(bits: int, keys: Sequence[Decimal]) -> float:
    return float(_EXACT.divide(_EXACT.ln(_fraction(bits)), min(keys)))


def _fraction(bits: int) -> Decimal:
    return _EXACT.divide(2 * bits + 1, 1 << 65)


def splits(uids: Sequence[str], rows: Sequence[Row], shares: Sequence[int], seed: int) -> list[str]:
    """Assign groups that share a text, the largest first, to the emptiest split."""
    exact = [Fraction(share * len(rows), sum(shares)) for share in shares]
    lacking = [int(share) for share in exact]
    for number in sorted(range(3), key=lambda number: lacking[number] - exact[number])[: len(rows) - sum(lacking)]:
        lacking[number] += 1
    ranks = [sha256(seed, "split", uid) for uid in uids]
    groups = list[tuple[set[str], list[int]]]()
    for number in sorted(range(len(rows)), key=lambda number: ranks[number]):
        texts, members = {*map(canonical, rows[number][:2])}, [number]
        joined = [group for group in groups if group[0] & texts]
        groups = [group for group in groups if group not in joined]
        for other_texts, other_members in joined:
            texts, members = texts | other_texts, members + other_members
        groups.append((texts, members))
    assigned = dict[int, str]()
    for _, members in sorted(groups, key=lambda group: (-len(group[1]), min(ranks[number] for number in group[1]))):
        split = lacking.index(max(lacking))
        lacking[split] -= len(members)
        assigned |= dict.fromkeys(members, ("train", "val", "test")[split])
    return [assigned[number] for number in range(len(rows))]
