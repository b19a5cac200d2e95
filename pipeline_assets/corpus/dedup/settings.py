"""Run settings of a deduplication."""

from dataclasses import dataclass

from pipeline_assets.corpus.spine.engine import EngineSettings

_PROCESS_BYTES = 200 << 20  # libraries, compiled code, tables
_LEAST_SHARE_BYTES = 64 << 20


@dataclass(frozen=True)
class DedupSettings:
    """They change speed and memory, never content.

    Attributes:
        share_bytes: what one worker may hold of the corpus; what is beyond it is spilled.
        faiss_gpu: the GPU that faiss is to search on; None for the CPU.
    """

    engine: EngineSettings
    zstd_level: int = 3
    share_bytes: int = 256 << 20
    faiss_gpu: int | None = None

    @property
    def parts(self) -> int:
        """Into how many parts work is cut at least, so that all workers have some."""
        return 4 * self.engine.workers if self.engine.workers > 1 else 1


def share_of(memory_bytes: int, workers: int) -> int:
    """What one worker may hold, where all processes together may take so much memory. Below what their libraries take
    alone, about 200 MiB a process, the limit is passed.
    """
    return max((memory_bytes - _PROCESS_BYTES) // max(workers, 1) - _PROCESS_BYTES, _LEAST_SHARE_BYTES)
