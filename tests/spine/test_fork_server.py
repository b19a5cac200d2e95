"""The fork server loads the data of a stage once and forks workers from it."""

import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import word_artifact
from refusals import refusal
from word_artifact import (
    ENGLISH,
    Words,
    die_loading,
    fail_to_load,
    hoard,
    interrupt_the_parent,
    kill_the_server_once,
    load,
    refuse_to_load,
    write_unflushed,
    write_where,
    write_words,
)
from word_stage import MANY, children

from pipeline_assets.spine import fork_server
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.stage import WarmUp, Work
from pipeline_assets.spine.staging import Receipt, StagingDir
from pipeline_assets.spine.start_method import StartMethod
from pipeline_assets.spine.usage import peak_memory_bytes

FEW = MANY[:12]


def run(
    work: Work[Words], building: StagingDir, warm_up: WarmUp, shards: list[Words] = FEW, workers: int = 2
) -> list[Receipt]:
    return list(run_stage("write", work, shards, building, RunSettings(workers), warm_up))


def read_notes(receipts: list[Receipt], name: str) -> list[object]:
    return [receipt.notes[name] for receipt in receipts]


def test_stage_data_is_loaded_once_in_another_process_for_all_workers_and_stages(building: StagingDir) -> None:
    receipts = run(write_where, building, load, workers=3)
    later = list(run_stage("write again", write_where, ENGLISH, building, RunSettings(3), load))

    [loaders] = {tuple(loaded) for loaded in read_notes(receipts, "loaded")}  # type: ignore[call-overload]
    assert len(loaders) == 1
    assert {process for receipt in later for process in receipt.notes["loaded"]} == {*loaders}  # type: ignore[attr-defined]
    assert loaders[0] not in {os.getpid(), *read_notes(receipts, "process")}
    assert len(set(read_notes(receipts, "process"))) == 3
    assert word_artifact.LOADED == []


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_unflushed_output_of_a_worker_is_not_lost(
    building: StagingDir, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, method: StartMethod
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    fork_server._stop_server()  # the next one inherits the captured streams and the environment

    list(run_stage("write", write_unflushed, FEW, building, RunSettings(2, method), load))
    fork_server._stop_server()

    captured = capfd.readouterr()
    assert [captured.out.count(f"[{shard.name}]") for shard in FEW] == [1] * len(FEW)
    assert [captured.err.count(f"[{shard.name}]") for shard in FEW] == [1] * len(FEW)


def test_server_ends_with_its_parent_though_another_fork_is_alive(building: StagingDir) -> None:
    run(write_where, building, load)
    assert fork_server._server is not None
    server = fork_server._server._started.process
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent closes its end
        os._exit(0)

    fork_server._stop_server()

    os.close(writer)
    os.waitpid(child, 0)
    os.close(reader)
    assert server.exitcode == 0


def test_concurrent_stages_run_only_their_own_work(building: StagingDir) -> None:
    settings = RunSettings(1)
    where = run_stage("write", write_where, FEW[:3], building, settings, load)
    plain = run_stage("write again", write_words, FEW[3:6], building, settings)

    receipts = [(next(where), next(plain)) for _ in range(3)]

    assert all(loaded.notes["loaded"] and not plain_receipt.notes for loaded, plain_receipt in receipts)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize(("configured", "threads"), [(None, "1"), ("3", "3")])
def test_workers_start_only_the_threads_that_the_user_configured(
    building: StagingDir, monkeypatch: pytest.MonkeyPatch, method: StartMethod, configured: str | None, threads: str
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if configured is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", configured)

    receipts = list(run_stage("write", write_where, ENGLISH, building, RunSettings(2, method)))

    assert set(read_notes(receipts, "threads")) == {threads}
    assert os.environ.get("OPENBLAS_NUM_THREADS") == configured


def test_data_is_loaded_in_this_process_without_workers(building: StagingDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_artifact, "LOADED", [])

    list(run_stage("write", write_words, ENGLISH, building, RunSettings(), load))
    list(run_stage("write", write_words, ENGLISH, building, RunSettings(), load))

    assert [os.getpid()] == word_artifact.LOADED


def test_worker_with_much_memory_is_replaced(building: StagingDir, caplog: pytest.LogCaptureFixture) -> None:
    receipts = run(hoard, building, load, FEW[:4], workers=1)

    assert len(set(read_notes(receipts, "process"))) == 4
    assert [receipt.counts for receipt in receipts] == [{"documents": 1}] * 4
    assert caplog.messages == []
    assert children() == []


def test_peak_memory_includes_workers(building: StagingDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=0))

    run(hoard, building, load, FEW[:1], workers=1)

    assert peak_memory_bytes() >= 256 << 20


def test_input_error_of_loading_arrives_unchanged(building: StagingDir) -> None:
    assert refusal(lambda: run(write_words, building, refuse_to_load)) == "here: there is no tokenizer; bring one"
    assert children() == []


def test_bug_in_loading_has_its_traceback(building: StagingDir) -> None:
    with pytest.raises(KeyError, match="a bug") as failed:
        run(write_words, building, fail_to_load)

    [note] = failed.value.__notes__
    assert note.startswith("while it was loaded, in another process:\nTraceback")
    assert "in fail_to_load" in note


def test_killed_server_is_restarted(building: StagingDir, tmp_path: Path) -> None:
    marker = tmp_path / "killed once"

    receipts = run(partial(kill_the_server_once, marker=marker), building, load, ENGLISH)

    assert marker.exists()
    assert [receipt.counts for receipt in receipts] == [{"documents": 2}, {"documents": 3}, {"documents": 1}]
    assert children() == []


def test_server_that_ctrl_c_interrupted_during_a_request_is_replaced(building: StagingDir) -> None:
    """Otherwise, the next request would get the answer to the interrupted one."""
    with pytest.raises(KeyboardInterrupt):
        run(write_words, building, interrupt_the_parent)

    receipts = run_stage("write", write_where, MANY, building, RunSettings(2), load)

    assert next(receipts).notes["loaded"]
    receipts.close()  # stops the workers
    assert children() == []


def test_server_that_dies_while_loading_is_reported_with_a_fix(building: StagingDir) -> None:
    assert refusal(lambda: run(write_words, building, die_loading)) == (
        f"process {os.getpid()}: the process that workers are forked from died (killed by SIGKILL, out of memory "
        "perhaps); give the machine more memory, or set CORPUSMILL_START_METHOD=spawn"
    )
    assert children() == []


@pytest.mark.parametrize(
    ("start_thread", "is_safe"),
    [
        ("pass", True),
        ("threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", False),
        ("_thread.start_new_thread(time.sleep, (9,))", False),  # such as one of a library
        ("_thread.start_new_thread(time.sleep, (0.01,))", True),  # such as one that was joined and is about to end
    ],
)
def test_process_with_other_threads_is_not_forked(start_thread: str, is_safe: bool) -> None:
    program = "import _thread, threading, time; from pipeline_assets.spine.fork_server import _can_fork_safely"
    run = subprocess.run(
        [sys.executable, "-c", f"{program}; {start_thread}; print(_can_fork_safely())"], capture_output=True
    )

    assert run.stdout.decode().strip() == str(is_safe), run.stderr


@pytest.mark.parametrize(("variable", "servers"), [("_RJEM_MALLOC_CONF", 1), ("HF_ENDPOINT", 2)])
def test_a_new_environment_needs_a_new_server_but_an_import_of_polars_does_not(
    building: StagingDir, monkeypatch: pytest.MonkeyPatch, variable: str, servers: int
) -> None:
    pids = set()
    for shards in (FEW[:1], FEW[1:2]):
        run(write_where, building, load, shards, workers=1)
        assert fork_server._server is not None
        pids.add(fork_server._server._started.process.pid)
        monkeypatch.setenv(variable, "set since")

    assert len(pids) == servers


SCRIPT = """
import sys, threading
from pathlib import Path

sys.path[:0] = sys.argv[2:]
threading.Thread(target=threading.Event().wait, daemon=True).start()  # as after `import numpy`: no fork
from word_artifact import build_words

print("this script ran", flush=True)
build_words(Path.cwd(), "english", workers=2, start_method=sys.argv[1])
print(sys.modules["__main__"].__file__)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_do_not_rerun_a_script_without_a_main_guard(method: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", method, *sys.path]

    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert (run.stdout, run.stderr) == (f"this script ran\n{tmp_path / 'script.py'}\n", "")
    assert (tmp_path / "words" / "manifest.json").exists()
