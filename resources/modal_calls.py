"""Calls of the scoring app on Modal, one per score shard.

The id of a call is stored in a file before its result is awaited, so an interrupted build finds its calls again.
"""

import builtins
import json
import logging
import math
import re
import textwrap
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

import modal
from modal import exception as modal_errors

from pipeline_assets.corpus.scoring.launcher import ScoreJob, ScoreWork
from pipeline_assets.corpus.scoring.local_functions import LOCAL_FUNCTIONS
from pipeline_assets.corpus.scoring.modal_settings import NO_GPU, ModalSettings, variable_name
from pipeline_assets.corpus.scoring.remote_shard import build_fetch_request, build_shard_request
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError, UsageError
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView

logger = logging.getLogger("corpusmill")
_MAX_TRIES = 3  # calls per shard
_POLL_S = 1.0  # seconds of one wait for a call; between waits, the end of the run is noticed
_MAX_SILENCE_S = 600.0  # maximum time without an answer of Modal while calls run
_SCORES_FILE_PATTERN = re.compile(r"[0-9a-f]{64}\.parquet")
_SHARD_NAME_PATTERN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")

_CONTINUE_HINT = "run the same command again to continue"
_LOG_FIX = "look at the app's log on Modal"
_DEPLOY_FIX = "deploy the app from this version: modal deploy modal_jobs/nll_scoring.py"
_NO_ANSWER_ERRORS = (
    modal_errors.ServiceError,
    modal_errors.InternalError,
    modal_errors.ConnectionError,
    modal_errors.ResourceExhaustedError,
    OSError,
)
# Exceptions of Modal, the error that replaces them, its message and its fix; the first match counts.
_EXPLANATIONS: tuple[tuple[tuple[type[Exception], ...], type[InputError], str, str], ...] = (
    ((modal_errors.AuthError, modal_errors.PermissionDeniedError), UsageError, "Modal denies access to this machine",
     "run `modal token new`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"),
    ((modal_errors.NotFoundError, FileNotFoundError), UsageError, "not found on Modal", _DEPLOY_FIX),
    ((modal_errors.ResourceExhaustedError,), TransientError, "Modal's quota is used up",
     f"request more from Modal, or set a lower {variable_name('places')}"),
    ((modal_errors.FunctionTimeoutError,), RetryableError, "the call exceeded its time limit",
     f"lower `scoring.shard_rows`, or deploy the app again with a larger {variable_name('timeout_s')}"),
    ((modal_errors.InternalFailure,), RetryableError, "Modal preempted the machine", _CONTINUE_HINT),
    ((modal_errors.RemoteError,), RetryableError, "the container ended", _LOG_FIX),
    ((modal_errors.InvalidError, modal_errors.VersionError, modal_errors.ExecutionError), UsageError,
     "Modal refuses the call", _DEPLOY_FIX),
    ((modal_errors.Error, OSError), TransientError, "Modal does not answer", _CONTINUE_HINT),
    ((Exception,), RetryableError, "the call failed", _LOG_FIX),
)  # fmt: skip


