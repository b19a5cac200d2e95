"""Dagster webserver that refuses requests from pages of other sites.

Dagster's webserver has no authentication, accepts mutations in a URL, and checks neither Host nor Origin. While it
runs, any web page in the same browser could start, change or delete runs. The requests of such a page have a foreign
Origin, a Host name that the page's owner controls, or a query in the URL, or they show the UI in a frame, whose clicks
the page can steal; this webserver refuses all four.
"""

import re
from typing import Any
from urllib.parse import parse_qs

import dagster_webserver.cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]*)?", re.IGNORECASE)


class SameOriginMiddleware:
    """ASGI middleware that refuses requests from pages of other sites.

    The Host must be loopback, at any port. The Origin must be the Host or missing. The URL must contain no GraphQL
    query. The response must not be for a frame.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = refusal_message(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal})
        else:
            await PlainTextResponse(refusal, 403)(scope, receive, send)


def refusal_message(scope: Scope) -> str | None:
    """Return the reason to refuse a request; None to accept it."""
    request = HTTPConnection(scope)
    hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
    if len(hosts) != 1 or _LOOPBACK_HOST.fullmatch(hosts[0]) is None:
        return "The Host header must be 127.0.0.1 or localhost; reach another machine's UI by an SSH tunnel."
    if origins not in ([], [f"http://{hosts[0]}"]):
        return "The Origin header names another site; open the UI's own address."
    if "query" in parse_qs(scope["query_string"].decode("latin-1")):
        return "A GraphQL query must be in the body of a POST, as application/json."
    if request.headers.get("sec-fetch-dest") in ("frame", "iframe", "object", "embed"):
        return "The UI cannot be part of another page; open the UI's own address."
    return None


def serve() -> None:
    """Run Dagster's webserver with `SameOriginMiddleware` as its first middleware."""
    build = DagsterWebserver.build_middleware

    def build_guarded(server: DagsterWebserver[Any, Any]) -> list[Middleware]:
        return [Middleware(SameOriginMiddleware), *build(server)]

    setattr(DagsterWebserver, "build_middleware", build_guarded)  # noqa: B010 - mypy refuses to replace a method
    dagster_webserver.cli.main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    serve()
