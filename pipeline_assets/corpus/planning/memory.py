"""Memory that a build takes, all its processes together: constants that were measured (benchmarks/README.md)."""

from pipeline_assets.corpus.planning.estimate import Estimate, exactly, total
from pipeline_assets.corpus.spine.engine import EngineSettings

_MB = 1_000_000
_BASIS = "measured processes, benchmarks/README.md"
_PARENT = Estimate(120 * _MB, 230 * _MB, 330 * _MB, _BASIS)
_LIBRARIES = Estimate(0, 80 * _MB, 130 * _MB, _BASIS)
_TOKENIZERS = Estimate(40 * _MB, 270 * _MB, 330 * _MB, _BASIS)
_CONVERTER = Estimate(10 * _MB, 50 * _MB, 90 * _MB, _BASIS)
_ENCODER = Estimate(5 * _MB, 18 * _MB, 50 * _MB, _BASIS)
_CONVERTED = Estimate(30 * _MB, 190 * _MB, 240 * _MB, _BASIS)  # what more a converter holds after enough text
_ENCODED = Estimate(20 * _MB, 95 * _MB, 150 * _MB, _BASIS)  # and an encoder
_ENOUGH_BYTES = 200 * _MB


def snapshot_memory(engine: EngineSettings, text_bytes: float, largest_row_group_bytes: int) -> Estimate:
    """Bytes at the peak of a snapshot; a worker holds a row group's compressed columns.

    Args:
        text_bytes: what all workers together read.
    """
    group = exactly(largest_row_group_bytes, _BASIS)
    libraries = _LIBRARIES if engine.workers else exactly(0, _BASIS)  # the parent has them
    return _of_processes(engine, libraries, total([_CONVERTER, group], _BASIS), _CONVERTED, text_bytes)


def split_memory(engine: EngineSettings, text_bytes: float) -> Estimate:
    """Bytes at the peak of a split; what both tokenizers load, forked workers share.

    Args:
        text_bytes: what all workers together read.
    """
    return _of_processes(engine, _TOKENIZERS, _ENCODER, _ENCODED, text_bytes)


def _of_processes(
    engine: EngineSettings, loaded: Estimate, worker: Estimate, filled: Estimate, text_bytes: float
) -> Estimate:
    """With no workers the parent does their work."""
    workers = max(engine.workers, 1)
    copies = workers if engine.start_method == "spawn" else 1
    share = min(1.0, text_bytes / workers / _ENOUGH_BYTES)
    parts = [
        _PARENT,
        loaded.times(exactly(copies, _BASIS)),
        worker.times(exactly(workers, _BASIS)),
        filled.times(exactly(workers * share, _BASIS)),
    ]
    return total(parts, _BASIS).counted()
