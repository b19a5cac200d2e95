"""Public IPv4 addresses in a text, as FineWeb finds them: four decimal octets, wherever they stand.

One that is private or reserved, or has a leading zero, is passed over. Nor is IPv6 looked for there.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled

DOT = 0x2E
ALNUM, ATOM, DIGIT = 1, 2, 4
_ZERO = 0x30
# Special-purpose networks that aren't globally reachable, of IANA's registry (RFC 6890), as first and last address.
_RESERVED = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"
)


def byte_kinds() -> NDArray[np.uint8]:
    """Of each byte, whether an e-mail address may have it in a label, in an atom, an octet; shape (256,)."""
    kinds = np.zeros(256, np.uint8)
    for character in map(chr, range(128)):
        if character.isalnum():
            kinds[ord(character)] |= ALNUM | ATOM
        if character.isdigit():
            kinds[ord(character)] |= DIGIT
        if character in "!#$%&'*+/=?^_`{|}~-":
            kinds[ord(character)] |= ATOM
    return kinds


def reserved_networks() -> NDArray[np.int64]:
    """First and last address of each network whose addresses stay, shape (networks, 2)."""
    networks = []
    for network in _RESERVED.split():
        address, length = network.split("/")
        first = int.from_bytes(bytes(map(int, address.split("."))), "big")
        networks.append((first, first + (1 << 32 - int(length)) - 1))
    return np.array(networks, np.int64)


@compiled
def octet_at(text: NDArray[np.uint8], at: int, stop: int, kinds: NDArray[np.uint8]) -> int:
    """How many digits the longest octet has that begins at `at`: three up to 255, else two, or one; 0 for none."""
    width = 0
    while width < 3 and at + width < stop and kinds[text[at + width]] & DIGIT:
        width += 1
    if width == 3 and (text[at] - _ZERO) * 100 + (text[at + 1] - _ZERO) * 10 + text[at + 2] - _ZERO > 255:
        return 2
    return width


@compiled
def _ip_at(text: NDArray[np.uint8], free: int, dot: int, stop: int, kinds: NDArray[np.uint8]) -> tuple[int, int]:
    """First byte and the byte after of the address whose first dot is at `dot`; both 0 if there is none."""
    end = dot
    for octet in range(3):
        width = octet_at(text, end + 1, stop, kinds)
        end += width + 1
        if width == 0 or (octet < 2 and (end >= stop or text[end] != DOT)):
            return 0, 0
    for width in (3, 2, 1):
        if dot - width >= free and octet_at(text, dot - width, dot, kinds) == width:
            return dot - width, end
    return 0, 0


@compiled
def _is_public(text: NDArray[np.uint8], start: int, end: int, reserved: NDArray[np.int64]) -> bool:
    address = octet = digits = 0
    for place in range(start, end):
        if text[place] == DOT:
            address, octet, digits = address << 8 | octet, 0, 0
        elif digits > 0 and octet == 0:
            return False
        else:
            octet = octet * 10 + text[place] - _ZERO
            digits += 1
    address = address << 8 | octet
    is_reserved = False
    for network in range(len(reserved)):
        is_reserved = is_reserved or reserved[network, 0] <= address <= reserved[network, 1]
    return not is_reserved


@compiled
def find_ips(
    text: NDArray[np.uint8],
    free: int,
    stop: int,
    kinds: NDArray[np.uint8],
    reserved: NDArray[np.int64],
    spans: NDArray[np.int64],
    found: int,
) -> int:
    """Adds the addresses between `free` and `stop` to those found before; how many there are then."""
    for dot in range(free, stop):
        if text[dot] == DOT and dot > free and kinds[text[dot - 1]] & DIGIT:
            start, end = _ip_at(text, free, dot, stop, kinds)
            if end:
                free = end
                if _is_public(text, start, end, reserved):
                    spans[found, 0], spans[found, 1] = start, end
                    found += 1
    return found
