"""Death of the process at a request to a hub."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest


class Killed(BaseException):
    """End of the process."""


def kill_at_request(
    monkeypatch: pytest.MonkeyPatch, answered: bool, is_counted: Callable[[httpx2.Request], bool] = lambda request: True
) -> list[int]:
    """Raise `Killed` at a counted request; the returned list's number selects it.

    The number counts down with each request, so it is positive after a run that ended before its death. If `answered`,
    the hub has handled the request.
    """
    real, countdown = httpx2.Client.send, [0]

    def counted(client: httpx2.Client, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if not is_counted(request):
            return real(client, request, **options)
        countdown[0] -= 1
        if countdown[0] == 0 and not answered:
            raise Killed
        response = real(client, request, **options)
        if countdown[0] == 0:
            raise Killed
        return response

    monkeypatch.setattr(httpx2.Client, "send", counted)
    return countdown
