"""Seconds at the rates of a machine, which is measured by the kernels themselves."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.planning.calibration import calibrate
from pipeline_assets.corpus.planning.estimate import exactly
from pipeline_assets.corpus.planning.rates import Rates, at_work, cores, fetch_seconds


def test_no_more_workers_get_on_at_one_time_than_there_are_cores() -> None:
    assert [at_work(0), at_work(1), at_work(10_000)] == [1, 1, cores()]


def test_seconds_have_the_bounds_of_their_rates() -> None:
    rates = Rates(1e6, 1e6, 1e6, 0.0, "measured", off=(0.5, 3.0))

    assert rates.seconds(10).bounds == (5.0, 10.0, 30.0)
    assert rates.seconds(10).basis == "measured"


def test_the_time_to_fetch_is_unknown_until_something_was_fetched() -> None:
    fetching = fetch_seconds(10_000_000, exactly(2_000_000, "2.0 MB/s"))

    assert fetch_seconds(10_000_000, None) is None
    assert fetching is not None
    assert (fetching.low, fetching.likely, fetching.high) == (2.5, 5.0, 12.5)


@pytest.mark.parametrize("rate", [None, exactly(1_000, "1 kB/s")])
def test_nothing_to_fetch_takes_no_time_at_any_rate(rate: None) -> None:
    nothing = fetch_seconds(0, rate)

    assert nothing is not None
    assert nothing.bounds == (0, 0, 0)


def test_a_calibration_runs_the_kernels_and_leaves_nothing_behind(tmp_path: Path) -> None:
    rates = calibrate(tmp_path, zstd_level=1)

    assert rates is not None
    assert min(rates.convert, rates.encode, rates.write) > 100_000  # bytes a second of whatever machine this is
    assert rates.start_s > 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_not_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("usage", (), {"free": 95 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    assert calibrate(tmp_path, zstd_level=1) is None
