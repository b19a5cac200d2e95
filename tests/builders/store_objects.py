"""Store objects: files named by their content."""

import hashlib
from pathlib import Path

from pipeline_assets.corpus.publishing.hub_repo import UploadFile

KEY = "refs/corpora/web.json"


def write_upload(data: bytes, folder: Path) -> UploadFile:
    """Write a file and return it as an upload."""
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / sha256
    path.write_bytes(data)
    return UploadFile(f"objects/{sha256[:2]}/{sha256}", path, len(data), sha256)
