"""Time limits and printed lines of own steps."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from own_steps import SHARD, Stepped, kept_rejects, write_step
from refusals import refusal

from pipeline_assets.spine.rejects import Reject


def test_a_document_is_too_slow_although_its_function_catches_every_error(stepped: Stepped) -> None:
    code = """def keep(document):
    while "bad" in document.text:
        try:
            int(document.text[:0] or "5")
        except:
            break
    return document
"""

    artifact = stepped(code, "one", "bad", seconds=1)

    assert kept_rejects(artifact) == [Reject(SHARD, 1, "step_too_slow", "more than 1 s")]


def test_output_of_a_step_is_not_lost_when_its_process_ends(
    stepped: Stepped, capfd: pytest.CaptureFixture[str]
) -> None:
    stepped("print('loaded')\ndef keep(d):\n    print(d.text, end=' ')\n    return d\n", "one", "two")

    assert capfd.readouterr().err == "loaded\none one two two "


def test_the_time_limits_of_a_document_end_with_its_function(stepped: Stepped) -> None:
    code = """import signal

class Timers:
    def __repr__(self):  # runs after the function has returned
        return " ".join(str(signal.getitimer(timer)) for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL))

def keep(document):
    return Timers()
"""

    assert refusal(lambda: stepped(code, "one")) == (
        "my_filter.py, rows.jsonl#0 (note-0): keep returned (0.0, 0.0) (0.0, 0.0); "
        "return the document, None, or a reason of the characters a-z, 0-9 and _, such as too_short"
    )


@pytest.mark.slow
def test_a_document_may_sleep_twenty_times_its_seconds_without_the_pauses_of_a_build(
    stepped: Stepped, tmp_path: Path
) -> None:
    sleeping = "import time\n\ndef keep(d):\n    print('begun')\n    time.sleep({})\n    return d\n"
    (tmp_path / "paused").mkdir()
    path = write_step(tmp_path / "paused", sleeping.format(5), ["one"], seconds=1)
    program = f"import own_steps, pathlib; own_steps.build_step(*map(pathlib.Path, {[str(path), str(tmp_path / 'a')]}))"
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, env=environment)
    assert process.stderr is not None
    assert process.stderr.readline() == b"begun\n"
    os.killpg(process.pid, signal.SIGSTOP)

    artifact = stepped(sleeping.format("1e6 if 'bad' in d.text else 0"), "one", "bad", seconds=1)  # takes 20 seconds
    os.killpg(process.pid, signal.SIGCONT)

    assert kept_rejects(artifact) == [Reject(SHARD, 1, "step_too_slow", "more than 1 s")]
    assert process.wait() == 0
