"""Forged artifacts: damaged files and manifests that agree with them."""

import dataclasses
import hashlib
from pathlib import Path

import zstandard

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.trust.verify import content_sha256


def overwrite(path: Path, data: bytes) -> None:
    """Overwrite a sealed file like a failing disk does."""
    path.chmod(0o644)
    path.write_bytes(data)


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))


def forge(folder: Path, name: str, data: bytes, rows: int | None = None) -> None:
    """Forge the content of a sealed file, with a manifest that agrees."""
    path = folder / name
    overwrite(path, data)
    sha256 = hashlib.sha256(data).hexdigest()
    content = sha256
    if name.endswith(SUFFIX):
        content = hashlib.sha256(zstandard.ZstdDecompressor().stream_reader(data).read()).hexdigest()
    elif name.endswith(".parquet"):
        content = content_sha256(path)
    manifest = require_manifest(folder)
    files = [
        dataclasses.replace(file, content_sha256=content, rows=file.rows if rows is None else rows)
        if file.path == name
        else file
        for file in manifest.identity.files
    ]
    storage = [
        dataclasses.replace(file, bytes=len(data), sha256=sha256) if file.path == name else file
        for file in manifest.storage
    ]
    reseal(folder, dataclasses.replace(manifest, storage=storage), files=files)


def reseal(folder: Path, manifest: Manifest, **identity: object) -> None:
    """Replace a folder's manifest, with other parts of the identity."""
    resealed = dataclasses.replace(manifest, identity=dataclasses.replace(manifest.identity, **identity))
    overwrite(folder / "manifest.json", resealed.to_bytes())
