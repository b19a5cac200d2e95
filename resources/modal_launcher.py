"""Score shards on Modal: a call of a deployed app for each; which calls run is written down in files."""

import builtins
import contextlib
import json
import logging
import math
import re
import textwrap
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

import modal
from modal import exception as failed

from pipeline_assets.corpus.scoring.launcher import Launcher, ScoreJob, ScoreWork
from pipeline_assets.corpus.scoring.local_functions import LOCAL_FUNCTIONS
from pipeline_assets.corpus.scoring.modal_settings import BYTES_A_TOKEN, NO_GPU, ModalSettings, variable_name
from pipeline_assets.corpus.scoring.remote_shard import fetch_request, shard_request
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError, RecipeKey, RetryableError, TransientError, UsageError
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.staging import WORK, Receipt, StagingView

logger = logging.getLogger("corpusmill")
_TRIES = 3  # of a shard whose call fails
_POLL_S = 1.0  # of waiting for a call, after which a run that ends is noticed
_SILENT_S = 600.0  # that Modal may not answer, while calls run
_SCORES_FILE = re.compile(r"[0-9a-f]{64}\.parquet")
_SHARD_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_CONTINUE_HINT = "run the same command again: it goes on"
_LOG = "look at the app's log on Modal"
_DEPLOY = "deploy it, from this version: modal deploy modal_jobs/nll_scoring.py"
_NO_ANSWER = failed.ServiceError, failed.InternalError, failed.ConnectionError, failed.ResourceExhaustedError, OSError
# What Modal raises, what that is here, and what to do; the first that fits.
_EXPLANATIONS: tuple[tuple[tuple[type[Exception], ...], type[InputError], str, str], ...] = (
    ((failed.AuthError, failed.PermissionDeniedError), UsageError, "Modal doesn't let this machine in",
     "run `modal token new`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"),
    ((failed.NotFoundError, FileNotFoundError), UsageError, "there is no such thing on Modal", _DEPLOY),
    ((failed.ResourceExhaustedError,), TransientError, "Modal's quota is used up",
     f"ask Modal for more, or set a lower {variable_name('places')}"),
    ((failed.FunctionTimeoutError,), RetryableError, "it ran longer than it may",
     f"lower `scoring.shard_rows`, or deploy the app again with a larger {variable_name('timeout_s')}"),
    ((failed.InternalFailure,), RetryableError, "Modal took its machine away", _CONTINUE_HINT),
    ((failed.RemoteError,), RetryableError, "its container ended", _LOG),
    ((failed.InvalidError, failed.VersionError, failed.ExecutionError), UsageError, "Modal refuses", _DEPLOY),
    ((failed.Error, OSError), TransientError, "Modal doesn't answer", _CONTINUE_HINT),
    ((Exception,), RetryableError, "it failed", _LOG),
)  # fmt: skip


