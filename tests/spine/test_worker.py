"""Ends of worker processes, none of which outlives its build."""

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
from word_stage import MANY, TWO, children

from pipeline_assets.spine.engine import run_stage
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView
from pipeline_assets.spine.worker import ShardJob, serve

MODULE_PATH = os.pathsep.join([str(Path(word_artifact.__file__).parent), *filter(None, sys.path)])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_failure_of_the_caller_leaves_no_process(building: StagingDir, kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        for _ in run_stage("write", write_words, MANY, building, TWO):
            raise kind

    assert children() == []


def test_workers_ignore_ctrl_c(building: StagingDir, caplog: pytest.LogCaptureFixture) -> None:
    receipts = run_stage("write", write_words, MANY, building, TWO)
    next(receipts)

    for worker in children():
        os.kill(worker, signal.SIGINT)

    assert len(list(receipts)) == 99
    assert caplog.messages == []


def test_first_process_that_a_program_starts_ignores_ctrl_c_from_its_start() -> None:
    script = (
        "import signal\n"
        "from pipeline_assets.spine.worker import start_process\n"
        "from word_artifact import send_blocked_signals\n"
        "started = start_process('spawn', send_blocked_signals)\n"
        "ours = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "print(signal.SIGINT in started.connection.recv(), signal.SIGINT in ours)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": MODULE_PATH}, capture_output=True, text=True
    )

    assert (result.stdout, result.stderr) == ("True False\n", "")


def test_orphaned_worker_commits_its_shard_and_ends(building: StagingDir, capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = multiprocessing.Pipe()

    def write_after_parent_death(shard: Words, window: Window, folder: StagingView) -> Receipt:
        ours.close()
        return write_words(shard, window, folder)

    ours.send(ShardJob(ENGLISH[0], WHOLE_SHARD, StagingView(building.folder), "write"))
    worker = multiprocessing.get_context("fork").Process(target=serve, args=(theirs, write_after_parent_death))
    worker.start()
    ours.close()
    worker.join()

    assert (worker.exitcode, capfd.readouterr().err) == (0, "")
    assert building.read_receipt("write", "a") is not None


@pytest.mark.parametrize(
    ("end", "start_method"),
    [
        (signal.SIGKILL, "spawn"),
        (signal.SIGKILL, "forkserver"),
        (signal.SIGTERM, "forkserver"),
        (signal.SIGINT, "forkserver"),
    ],
)
def test_workers_end_with_their_parent_after_any_signal(tmp_path: Path, end: signal.Signals, start_method: str) -> None:
    fifo = tmp_path / "held open by workers"
    os.mkfifo(fifo)
    script = (
        "from functools import partial; from pathlib import Path; import sys\n"
        "from word_artifact import ENGLISH, open_and_wait\n"
        "from pipeline_assets.spine.opening import open_staging_dir\n"
        "from pipeline_assets.spine.engine import RunSettings, run_stage\n"
        "fifo, start_method = Path(sys.argv[1]), sys.argv[2]\n"
        "with open_staging_dir(fifo.with_name('words'), {}) as building:\n"
        "    work = partial(open_and_wait, fifo=fifo)\n"
        "    list(run_stage('write', work, ENGLISH, building, RunSettings(2, start_method)))\n"
    )

    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(fifo), start_method],
        env={**os.environ, "PYTHONPATH": MODULE_PATH},
        stderr=subprocess.DEVNULL,
    )
    with open(fifo, "rb", buffering=0) as pipe:  # ends when the last process with the other end has exited
        assert [pipe.read(1), pipe.read(1)] == [b".", b"."]
        parent.send_signal(end)
        parent.wait()
        has_ended, _, _ = select.select([pipe], [], [], 20)

        assert has_ended
        assert pipe.read() == b""