@dataclass
class ModalLauncher:
    """Launcher that calls the app for the score shards of a split.

    Ids of calls are stored in `STAGE.calls/SHARD.json`. If Modal no longer has a call's result, the call is
    repeated; the scores are the same bytes.
    """

    settings: ModalSettings
    salt: str
    work: ScoreWork
    _call_count: int = 0
    _container_seconds: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def fetch(self, folder: StagingView) -> None:
        """Call `fetch` on Modal or await an earlier call; raise InputError on failure."""
        logger.info("%s on Modal: fetching missing files of pools and model", self.work.split)
        call_id, outcome = self._await_outcome("fetch", build_fetch_request(self.work), folder, "fetch", "fetch")
        if isinstance(outcome, Exception):
            folder.remove_receipt("fetch.calls", "fetch")
            raise _explain_error(outcome, call_id)

    def run(self, stage: str, jobs: Sequence[ScoreJob], folder: StagingView) -> Generator[Receipt]:
        """Score all jobs on Modal, and yield their receipts in job order.

        At most `settings.places` jobs run at a time, each in a thread that starts a call and commits its receipt. All
        calls are canceled if the caller stops early or is interrupted, or if a job raises an InputError that is not a
        RetryableError, for example because a call rejects its input. After any other error, for example if a job failed
        three times, or if the process is killed, the calls run on, so that the next build can use their results.
        """
        self._stopped.clear()
        pool, yielded, keep_calls = ThreadPoolExecutor(self.settings.places), 0, False
        futures = [pool.submit(self._score_job, stage, job, folder) for job in jobs]
        try:
            for ended in as_completed(futures):
                ended.result()  # raises the first failure of any job
                while yielded < len(futures) and futures[yielded].done():
                    yield futures[yielded].result()
                    yielded += 1
        except Exception as error:
            keep_calls = isinstance(error, RetryableError) or not isinstance(error, InputError)
            raise
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)
            for job in () if keep_calls else jobs:
                if (call := folder.read_receipt(f"{stage}.calls", job.name)) is not None:
                    _cancel(str(call.notes["ref"]))
                    folder.remove_receipt(f"{stage}.calls", job.name)

    def _score_job(self, stage: str, job: ScoreJob, folder: StagingView) -> Receipt:
        gpu, tries = None if self.settings.gpu == NO_GPU else self.settings.gpu, 0
        request = build_shard_request(self.work, job, gpu)
        while True:
            call_id, outcome = self._await_outcome("score", request, folder, stage, job.name)
            try:
                receipt = self._collect_scores(call_id, outcome, folder)
            except RetryableError as failure:
                tries += 1
                if tries == _MAX_TRIES:
                    what = f"{failure.what}, {_MAX_TRIES} times on shard {job.name}"
                    raise RetryableError(what, job.pool_path, failure.fix) from None
                logger.warning("shard %s of %s: %s; retrying", job.name, job.pool_file, failure.what)
            else:
                folder.commit(stage, job.name, receipt)
                return receipt
            finally:
                folder.remove_receipt(f"{stage}.calls", job.name)

    def _await_outcome(
        self, function_name: str, request: Mapping[str, Any], folder: StagingView, stage: str, receipt_name: str
    ) -> tuple[str, object]:
        """Return the id and the outcome of a new call, or of an earlier build's call.

        The outcome is the returned value or the raised exception. A call that Modal no longer has is repeated.
        """
        digest = canonical_sha256(request)
        while True:
            call = folder.read_receipt(f"{stage}.calls", receipt_name)
            if call is None or call.notes.get("asked") != digest:  # no call yet, or one of another request
                with self._lock:
                    call = Receipt([], {}, {"ref": self._spawn(function_name, request), "asked": digest})
                    folder.commit(f"{stage}.calls", receipt_name, call)
            call_id = str(call.notes["ref"])
            try:
                return call_id, self._wait(call_id)
            except (modal_errors.OutputExpiredError, modal_errors.NotFoundError):
                folder.remove_receipt(f"{stage}.calls", receipt_name)

    def _spawn(self, function_name: str, request: Mapping[str, Any]) -> str:
        app, environment = self.settings.app, self.settings.environment
        salted = {**request, "salt": self.salt} if self.salt else request
        try:
            local: Any = LOCAL_FUNCTIONS.get(function_name)
            handle = local or modal.Function.from_name(app, function_name, environment_name=environment)
            call_id = str(handle.spawn(json.dumps(salted, sort_keys=True)).object_id)
        except Exception as error:
            raise _explain_error(error, f"{app}.{function_name}") from None
        self._call_count += function_name == "score"
        return call_id

    def _wait(self, call_id: str) -> object:
        """Wait for a call, and return its value or its exception."""
        last_answer = time.monotonic()
        while not self._stopped.is_set():
            try:
                return modal.FunctionCall.from_id(call_id).get(timeout=_POLL_S)
            except builtins.TimeoutError:
                last_answer = time.monotonic()
            except (modal_errors.OutputExpiredError, modal_errors.NotFoundError):
                raise
            except _NO_ANSWER_ERRORS as error:
                if time.monotonic() - last_answer > _MAX_SILENCE_S:
                    what = f"Modal has not answered for {_MAX_SILENCE_S:.0f} s ({error})"
                    raise TransientError(what, call_id, _CONTINUE_HINT) from None
                self._stopped.wait(_POLL_S)
            except (modal_errors.AuthError, modal_errors.PermissionDeniedError) as error:
                raise _explain_error(error, call_id) from None
            except Exception as error:
                return error
        raise CancelledError

    def _collect_scores(self, call_id: str, outcome: object, folder: StagingView) -> Receipt:
        """Download the scores of a call into the folder, and return their receipt."""
        settings = self.settings
        if isinstance(outcome, Exception):
            raise _explain_error(outcome, call_id)
        receipt = _parse_receipt(outcome, self.work.split, call_id)
        [remote] = receipt.files
        local = f"{WORK_FOLDER}/scored/{receipt.notes['name']}.parquet"
        volume = modal.Volume.from_name(settings.volumes[1], environment_name=settings.environment)
        try:
            with DurableFile(folder.path(local)) as file:
                for block in volume.read_file(remote.path):
                    file.write(block)
                    if file.bytes_written > remote.bytes:
                        what = f"file of scores has more than {remote.bytes:,} bytes"
                        raise RetryableError(what, remote.path, _CONTINUE_HINT)
        except FileNotFoundError:
            raise RetryableError("file of scores not found on its volume", remote.path, _CONTINUE_HINT) from None
        except modal_errors.Error as error:
            raise _explain_error(error, f"{settings.volumes[1]}/{remote.path}") from None
        if file.sha256 != remote.sha256:
            folder.path(local).unlink()
            raise RetryableError("downloaded scores do not have the sha256 in their receipt", call_id, _CONTINUE_HINT)
        self._container_seconds.append(receipt.notes["gpu_seconds"] / settings.gpus)
        return replace(receipt, files=[replace(remote, path=local)])

    def provenance(self) -> Mapping[str, Any]:
        """Return settings, calls, seconds and cost; starts of containers are not counted."""
        seconds = round(sum(self._container_seconds), 3)
        usage = {"calls": self._call_count, "container_seconds": seconds, "cost": self.settings.cost(seconds)}
        return {"modal": {**self.settings.model_dump(mode="json"), **usage}}


