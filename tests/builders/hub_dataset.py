"""Dataset with a regular, an LFS and an empty file, for tests of hub readers."""

from dataclasses import dataclass
from pathlib import Path

from faulty_hub import FaultyHub

from pipeline_assets.corpus.readers.hub_cache import Span
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.spine import durable

DATASET = "maker/pages"
CARD = b"# Pages\n"
LARGE = bytes(range(256)) * 20_000  # 5,120,000 bytes
NOWHERE = "0123456789abcdef0123456789abcdef01234567"
BIG = "data/large.bin"


@dataclass
class Published:
    """Dataset on its hub, listed; the requests of the listing are forgotten."""

    hub: FaultyHub
    files: HubFiles
    commit: str
    listed: dict[str, HubFile]

    def fetch(self, path: str, *bounds: int) -> Span:
        return self.files.fetch(DATASET, self.commit, self.listed[path], *bounds)

    def body_bytes(self) -> int:
        """Count the bytes of file content on the wire."""
        return sum(request.bytes_sent for request in self.hub.requests if "/api/" not in request.path)

    def cached(self) -> list[Path]:
        return sorted(path for path in (self.files.cache / "maker--pages" / "bytes").rglob("*") if path.is_file())

    def part(self, path: str, start: int, stop: int) -> Path:
        """Return the path of an interrupted download."""
        folder = self.files.spans_folder(DATASET, self.listed[path].digest)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{start}-{stop}.{durable.boot_id()}.part"
