"""Secret key for the hashes in the entries of a removal list."""

import hashlib
import secrets
from pathlib import Path

import msgspec

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.metadata_file import MetadataFormat

RESTORE_FIX = "restore it from a backup"
_SECRET_FORMAT: MetadataFormat[str] = MetadataFormat("key of the removal list", 1024, RESTORE_FIX, str)


def read_secret(list_path: Path, entry_keys: set[str]) -> tuple[bytes, str]:
    """Return a removal list's secret and the secret's hash, the `key` of new entries.

    `entry_keys` are the keys of existing entries. Raise InputError if the secret is missing or damaged, or is not the
    secret of these entries.
    """
    file = _secret_file(list_path)
    try:
        secret = bytes.fromhex(_SECRET_FORMAT.read(file))
        key = hashlib.blake2b(key=secret, digest_size=8).hexdigest()
    except (FileNotFoundError, ValueError):
        raise InputError("the key is missing or damaged, so no entry can match", file, RESTORE_FIX) from None
    if entry_keys - {"", key}:
        raise InputError("the key is not the one of the list, so no entry can match", file, RESTORE_FIX)
    return secret, key


def create_secret(list_path: Path) -> None:
    """Create the secret of a removal list; keep a secret that already exists.

    Only the owner of the file can read it. In a shared folder, the group can read it, too, because the builds of all
    members need the secret.
    """
    if not (file := _secret_file(list_path)).exists():
        durable.write_durably(file, msgspec.json.encode(secrets.token_hex(32)), mode=0o600)
        if durable.is_shared(file.parent):
            durable.set_mode(file, 0o640)


def _secret_file(list_path: Path) -> Path:
    return list_path.with_name("secret.json")
