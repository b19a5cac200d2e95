"""The UI's webserver answers only its own pages.

It refuses pages that another server delivered.
"""

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from pipeline_assets.webserver import SameOriginMiddleware

OWN = "http://localhost:3000"
FOREIGN_HOSTS = ["evil.example", "evil.example:3000", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0"]
INVALID_HOSTS = ["", "[", "localhost@evil.example", "localhost:3000@evil.example"]
FOREIGN_ORIGINS = ["http://evil.example", "null", "https://localhost:3000", "http://localhost:3001", f"{OWN}, {OWN}"]


async def respond(_: Request) -> PlainTextResponse:
    return PlainTextResponse("answered")


async def greet(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("greeted")
    await socket.close()


@pytest.fixture
def client() -> TestClient:
    routes = [Route("/graphql", respond, methods=["GET", "POST"]), WebSocketRoute("/graphql", greet)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(SameOriginMiddleware)]), base_url=OWN)


@pytest.mark.parametrize("host", ["localhost:3000", "127.0.0.1:3000", "LOCALHOST:8080", "127.0.0.1"])
def test_own_pages_are_answered_on_any_port(client: TestClient, host: str) -> None:
    for headers in ({"host": host}, {"host": host, "origin": f"http://{host}"}):
        assert client.post("/graphql", headers=headers, json={"query": "{version}"}).text == "answered"
        with client.websocket_connect("/graphql", headers=headers) as socket:
            assert socket.receive_text() == "greeted"


@pytest.mark.parametrize(
    "headers",
    [*({"host": host} for host in FOREIGN_HOSTS + INVALID_HOSTS), *({"origin": origin} for origin in FOREIGN_ORIGINS)],
    ids=str,
)
def test_pages_of_other_servers_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    for method in ("GET", "POST"):
        assert client.request(method, "/graphql", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/graphql", headers=headers):
        pass


def test_frames_of_other_pages_are_refused(client: TestClient) -> None:
    statuses = [client.get("/graphql", headers={"sec-fetch-dest": use}).status_code for use in ("iframe", "document")]

    assert statuses == [403, 200]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", ["query", "%71uery"])
def test_a_query_in_an_address_is_refused(client: TestClient, method: str, name: str) -> None:
    """A page may open any address as an image or form, without an Origin header."""
    refused = client.request(method, f"/graphql?{name}=mutation{{setNuxSeen}}")

    assert refused.status_code == 403
    assert "must be in the body" in refused.text