@dataclass(frozen=True)
class ModalLauncherFactory:
    """Modal as the place where score shards run.

    Attributes:
        salt: of what is asked: scores that were made with another one are made anew.
        spent: Cost by split and model of what this command began: estimated while it runs, then measured.
    """

    settings: ModalSettings
    salt: str = ""
    spent: dict[tuple[str, str], float] = field(default_factory=dict)

    def describe_costs(self, works: Sequence[ScoreWork], finished: int = 0) -> Iterator[str]:
        """A line for each split on what is left of it, one for all, and one on what these go by.

        Args:
            finished: shards that are done, or paid for.
        Raises:
            UsageError: in the end, of the first that is refused: pools or model are in a folder here, the recipe asks
                for what containers don't have, or `ModalSettings.refusal` says so.
        """
        refusals, tokens, shards = list[UsageError | None](), 0, 0
        spent = sum(self.spent.values())
        for work in works:
            of_split, left = self._remaining(work, finished)
            tokens, shards = tokens + of_split, shards + left
            yield f"{work.split}: {self.settings.describe_estimate(of_split, left)}"
            rows = min(left * work.recipe.shard_rows, work.rows)
            refusals += [self._refusal(work) or self.settings.refusal(work.split, of_split, left, rows, spent)]
            spent += self.settings.cost(of_split / self.settings.tokens_per_s) or 0.0
        if len(works) > 1:
            yield f"all: {self.settings.describe_estimate(tokens, shards)}"
        yield self.settings.describe_rates()
        for refusal in filter(None, refusals):
            raise refusal

    def _remaining(self, work: ScoreWork, finished: int) -> tuple[int, int]:
        """Estimate the tokens and count the shards of a split that are not finished."""
        shards = -(-work.rows // work.recipe.shard_rows)
        remaining = max(shards - finished, 0)
        return work.text_bytes // BYTES_A_TOKEN * remaining // max(shards, 1), remaining

    def _refusal(self, work: ScoreWork) -> UsageError | None:
        device, gpu = work.recipe.device, self.settings.gpu
        if work.pools is None:
            fix = "publish them (corpusmill nemotron publish), and score what was published: --pool OWNER/NAME"
            return UsageError("its pools lie here, and Modal reads those of a hub", work.split, fix)
        if work.model is None:
            fix = "give a model of a hub by its name, or score here: --launcher local"
            what = "the model lies in a folder here, and Modal reads one of a hub"
            return UsageError(what, RecipeKey("scoring.model"), fix)
        if (device == "cpu") != (gpu == NO_GPU):
            what, fix = (
                f"it is {device}, and {variable_name('gpu')} is {gpu}",
                f"a CPU goes with {NO_GPU!r}, cuda with a GPU",
            )
            return UsageError(what, RecipeKey("scoring.device"), fix)
        if self.settings.gpus > 1 and not work.recipe.spreads:
            what = f"it is {self.settings.gpus}, and a shard has one GPU unless the model is spread"
            return UsageError(what, variable_name("gpus"), "set 1, or `scoring.spreads`")
        return None

    @contextlib.contextmanager
    def open_launcher(self, work: ScoreWork, folder: StagingView) -> Iterator[Launcher]:
        """A launcher whose files are on Modal.

        Raises:
            UsageError: as `words`; the app or the token is missing.
            RetryableError: Modal doesn't answer, or the files couldn't be fetched.
        """
        finished, key = folder.finished_shards("score"), (work.split, work.model_digest)
        for line in self.describe_costs([work], finished):
            logger.info("on Modal: %s", line)
        tokens, _ = self._remaining(work, finished)
        before = self.spent.get(key, 0.0)  # of an attempt that failed in this command
        self.spent[key] = before + (self.settings.cost(tokens / self.settings.tokens_per_s) or 0.0)
        launcher = _ModalLauncher(self, work)
        try:
            launcher.fetch(folder)
            yield launcher
        finally:
            took = launcher.provenance()["modal"]
            self.spent[key] = before + (took["cost"] or 0.0)
        told = work.split, took["calls"], took["container_seconds"], took["cost"]
        logger.info("%s on Modal: %d calls; shards took %.0f s of containers, cost %s", *told)


@dataclass
class _ModalLauncher:
    """Calls of the app for a split. A call's id is in a file, `STAGE.calls/SHARD.json`, before anybody waits for it: a
    build that was killed finds its calls again. What Modal has forgotten is called again, which changes no byte.
    """

    place: ModalLauncherFactory
    work: ScoreWork
    _calls: int = 0
    _seconds: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def fetch(self, folder: StagingView) -> None:
        """Fetch pools and model to where they are read; wait for the call of an earlier build if there is one.

        Raises:
            InputError: from the hub, as Modal sees it.
        """
        logger.info("%s on Modal: a call fetches what isn't there of pools and model", self.work.split)
        ref, outcome = self._outcome("fetch", fetch_request(self.work), folder, "fetch", "fetch")
        if isinstance(outcome, Exception):
            folder.forget("fetch.calls", "fetch")
            raise _explain_error(outcome, ref)

    def run(self, stage: str, jobs: Sequence[ScoreJob], folder: StagingView) -> Generator[Receipt]:
        """Yield receipts in the order of the jobs; a thread calls for each job, waits, and commits its receipt.

        Calls are canceled when the caller stops early or is interrupted, and when one refuses its input. A process that
        is killed, or that fails in a way that the same command may get over, leaves them running, for the next one.

        Raises:
            RetryableError: a job failed three times; names the job.
            InputError: as a job raised it.
        """
        self._stopped.clear()
        pool, given, goes_on = ThreadPoolExecutor(self.place.settings.places), 0, False
        futures = [pool.submit(self._score, stage, job, folder) for job in jobs]
        try:
            for ended in as_completed(futures):
                ended.result()  # raises the first failure, whichever job's it is
                while given < len(futures) and futures[given].done():
                    yield futures[given].result()
                    given += 1
        except Exception as error:
            goes_on = isinstance(error, RetryableError) or not isinstance(error, InputError)
            raise
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)
            for job in () if goes_on else jobs:
                if (called := folder.receipt(f"{stage}.calls", job.name)) is not None:
                    _cancel(str(called.notes["ref"]))
                    folder.forget(f"{stage}.calls", job.name)

    def _score(self, stage: str, job: ScoreJob, folder: StagingView) -> Receipt:
        gpu, tries = None if self.place.settings.gpu == NO_GPU else self.place.settings.gpu, 0
        asked = shard_request(self.work, job, gpu)
        while True:
            ref, outcome = self._outcome("score", asked, folder, stage, job.name)
            try:
                receipt = self._collected(ref, outcome, folder)
            except RetryableError as died:
                tries += 1
                if tries == _TRIES:
                    what = f"{died.what}, {_TRIES} times on shard {job.name}"
                    raise RetryableError(what, job.file, died.fix) from None
                logger.warning("shard %s of %s: %s; it is tried again", job.name, job.pool_file, died.what)
            else:
                folder.commit(stage, job.name, receipt)
                return receipt
            finally:
                folder.forget(f"{stage}.calls", job.name)

    def _outcome(
        self, function: str, asked: Mapping[str, Any], folder: StagingView, stage: str, name: str
    ) -> tuple[str, object]:
        """Return the id of a call, made now or by an earlier build, and what it returned or raised.

        Raises:
            InputError: Modal doesn't let it be made, or has not answered for long.
            CancelledError: the run ends.
        """
        digest = canonical_sha256(asked)
        while True:
            called = folder.receipt(f"{stage}.calls", name)
            if called is None or called.notes.get("asked") != digest:
                with self._lock:
                    called = Receipt([], {}, {"ref": self._spawn(function, asked), "asked": digest})
                    folder.commit(f"{stage}.calls", name, called)
            ref = str(called.notes["ref"])
            try:
                return ref, self._waited(ref)
            except (failed.OutputExpiredError, failed.NotFoundError):
                folder.forget(f"{stage}.calls", name)

    def _spawn(self, function: str, asked: Mapping[str, Any]) -> str:
        app, environment = self.place.settings.app, self.place.settings.environment
        salted = {**asked, "salt": self.place.salt} if self.place.salt else asked
        try:
            found = LOCAL_FUNCTIONS.get(function) or modal.Function.from_name(
                app, function, environment_name=environment
            )
            ref = str(found.spawn(json.dumps(salted, sort_keys=True)).object_id)
        except Exception as error:
            raise _explain_error(error, f"{app}.{function}") from None
        self._calls += function == "score"
        return ref

    def _waited(self, ref: str) -> object:
        """Return what a call returned or raised.

        Raises:
            OutputExpiredError, NotFoundError: Modal doesn't know the call, or its result any more.
        """
        heard = time.monotonic()
        while not self._stopped.is_set():
            try:
                return modal.FunctionCall.from_id(ref).get(timeout=_POLL_S)
            except builtins.TimeoutError:
                heard = time.monotonic()
            except (failed.OutputExpiredError, failed.NotFoundError):
                raise
            except _NO_ANSWER as error:
                if time.monotonic() - heard > _SILENT_S:
                    what = f"Modal has not answered for {_SILENT_S:.0f} s ({error})"
                    raise TransientError(what, ref, _CONTINUE_HINT) from None
                self._stopped.wait(_POLL_S)
            except (failed.AuthError, failed.PermissionDeniedError) as error:
                raise _explain_error(error, ref) from None
            except Exception as error:
                return error
        raise CancelledError

    def _collected(self, ref: str, outcome: object, folder: StagingView) -> Receipt:
        """Return the receipt of a call, whose file is downloaded into the folder.

        Raises:
            RetryableError: its answer or file is damaged.
            InputError: as the call raised it.
        """
        settings = self.place.settings
        if isinstance(outcome, Exception):
            raise _explain_error(outcome, ref)
        receipt = _shard_receipt(outcome, self.work.split, ref)
        [there] = receipt.files
        here = f"{WORK}/scored/{receipt.notes['name']}.parquet"
        volume = modal.Volume.from_name(settings.volumes[1], environment_name=settings.environment)
        try:
            with DurableFile(folder.path(here)) as file:
                for block in volume.read_file(there.path):
                    file.write(block)
                    if file.bytes_written > there.bytes:
                        raise RetryableError(
                            f"its scores have more than {there.bytes:,} bytes", there.path, _CONTINUE_HINT
                        )
        except FileNotFoundError:
            raise RetryableError("its scores are gone from their volume", there.path, _CONTINUE_HINT) from None
        except failed.Error as error:
            raise _explain_error(error, f"{settings.volumes[1]}/{there.path}") from None
        if file.sha256 != there.sha256:
            folder.path(here).unlink()
            raise RetryableError("what came over the wire has another sha256 than what was scored", ref, _CONTINUE_HINT)
        self._seconds.append(receipt.notes["gpu_seconds"] / settings.gpus)
        return replace(receipt, files=[replace(there, path=here)])

    def provenance(self) -> Mapping[str, Any]:
        """Return the settings, and what the shards took that this build collected, without starting containers."""
        settings, seconds = self.place.settings, round(sum(self._seconds), 3)
        took = {"calls": self._calls, "container_seconds": seconds, "cost": settings.cost(seconds)}
        return {"modal": {**settings.model_dump(mode="json"), **took}}


