"""Changes of sealed data roots: bits, files and manifests."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_assets.spine.manifest import MANIFEST_FILE, canonical_sha256


def copy_writable(source: Path, target: Path) -> Path:
    """Copy a root without its write protection."""
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def reseal(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a manifest, and renew its hashes and its seal."""
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    edit(manifest)
    (folder / MANIFEST_FILE).write_bytes(refit_manifest(json.dumps(manifest).encode()))


def refit_manifest(data: bytes) -> bytes:
    """Make digests and seal of a manifest fit its content again."""
    try:
        value = json.loads(data)
        value["identity"]["recipe_sha256"] = canonical_sha256(value["identity"]["recipe"])
        value["digest"] = "sha256:" + canonical_sha256(value["identity"])
        value.pop("seal", None)
        text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False).encode() + b"\n"
        seal = hashlib.sha256(text).hexdigest()
        return (
            json.dumps(value | {"seal": f"sha256:{seal}"}, sort_keys=True, indent=1, ensure_ascii=False).encode()
            + b"\n"
        )
    except Exception:
        return data


def unsealed_sha256(path: Path) -> str:
    """Return the sha256 of a manifest file without its seal."""
    lines = path.read_bytes().split(b"\n")
    return hashlib.sha256(b"\n".join(line for line in lines if not line.startswith(b' "seal"'))).hexdigest()
