"""Free ports of this machine."""

import contextlib
import secrets
import socket
from pathlib import Path

_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port that is free and outside the kernel's ephemeral range."""
    first, last = map(int, _HANDED_OUT.read_text().split())
    ports = [port for port in range(10_000, 2**16) if not first <= port <= last] or range(first, last + 1)
    while True:
        port = secrets.choice(ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
