"""Fixtures for tests of hub faults."""

from collections.abc import Iterator

import pytest
from fault_cases import ProxiedHub, Reading, open_hub
from fault_cases import undisturbed as read_undisturbed
from faulty_hub import FaultyHub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyHub]:
    with open_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture(autouse=True)
def _heal_hub(hub: FaultyHub) -> None:
    hub.inject()


@pytest.fixture(scope="module")
def undisturbed(hub: FaultyHub, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reading]:
    """Read every place of the hub without faults."""
    return read_undisturbed(hub, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def proxied(hub: FaultyHub) -> Iterator[ProxiedHub]:
    """Serve the files of `hub` behind a proxy."""
    with ProxiedHub(hub.folder) as proxied:
        yield proxied
