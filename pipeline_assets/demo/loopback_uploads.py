"""Uploads of large files to the hub on loopback, received as temporary files."""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.demo.loopback_files import CHUNK_BYTES, open_file, open_folder
from pipeline_assets.spine.verified_reads import Readable


@dataclass(frozen=True)
class Upload:
    """Temporary file with a PUT body; removed after the response unless renamed."""

    folder_fd: int  # descriptor of the open folder that contains the file
    file_name: str
    sha256: str


@contextmanager
def received_upload(body: Readable, length: int, folder: Path) -> Iterator[Upload]:
    """Write `length` bytes of a body to a temporary file; yield it as an `Upload`."""
    digest, name = hashlib.sha256(), f".{secrets.token_hex(8)}.part"
    with open_folder(folder.parent, folder.name) as folder_fd:
        try:
            with open_file(name, folder_fd, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
                while length and (block := body.read(min(length, CHUNK_BYTES))):
                    digest.update(block)
                    file.write(block)
                    length -= len(block)
            yield Upload(folder_fd, name, digest.hexdigest())
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder_fd)