def _cancel(ref: str) -> None:
    try:
        modal.FunctionCall.from_id(ref).cancel()
    except (failed.Error, OSError) as error:
        logger.warning("call %s could not be canceled (%s): look at it on Modal, it costs", ref, error)


def _shard_receipt(outcome: object, split: str, ref: str) -> Receipt:
    """Read the receipt that a call returned; it names the files that are read from the volume and written here.

    Raises:
        RetryableError: it is no receipt of one file of the split's scores.
    """
    try:
        receipt = Receipt.from_bytes(outcome.encode()) if isinstance(outcome, str) else None
        if receipt is not None:
            [file] = receipt.files
            is_named = _SCORES_FILE.fullmatch(file.path.removeprefix(f"{split}/")) is not None
            seconds = float(receipt.notes["gpu_seconds"])
            if is_named and _SHARD_NAME.fullmatch(receipt.notes["name"]) and 0 <= seconds < math.inf:
                return receipt
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        pass
    raise RetryableError("its answer is damaged", ref, _CONTINUE_HINT)


def _explain_error(error: Exception, where: str) -> InputError:
    """What Modal says, told apart; what a function refused, as it did."""
    if isinstance(error, InputError):
        return error
    said = textwrap.shorten(str(error), 160, placeholder=" …")
    kind, what, fix = next((kind, what, fix) for types, kind, what, fix in _EXPLANATIONS if isinstance(error, types))
    return kind(f"{what} ({said})" if said else what, where, fix)
