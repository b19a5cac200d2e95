"""Alerts of failed runs, posted to the address in CORPUSMILL_WEBHOOK."""

import http.client
import json
import threading
import urllib.error
import urllib.request

import dagster as dg

from pipeline_assets.assets import step_name
from pipeline_assets.compat import ASSET_JOB, PARTITION_TAG, RETRY_RUN_TAG
from resources.webhook import WEBHOOK_VARIABLE, webhook_address

_TIMEOUT_S = 10.0
_MAX_NAMED_ASSETS = 3
_MAX_ERROR_CHARACTERS = 500  # some errors of Dagster list all jobs


@dg.run_failure_sensor(
    name="alert",
    description=f"Reports each failed run to {WEBHOOK_VARIABLE}, if set",
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert(context: dg.RunFailureSensorContext) -> None:
    """Post a failed run to the webhook, if one is set, as JSON `{"text": …}`.

    A run that was started again is not posted: if the new run fails as well, that one is.
    """
    address = webhook_address()
    if address is None or RETRY_RUN_TAG in context.dagster_run.tags:
        return
    events = context.get_step_failure_events()
    failures = [getattr(event.event_specific_data, "user_failure_data", None) for event in events]
    causes = [failure.description for failure in failures if failure is not None and failure.description]
    message = " ".join((context.failure_event.message or "").split()).rstrip(".")
    causes = causes or [message, *_engine_errors(context)[-1:]]
    name = _run_name(context.dagster_run, {event.step_key or "" for event in events})
    problem = _post(address, f"{name} failed: {'; '.join(filter(None, causes))}")
    if problem is not None:
        context.log.warning(f"{WEBHOOK_VARIABLE} {problem}")


def _engine_errors(context: dg.RunFailureSensorContext) -> list[str]:
    """Return Dagster's own errors in a run, oldest first, such as a missing job."""
    entries = context.instance.all_logs(context.dagster_run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    errors = [getattr(event.event_specific_data, "error", None) for event in events]
    return [error.message.partition("\n")[0][:_MAX_ERROR_CHARACTERS] for error in errors if error is not None]


def _run_name(run: dg.DagsterRun, failed_steps: set[str]) -> str:
    """Return a run's job or, for a run of assets, the failed assets and the partition."""
    if run.job_name != ASSET_JOB:
        return run.job_name
    keys = sorted(run.asset_selection or (), key=dg.AssetKey.to_user_string)
    keys = [key for key in keys if step_name(key) in failed_steps] or keys
    names = [key.to_user_string() for key in keys[:_MAX_NAMED_ASSETS]]
    more = [f"{len(keys) - len(names)} more"] if len(keys) > len(names) else []
    partition = run.tags.get(PARTITION_TAG)
    return ", ".join([*names, *more]) + (f" [{partition}]" if partition else "")


class _RefuseRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirects; urllib would follow them by a GET without text."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that urllib raises HTTPError."""


def _post(address: str, text: str) -> str | None:
    """Post a text, and return the problem, if there was one.

    The answer has ten seconds in all. The limit of a socket alone would end neither an answer that sends a byte now
    and then nor the search for an address: the sensor's tick would fail, and the next one post the same runs again.
    """
    body, headers = json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(address, body, headers, method="POST")
    problems: list[str | None] = []

    def send() -> None:
        try:
            urllib.request.build_opener(_RefuseRedirects).open(request, timeout=_TIMEOUT_S).close()
            problems.append(None)
        except urllib.error.HTTPError as error:
            problems.append(f"answers with status {error.code}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Messages of these errors may contain the address: only the kind of error is logged.
            problems.append(f"does not answer: {type(getattr(error, 'reason', error)).__name__}")

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(_TIMEOUT_S)
    return problems[0] if problems else f"does not answer within {_TIMEOUT_S:.0f} s"
