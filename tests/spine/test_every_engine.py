"""Contract of engines, checked with each engine.

Engines are this process, forked workers, futures of a process pool, and Ray on one node. Receipts arrive in the order
of the shards, poison rows are rejected, errors arrive unchanged, the caller may stop early, and a run reuses the
finished shards of a killed run of any engine.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import word_artifact
from named_engines import NAMES, Engine, counted_ray_jobs, engine_named, ray_here
from refusals import refusal
from word_artifact import (
    ENGLISH,
    Words,
    die_of_words,
    die_once,
    load,
    refuse_five,
    refuse_to_load,
    stumble_over_five,
    write_slowly,
    write_where,
    write_words,
)
from word_stage import MANY, read_parts

from pipeline_assets.spine import ray_engine
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.ray_engine import _discard_stderr, disconnect
from pipeline_assets.spine.staging import StagingDir

ENGINES = [pytest.param(name, marks=pytest.mark.slow) if name == "ray" else name for name in NAMES]
CRASHING = [engine for engine in ENGINES if engine != "here"]  # engines that survive the crash of a row
WITH_CRASHES = pytest.mark.parametrize("name", CRASHING)


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """Provide Ray on this machine, started by the first test that uses it."""
    with ray_here():
        yield


@pytest.fixture(params=ENGINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str) -> Iterator[Engine]:
    with engine_named(name) as opened:
        yield opened


def test_receipts_and_files_are_equal_in_the_order_of_the_shards(engine: Engine, building: StagingDir) -> None:
    receipts = list(engine(write_words)("write", MANY, building))

    assert [receipt.files[0].path for receipt in receipts] == [f"parts/{shard.name}.txt" for shard in MANY]
    assert read_parts(building) == {f"{shard.name}.txt": f"{shard.words[0].upper()}\n" for shard in MANY}
    assert building.read_receipt("write", "099") == receipts[99]


def test_no_shards_give_no_receipts(engine: Engine, building: StagingDir) -> None:
    assert list(engine(write_words)("write", [], building)) == []


@WITH_CRASHES
def test_poison_row_is_rejected_and_all_other_rows_are_written(
    engine: Engine, building: StagingDir, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_MAX_RETRIES", 0)  # each retry by Ray itself starts a worker, in seconds

    receipts = list(engine(partial(die_of_words, deadly=("four",)))("write", ENGLISH, building))

    assert [receipt.counts for receipt in receipts] == [
        {"documents": 2},
        {"documents": 2, "killed_worker": 1},
        {"documents": 1},
    ]
    assert read_parts(building) == {"a.txt": "ONE\nTWO\n", "b.txt": "THREE\nFIVE\n", "c.txt": "SIX\n"}
    assert "shard b: row 1 crashes its worker; retrying without it" in caplog.messages


@WITH_CRASHES
def test_worker_killed_once_loses_no_row(engine: Engine, building: StagingDir, tmp_path: Path) -> None:
    receipts = list(engine(partial(die_once, marker=tmp_path / "killed"))("write", ENGLISH, building))

    assert (tmp_path / "killed").exists()
    assert [receipt.counts for receipt in receipts] == [{"documents": 2}, {"documents": 3}, {"documents": 1}]


def test_input_error_arrives_unchanged(engine: Engine, building: StagingDir) -> None:
    assert refusal(lambda: list(engine(refuse_five)("write", ENGLISH, building))) == (
        "b row 2: five is not a word; take four"
    )


@WITH_CRASHES
def test_other_error_has_its_shard_and_traceback(engine: Engine, building: StagingDir) -> None:
    with pytest.raises(KeyError, match="five") as failed:
        list(engine(stumble_over_five)("write", ENGLISH, building))

    [note] = failed.value.__notes__
    assert note.startswith("in shard b, in a worker:\nTraceback (most recent call last):\n")
    assert "in stumble_over_five" in note


def test_error_of_the_warm_up_arrives_unchanged(engine: Engine, building: StagingDir) -> None:
    with pytest.raises(InputError, match="here: there is no tokenizer; bring one"):
        list(engine(write_words, refuse_to_load)("write", ENGLISH, building))


@pytest.mark.parametrize("name", [engine for engine in CRASHING if engine != "forked"])
def test_data_of_a_stage_is_loaded_once_per_process(engine: Engine, building: StagingDir) -> None:
    receipts = list(engine(write_where, load)("write", MANY, building))

    loaded = {receipt.notes["process"]: receipt.notes["loaded"] for receipt in receipts}
    assert all(count == [process] for process, count in loaded.items())
    assert {receipt.notes["threads"] for receipt in receipts} <= {"1", os.environ.get("OPENBLAS_NUM_THREADS")}


def test_early_stop_of_the_caller_wastes_little_and_ends_all_jobs(engine: Engine, building: StagingDir) -> None:
    with contextlib.closing(engine(write_slowly)("write", MANY, building)) as receipts:
        next(receipts)
        next(receipts)

    finished = sorted(path.name for path in (building.folder / ".receipts/write").iterdir())
    time.sleep(0.3)  # enough time for a job that still runs
    assert sorted(path.name for path in (building.folder / ".receipts/write").iterdir()) == finished
    assert "001.json" in finished
    assert "020.json" not in finished


def test_finished_shards_of_another_engine_are_adopted(
    engine: Engine, building: StagingDir, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine_named("here") as in_process:
        first = list(in_process(write_words)("write", ENGLISH[:2], building))

    with caplog.at_level("INFO", "corpusmill"):
        receipts = list(engine(write_words)("write", ENGLISH, building))

    assert receipts[:2] == first
    assert "write: 2 of 3 shards were finished earlier" in caplog.messages


_RUN_SLOWLY = """
import os, sys
from pathlib import Path
from named_engines import engine_named
from word_artifact import write_slowly
from word_stage import MANY
from pipeline_assets.spine.opening import open_staging_dir
with open_staging_dir(Path(sys.argv[2]), {}) as building, engine_named(sys.argv[1]) as engine:
    for receipt in engine(write_slowly)("write", MANY, building):
        print(receipt.files[0].path, flush=True)
