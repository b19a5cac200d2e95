"""Huge pages for a process, so that its forks copy few page tables."""

import ctypes
from pathlib import Path

HUGE_PAGE = 2 << 20
MADV_COLLAPSE = 25


def use_huge_pages() -> None:
    """Move this process's own memory into huge pages, where the kernel can.

    A fork that writes to one copies no more than a small page.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, inode, *_ = line.split()
        if inode == "0" and access == "rw-p":
            start, end = (int(address, 16) for address in span.split("-"))
            start, end = -(-start // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE
            if start < end:
                madvise(start, end - start, MADV_COLLAPSE)
