"""How many bytes came over the wire."""

import threading


class Traffic:
    """Bytes of listings and files that a hub sent, counted as they arrive, by any number of threads."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.bytes += count