"""


@pytest.mark.slow
def test_killed_run_is_resumed_with_its_finished_shards(name: str, engine: Engine, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(word_artifact.__file__).parent), *filter(None, sys.path)])
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN_SLOWLY, name, str(tmp_path / "words")],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert run.stdout is not None
    with run.stdout:
        assert [next(run.stdout).strip() for _ in range(3)] == ["parts/000.txt", "parts/001.txt", "parts/002.txt"]
        run.send_signal(signal.SIGKILL)
        run.wait()

    with open_staging_dir(tmp_path / "words", {}) as building:
        parts = building.folder / "parts"
        kept = {part: part.stat().st_ino for part in parts.glob("00[012].txt")}
        receipts = list(engine(write_slowly)("write", MANY, building))

        assert building.has_partial_work
        assert {part: part.stat().st_ino for part in kept} == kept
    assert len(kept) == 3
    assert [receipt.counts for receipt in receipts] == [{"documents": 1}] * 100


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("127.0.0.1:9", "cannot connect to Ray: [Errno 111] Connection refused"),
        ("somewhere", "must be HOST:PORT or auto"),
    ],
)
def test_unreachable_cluster_is_one_line(
    address: str, problem: str, building: StagingDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    disconnect()
    monkeypatch.setenv("RAY_ADDRESS", address)
    with engine_named("ray") as engine:
        assert refusal(lambda: list(engine(write_words)("write", ENGLISH, building))) == (
            f"RAY_ADDRESS={address}: {problem}; "
            "set it to HOST:PORT of a cluster's head, or remove it to start Ray on this machine"
        )


def test_failed_local_start_of_ray_names_no_address(building: StagingDir, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    disconnect()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", mock.Mock(side_effect=RuntimeError("The node timed out.")))
    with engine_named("ray") as engine:
        assert refusal(lambda: list(engine(write_words)("write", ENGLISH, building))) == (
            "Ray: the cluster did not start on this machine: The node timed out; "
            "run the command again, with fewer workers or without --engine ray"
        )


def test_stderr_is_restored_after_ray_connects_and_no_descriptor_leaks(capfd: pytest.CaptureFixture[str]) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(ConnectionError), _discard_stderr():
        os.write(2, b"a try to connect\n")
        raise ConnectionError
    os.write(2, b"an error\n")

    assert capfd.readouterr().err == "an error\n"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.slow
def test_each_shard_is_one_ray_job_and_later_stages_can_fork(building: StagingDir) -> None:
    with engine_named("ray") as engine, counted_ray_jobs() as jobs:
        list(engine(write_words)("write", ENGLISH, building))
        assert jobs == [3]
    with engine_named("forked") as engine:
        receipts = list(
            engine(write_where)("where", [Words(f"w{shard.name}", shard.words) for shard in ENGLISH], building)
        )

    assert os.getpid() not in {receipt.notes["process"] for receipt in receipts}
