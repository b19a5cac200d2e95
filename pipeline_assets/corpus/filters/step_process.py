"""Process that runs a recipe's custom step: a fresh interpreter for each shard.

A process per shard makes the results independent of the number of workers. The hash seed of the process is fixed,
because the order of sets depends on it.
"""

import os
import subprocess
import sys
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import msgspec

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.filters.filter import Candidate, Measurement
from pipeline_assets.corpus.filters.own_step import PythonStep
from pipeline_assets.corpus.filters.step_child import TOO_SLOW, StepAnswer
from pipeline_assets.corpus.partial_documents import RAW_DECODER
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER

_REPEAT_INTERVAL, _REPEATED_AT_START = 1000, 100  # one document in a thousand, and the first of each shard, run twice
_MAX_LOAD_S, _WALL_S_PER_CPU_S = 120, 20  # limits on the time of loading, and on the wall time of a document
_MAX_KILLS = 16  # more in one shard suggest that the step is broken
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_SET_VARIABLES = {
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
    "PYTHONUTF8": "1",
    "TZ": "UTC",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",  # the process is killed at the end, which drops buffered output
}
_COMMAND = (sys.executable, "-m", "pipeline_assets.corpus.filters.step_child")
_document_decoder, _answer_decoder = msgspec.json.Decoder(Document), msgspec.msgpack.Decoder(StepAnswer)


class StepProcess:
    """Process of a custom step, restarted after a document that kills it.

    Attributes:
        seconds: Seconds that all documents took, including starts of the process.
    """

    def __init__(self, step: PythonStep) -> None:
        self.seconds = 0.0
        self._step, self._documents, self._kills = step, 0, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def apply(self, candidate: Candidate, line: bytes, shard_path: str, row: int) -> bytes | Reject:
        """Run the step on the document in `line`; return the resulting line, or a reject.

        `candidate` gets the new text, the counts of changed fields, and, if the document is dropped, its failure. The
        document is rejected if the step raises an exception, returns invalid text or meta, kills the process twice, or
        takes too long.

        Raises:
            UsageError: Python or a package is not the pinned version, or a package is not installed.
            InputError: The step cannot be loaded, is not deterministic, returns a value of a wrong type, or changes
                the id or another fixed field.
            RetryableError: The process ended while it loaded the step; or more than `_MAX_KILLS` documents of the shard
                killed the process twice or timed out.
        """
        started = time.perf_counter()
        message = bytes([self._documents < _REPEATED_AT_START or self._documents % _REPEAT_INTERVAL == 0]) + line
        self._documents += 1
        answer = self._request(message) or self._request(message) or StepAnswer("rejected", KILLED_WORKER)
        self.seconds += time.perf_counter() - started
        self._kills += self._connection is None
        if self._kills > _MAX_KILLS:
            what = f"more than {_MAX_KILLS} documents kill or stop the step's process"
            raise RetryableError(what, self._step.file, "correct it, or raise `memory_mib`")
        match answer.outcome:
            case "refused":
                document = _document_decoder.decode(line)
                raise self._answer_error(answer, f", {document.meta.source_location} ({document.doc_id})")
            case "rejected":
                return Reject(shard_path, row, answer.reason, answer.detail)
            case "dropped":
                candidate.fail(Measurement(answer.reason, f"by {self._step.file}", None, is_failed=True))
            case "changed":
                line, candidate.text = answer.line, RAW_DECODER.decode(answer.line).text.encode()
                candidate.changes |= {f"python/{name}": 1 for name in answer.changes}
        return line

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _request(self, message: bytes) -> StepAnswer | None:
        """Send a message, and return the answer; None if the process died.

        If no answer arrives in time, stop the process and return a `TOO_SLOW` reject.
        """
        limit = self._step.seconds * _WALL_S_PER_CPU_S
        try:
            connection = self._connection or self._start()
            connection.send_bytes(message)
            if _wait_for_message(connection, limit):
                return _answer_decoder.decode(connection.recv_bytes())
        except (EOFError, ConnectionError):
            self.close()
            return None
        self.close()
        return StepAnswer("rejected", TOO_SLOW, f"more than {self._step.seconds} s")

    def _start(self) -> Connection:
        step, (self._connection, child_end) = self._step, Pipe()
        step.check_pins()
        environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ} | _SET_VARIABLES
        with child_end:
            limits = map(str, (child_end.fileno(), os.getpid(), step.seconds, step.memory_mib))
            command, pipes = [*_COMMAND, *limits, step.file, step.function], (child_end.fileno(),)
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=null, stdout=2, env=environment, pass_fds=pipes)
        try:
            self._connection.send_bytes(step.code.encode())
            if not _wait_for_message(self._connection, _MAX_LOAD_S):
                raise InputError(f"loading takes more than {_MAX_LOAD_S} seconds", step.file, "make its imports faster")
            answer = _answer_decoder.decode(self._connection.recv_bytes())
        except (EOFError, ConnectionError):
            what = "the step's process ended while it loaded the file"
            raise RetryableError(what, step.file, "correct it, or raise `memory_mib`") from None
        if answer.outcome == "refused":
            raise self._answer_error(answer)
        return self._connection

    def _answer_error(self, answer: StepAnswer, document_suffix: str = "") -> InputError:
        return InputError(f"{self._step.function} {answer.reason}", self._step.file + document_suffix, answer.detail)


def _wait_for_message(connection: Connection, timeout_s: int) -> bool:
    """Wait for a message, and return whether it arrived within `timeout_s`.

    If this process is suspended (Ctrl-Z), the pause counts as one second at most.
    """
    return any(connection.poll(1) for _ in range(timeout_s))
