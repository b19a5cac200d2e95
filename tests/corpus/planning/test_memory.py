"""The model of memory: what is loaded is shared by forked workers, what is read is not."""

from collections.abc import Callable

import pytest

from pipeline_assets.corpus.planning.estimate import Estimate
from pipeline_assets.corpus.planning.memory import snapshot_memory, split_memory
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.start_method import StartMethod

MB = 10**6
Model = Callable[[EngineSettings, float], Estimate]


def snapshot(engine: EngineSettings, text_bytes: float) -> Estimate:
    return snapshot_memory(engine, text_bytes, largest_row_group_bytes=5 * MB)


def workers(count: int, method: StartMethod = "forkserver") -> EngineSettings:
    return EngineSettings(count, method)


# Measured by `corpusmill run` on 662 MB of manuals and on the demo, in MB: benchmarks/README.md has the same.
@pytest.mark.parametrize(
    ("model", "engine", "text_mb", "measured_mb"),
    [
        (snapshot, workers(0), 662, 498),
        (snapshot, workers(1), 662, 593),
        (snapshot, workers(2), 662, 819),
        (snapshot, workers(4), 662, 1194),
        (snapshot, workers(2, "spawn"), 662, 819),
        (snapshot, workers(0), 1.8, 250),
        (snapshot, workers(2), 1.8, 376),
        (snapshot, workers(4), 1.8, 512),
        (split_memory, workers(0), 530, 605),
        (split_memory, workers(1), 530, 625),
        (split_memory, workers(2), 530, 718),
        (split_memory, workers(4), 530, 894),
        (split_memory, workers(2, "spawn"), 530, 866),
        (split_memory, workers(0), 1.5, 455),
        (split_memory, workers(2), 1.5, 538),
        (split_memory, workers(4), 1.5, 568),
    ],
)
def test_what_was_measured_lies_between_the_bounds_and_near_the_likely_one(
    model: Model, engine: EngineSettings, text_mb: float, measured_mb: int
) -> None:
    estimate = model(engine, text_mb * MB)

    assert estimate.low < measured_mb * MB < estimate.high
    assert estimate.likely == pytest.approx(measured_mb * MB, rel=0.2)


@pytest.mark.parametrize("model", [snapshot, split_memory])
def test_memory_ends_somewhere_however_long_the_text_is(model: Model) -> None:
    assert model(workers(2), 10**9) == model(workers(2), 10**15)


def test_every_worker_holds_the_columns_of_a_row_group() -> None:
    small, large = (snapshot_memory(workers(3), 10**9, size) for size in (0, 100 * MB))

    assert large.likely - small.likely == 300 * MB