def _cancel(call_id: str) -> None:
    try:
        modal.FunctionCall.from_id(call_id).cancel()
    except (modal_errors.Error, OSError) as error:
        logger.warning("call %s could not be canceled (%s); cancel it on Modal, because it costs", call_id, error)


def _parse_receipt(outcome: object, split: str, call_id: str) -> Receipt:
    """Parse the receipt that a call returned.

    The receipt is checked strictly, because it names the file to download and the local file to write.
    """
    try:
        receipt = Receipt.from_bytes(outcome.encode()) if isinstance(outcome, str) else None
        if receipt is not None:
            [file] = receipt.files
            is_named = _SCORES_FILE_PATTERN.fullmatch(file.path.removeprefix(f"{split}/")) is not None
            seconds = float(receipt.notes["gpu_seconds"])
            if is_named and _SHARD_NAME_PATTERN.fullmatch(receipt.notes["name"]) and 0 <= seconds < math.inf:
                return receipt
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        pass
    raise RetryableError("answer of the call is damaged", call_id, _CONTINUE_HINT)


def _explain_error(error: Exception, place: str) -> InputError:
    """Convert a Modal exception to InputError with a fix; return InputError unchanged."""
    if isinstance(error, InputError):
        return error
    detail = textwrap.shorten(str(error), 160, placeholder=" …")
    kind, what, fix = next((kind, what, fix) for types, kind, what, fix in _EXPLANATIONS if isinstance(error, types))
    return kind(f"{what} ({detail})" if detail else what, place, fix)
