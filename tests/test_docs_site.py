"""The documentation site is complete and uses no resources of other hosts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
_RESOURCES = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "form": "action"}


class Resources(HTMLParser):
    """Addresses that a browser requests when it shows a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(_RESOURCES.get(tag, ""))
        if address:
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    command = [str(Path(sys.executable).parent / "mkdocs"), "build", "-q", "--strict", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    yield folder


@pytest.mark.slow
def test_no_page_requests_another_host(site: Path) -> None:
    addresses = [address for page in site.rglob("*.html") for address in Resources(page).addresses]
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]

    assert [address for address in addresses if "//" in address] == []
    assert not any("url(http" in text or "@import" in text for text in styles)
    assert any(address.startswith("assets/") for address in addresses)  # the pages do have resources


@pytest.mark.slow
def test_every_page_of_docs_is_in_the_site_and_its_search(site: Path) -> None:
    pages = {path.stem for path in (PROJECT / "docs").glob("*.md")}
    assert {path.stem for path in site.glob("*.html")} == {*pages, "404"}

    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert any("Jaccard" in entry["text"] and entry["location"].startswith("dedup.html") for entry in entries)

    api = (site / "api.html").read_text("utf-8")
    for text in ("Build a recipe as the command", "open_folder", "Plot a column of the text rows", "labels"):
        assert text in api
