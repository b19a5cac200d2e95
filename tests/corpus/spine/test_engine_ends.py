"""However a build ends, its callers, its workers or itself, the engine leaves no process behind."""

import contextlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import word_artifact
from word_artifact import ENGLISH, Words, write_words
from word_stage import MANY, TWO, children, in_workers

from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir
from pipeline_assets.corpus.spine.worker import WHOLE, Job, Window, serve


@in_workers
def test_a_caller_that_stops_early_wastes_little_and_leaves_no_process(
    building: StagingDir, settings: EngineSettings
) -> None:
    with contextlib.closing(run_stage("write", write_words, MANY, building, settings)) as receipts:
        next(receipts)
        next(receipts)

    assert children() == []
    assert building.receipt("write", "001") is not None
    assert building.receipt("write", "020") is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_caller_that_fails_leaves_no_process(building: StagingDir, kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        for _ in run_stage("write", write_words, MANY, building, TWO):
            raise kind

    assert children() == []


def test_workers_leave_ctrl_c_to_the_parent(building: StagingDir, caplog: pytest.LogCaptureFixture) -> None:
    receipts = run_stage("write", write_words, MANY, building, TWO)
    next(receipts)

    for child in multiprocessing.active_children():
        os.kill(child.pid or 0, signal.SIGINT)

    assert len(list(receipts)) == 99
    assert caplog.messages == []


def test_a_worker_whose_parent_is_gone_commits_its_shard_and_ends_in_silence(
    building: StagingDir, capfd: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = multiprocessing.Pipe()

    def write_as_the_parent_dies(shard: Words, window: Window, folder: BuildFolder) -> Receipt:
        ours.close()
        return write_words(shard, window, folder)

    ours.send(Job(ENGLISH[0], WHOLE, BuildFolder(building.folder), "write"))
    worker = multiprocessing.get_context("fork").Process(target=serve, args=(theirs, write_as_the_parent_dies))
    worker.start()
    ours.close()
    worker.join()

    assert (worker.exitcode, capfd.readouterr().err) == (0, "")
    assert building.receipt("write", "a") is not None


@pytest.mark.parametrize(
    ("end", "start_method"),
    [
        (signal.SIGKILL, "fork"),
        (signal.SIGKILL, "spawn"),
        (signal.SIGTERM, "fork"),
        (signal.SIGINT, "fork"),
        (signal.SIGKILL, "forkserver"),
        (signal.SIGTERM, "forkserver"),
        (signal.SIGINT, "forkserver"),
    ],
)
def test_workers_end_with_their_parent_however_it_ends(tmp_path: Path, end: signal.Signals, start_method: str) -> None:
    fifo = tmp_path / "held open by workers"
    os.mkfifo(fifo)
    script = (
        "from functools import partial; from pathlib import Path; import signal, sys\n"
        "from word_artifact import ENGLISH, open_and_wait\n"
        "from pipeline_assets.corpus.spine.staging import open_building\n"
        "from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background shell has ignored\n"
        "fifo, start_method = Path(sys.argv[1]), sys.argv[2]\n"
        "with open_building(fifo.with_name('words'), {}) as building:\n"
        "    work = partial(open_and_wait, fifo=fifo)\n"
        "    list(run_stage('write', work, ENGLISH, building, EngineSettings(2, start_method)))\n"
    )
    path = os.pathsep.join([str(Path(word_artifact.__file__).parent), *filter(None, sys.path)])

    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(fifo), start_method],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    with open(fifo, "rb", buffering=0) as held:  # ends when the last process that holds the other end is gone
        assert [held.read(1), held.read(1)] == [b".", b"."]
        parent.send_signal(end)
        parent.wait()
        has_ended, _, _ = select.select([held], [], [], 20)

        assert has_ended
        assert held.read() == b""
