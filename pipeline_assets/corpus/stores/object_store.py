"""Object stores: S3, GCS, Azure and folders, accessed through `obstore`.

`obstore` reads the credentials from the environment. No error message contains them: a message has the store's URL and
the HTTP status. Without a status, the message has the first line of the library's error, minus query strings.
"""

import contextlib
import datetime
import hashlib
import io
import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pipeline_assets.corpus.publishing.hub_repo import UploadFile
from pipeline_assets.corpus.readers.hub_files import map_in_order
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import DeniedError, InputError, TransientError, UsageError, one_line
from pipeline_assets.spine.files import read_blocks, require_folder
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.install_hints import not_installed_error
from pipeline_assets.spine.manifest import MANIFEST_FORMAT
from pipeline_assets.spine.sealed_folder import find_artifact_above

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

_THREADS = 8
_PART_BYTES, _MAX_PARTS = 8 << 20, 9_000  # S3 allows 10,000 parts
_CONFLICT_WAITS_S = [0.02 * 2**attempt for attempt in range(8)]  # while another put of the object is in progress
_MAX_OBJECTS = 10_000_000  # of a listing, each with 250 bytes in memory
_PROBE_KEY = "probe"
_OTHER_STORE_FIX = "push to S3, GCS, Azure, a file:// folder or a hub dataset, which have conditional writes"
RERUN_FIX = "run the recipe again; if the source was pinned earlier, remove its folder in raw/ first"
_BEYOND_END_ERRORS = ("HTTP 416", "Generic LocalFileSystem error: Requested range was invalid")
_CREDENTIAL_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
}
_KEY_PATTERN = re.compile(r"(AWS|AZURE)_.*(KEY|KEY_ID|TOKEN)")
_METADATA_SERVER_PATTERN = re.compile(r"169\.254\.169\.254|metadata\.google\.internal")
_STATUS_PATTERN = re.compile(r"status code: (\d{3})")
_SECRET_PATTERN = re.compile(r"\?[^\s\"')]*|(?<=://)\S*@")  # in a URL: the query, user and password


@dataclass(frozen=True)
class Pointer:
    """Content of a small object, with the version that a conditional put compares."""

    content: bytes
    version: object = None


@dataclass(frozen=True)
class StoredObject:
    """Object to read; `version` is its ETag, or its version id if it has no ETag.

    `modified_ns` is in nanoseconds since 1970. `version` and `modified_ns` may be None if the name is a content hash.
    """

    name: str
    bytes: int
    version: str | None = None
    modified_ns: int | None = None


@dataclass(frozen=True)
class ObjectStore:
    """Store of the objects below a URL's prefix; keys are relative to the prefix.

    `folder` is the local folder of a `file://` URL, otherwise None. A file system has no conditional put; a lock and a
    rename replace it. Methods raise DeniedError if access is denied, and TransientError if a request fails.
    """

    url: str
    client: "Client" = field(repr=False)  # its repr fails for Azure
    folder: Path | None

    @classmethod
    def open(cls, url: str) -> "ObjectStore":
        """Open a store; UsageError for a bad URL, a missing folder or missing obstore."""
        try:
            from obstore.exceptions import BaseError
            from obstore.store import LocalStore, from_url
        except ImportError as error:
            raise not_installed_error(error, "objects") from None
        if "#" in url:  # a URL ends there, so the store would be another folder
            raise UsageError("the URL contains #", url, "write %23 in its place")
        folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
        retries = {"max_retries": 6, "retry_timeout": datetime.timedelta(seconds=180)}
        options = {"timeout": "300s", "allow_http": True}  # timeout of one part; the environment chooses the endpoint
        if folder is not None:  # perhaps its disk is not mounted
            require_folder(folder, "correct the URL" if folder.exists() else "create it, or correct the URL")
        for name in _ENDPOINT_VARIABLES.get(url[:2], ()):
            if not re.match("https?://[^/]", os.environ.get(name, "http://unset")):  # obstore panics for these
                raise UsageError("must be a URL, such as http://127.0.0.1:9000", name, "correct or unset it")
        for name, value in os.environ.items():
            if _KEY_PATTERN.fullmatch(name) and not (value.isascii() and value.isprintable()):  # obstore panics
                raise UsageError("must be printable ASCII, without a newline", name, "correct or unset it")
        try:
            if folder is not None:
                return cls(url, LocalStore(folder), folder)
            return cls(url, from_url(url, retry_config=retries, client_options=options), None)  # type: ignore[call-overload]
        except (BaseError, ValueError) as error:
            fix = f"correct the URL, or set {_credential_variables(url)}"
            raise UsageError(_describe_error(error), url, fix) from None

    def prepare_writes(self) -> None:
        """Raise UsageError if the store ignores the condition of a conditional put.

        In such a store, several simultaneous pushes of one pointer would all seem to succeed. Also raise UsageError if
        the store is a folder in a sealed artifact.
        """
        if self.folder is not None and (artifact := find_artifact_above(self.folder / _PROBE_KEY)) is not None:
            raise UsageError(f"the folder is in the sealed artifact {artifact}", self.folder, "choose another folder")
        wrong = Pointer(b"", {"e_tag": '"0"', "version": "123456789"})
        try:
            self.replace(_PROBE_KEY, b"", None)
            with self._convert_errors(_PROBE_KEY):
                if any(self._put_if(_PROBE_KEY, b"", expected) for expected in (None, wrong)):
                    raise UsageError("the store ignores the conditions of writes", self.url, _OTHER_STORE_FIX)
        except FileNotFoundError:
            raise self._bucket_not_found_error() from None

    def list_keys(self, folder: str) -> list[str]:
        """List the keys in a folder and its subfolders, sorted."""
        return sorted(stored.name for stored in self.list_objects(folder))

    def list_objects(self, folder: str | None = None) -> list[StoredObject]:
        """List all objects, or only the objects below `folder`, with their versions.

        Raise InputError if the listing repeats an object, as a store does that ignores which page was requested, or if
        it has too many objects.
        """
        import obstore

        found = dict[str, StoredObject]()
        with self._convert_errors(folder or ""):
            for entry in itertools.chain.from_iterable(obstore.list(self.client, folder)):
                name, version = entry["path"], entry.get("e_tag") or entry.get("version")
                if name in found or len(found) == _MAX_OBJECTS:
                    what = f"the listing repeats {name!r}, or has more than {_MAX_OBJECTS:,} objects"
                    raise InputError(what, self.url, "check the server at the store's endpoint, or use a longer prefix")
                modified_ns = int(entry["last_modified"].timestamp()) * 10**9
                found[name] = StoredObject(name, entry["size"], str(version), modified_ns)
        return [*found.values()]

    def read(self, key: str, start: int, size: int, etag: str | None = None) -> bytes:
        """Read at most `size` bytes from `start`; b"" if the object is missing.

        Fewer bytes are returned at the object's end. Raise InputError if `etag` is set but is not the object's ETag.
        """
        import obstore
        from obstore.exceptions import BaseError, PreconditionError

        condition = {} if etag is None else {"if_match": etag}
        with self._convert_errors(key), contextlib.suppress(FileNotFoundError):
            try:
                options = {"range": (start, start + size), **condition}
                return self._read_body(obstore.get(self.client, key, options=options), size)  # type: ignore[arg-type]
            except PreconditionError:
                raise InputError("the object changed since it was listed", f"{self.url}/{key}", RERUN_FIX) from None
            except BaseError as error:
                if _describe_error(error) not in _BEYOND_END_ERRORS:
                    raise
        return b""

    def put(self, files: Sequence[UploadFile]) -> int:
        """Store files that the store lacks; return the number of bytes sent.

        A key identifies the content, so a stored file of equal size is not sent again.
        """
        return sum(map_in_order(self._put, files, _THREADS))

    def _put(self, file: UploadFile) -> int:
        import obstore
        from obstore.exceptions import BaseError

        with self._convert_errors(file.path):
            with contextlib.suppress(FileNotFoundError):
                if obstore.head(self.client, file.path)["size"] == file.size:
                    return 0
            for wait_s in (*_CONFLICT_WAITS_S, None):
                try:
                    self._send(file)
                    break
                except BaseError as error:
                    if wait_s is None or _describe_error(error) != "HTTP 409":
                        raise
                    time.sleep(wait_s)
        return file.size

    def _send(self, file: UploadFile) -> None:
        import obstore

        if self.folder is None:
            part_bytes, blocks = max(_PART_BYTES, file.size // _MAX_PARTS), _hashed_blocks(file)
            content = b"".join(blocks) if file.size <= _PART_BYTES else blocks  # one request for a small file
            obstore.put(self.client, file.path, content, chunk_size=part_bytes, max_concurrency=2)
        else:
            path = self.folder / file.path
            durable.make_folder(path.parent)
            durable.remove_abandoned(path.parent)
            with durable.DurableFile(path) as output:
                for block in _hashed_blocks(file):
                    output.write(block)

    def read_pointer(self, key: str) -> Pointer | None:
        """Read a pointer with its version; None if the object is missing."""
        import obstore

        with self._convert_errors(key), contextlib.suppress(FileNotFoundError):
            answer = obstore.get(self.client, key)
            version = {name: answer.meta.get(name) for name in ("e_tag", "version")}
            content = self._read_body(answer, MANIFEST_FORMAT.max_bytes)
            return Pointer(content, {name: value for name, value in version.items() if value})
        return None

    def _read_body(self, blocks: Iterable[bytes], max_bytes: int) -> bytes:
        """Read the body of a response; raise InputError if it has more than `max_bytes`."""
        body = bytearray()
        for block in blocks:
            body += block
            if len(body) > max_bytes:
                what = f"the response is longer than {max_bytes:,} bytes"
                raise InputError(what, self.url, "check the server at the store's endpoint")
        return bytes(body)

    def replace(self, key: str, content: bytes, expected: Pointer | None) -> bool:
        """Replace a pointer if it still equals `expected`; return False if it does not.

        `expected` is None for a new pointer. If the pointer already has `content`, return True, because the answer to
        an earlier put may have been lost. If the store refuses a put because of simultaneous puts (409), repeat it;
        raise TransientError after eight refusals.
        """
        for wait_s in _CONFLICT_WAITS_S:
            with self._convert_errors(key):
                if self._put_if(key, content, expected):
                    return True
            now = self.read_pointer(key)
            if now is not None and now.content == content:
                return True
            if now != expected:
                return False
            time.sleep(wait_s)
        what = f"the store refused {len(_CONFLICT_WAITS_S)} conditional writes (HTTP 409)"
        raise TransientError(what, f"{self.url}/{key}", "run the same command again")

    def _put_if(self, key: str, content: bytes, expected: Pointer | None) -> bool:
        """Try once to replace a pointer; return False if the store refuses.

        The store refuses if its pointer is not `expected`; some stores also refuse simultaneous puts, with HTTP 409.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if self.folder is not None:
            durable.make_folder((self.folder / key).parent)
            with lock_folder((self.folder / key).parent):
                if self.read_pointer(key) != expected:
                    return False
                durable.write_durably(self.folder / key, content)
                return True
        try:
            mode = "create" if expected is None else expected.version
            obstore.put(self.client, key, content, mode=mode, use_multipart=False)  # type: ignore[arg-type]
        except (AlreadyExistsError, PreconditionError):
            return False
        except FileNotFoundError:  # S3's answer to a conditional put if the object is missing
            if expected is None:
                raise
            return False
        return True

    @contextlib.contextmanager
    def _convert_errors(self, key: str) -> Iterator[None]:
        """Convert errors of `obstore` to InputErrors, but pass on FileNotFoundError."""
        from obstore import exceptions

        where = f"{self.url}/{key}".rstrip("/")
        try:
            yield
        except (exceptions.InvalidPathError, ValueError) as error:
            raise InputError(_describe_error(error), where, "rename the object") from None
        except exceptions.BaseError as error:
            text = _describe_error(error)
            if _METADATA_SERVER_PATTERN.search(str(error)):  # the server that states the role of a cloud machine
                raise DeniedError("no credentials found", self.url, f"set {_credential_variables(self.url)}") from None
            is_denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
            if is_denied or text in ("HTTP 401", "HTTP 403"):  # a refused listing is an error without a class
                variables = _credential_variables(self.url)
                fix = f"check the permissions, and the credentials in the environment: {variables}"
                raise DeniedError(f"the store refuses access ({text})", where, fix) from None
            if text == "HTTP 404":
                raise self._bucket_not_found_error() from None
            if isinstance(error, exceptions.NotSupportedError) or text in ("HTTP 501", "HTTP 405"):
                raise UsageError(f"the store does not support this request ({text})", where, _OTHER_STORE_FIX) from None
            fix = "run the same command again to resume"
            raise TransientError(f"the request failed ({text})", where, fix) from None

    def _bucket_not_found_error(self) -> UsageError:
        return UsageError("bucket or container not found", self.url, "create it, or correct the URL")


def _credential_variables(url: str) -> str:
    return _CREDENTIAL_VARIABLES.get(url[:2], "the variables of the store")


def _hashed_blocks(file: UploadFile) -> Iterator[bytes]:
    """Yield a file's blocks; after the last one, raise InputError for a wrong sha256."""
    digest = hashlib.sha256()
    with io.BytesIO(file.source) if isinstance(file.source, bytes) else open(file.source, "rb", buffering=0) as opened:
        for block in map(bytes, read_blocks(opened)):
            digest.update(block)
            yield block
    if digest.hexdigest() != file.sha256:
        what = f"sha256 is {digest.hexdigest()}, sealed with {file.sha256}"
        raise InputError(what, file.source, "run `corpusmill verify` on its folder, then build it again")


def _describe_error(error: Exception) -> str:
    """Return an error's HTTP status; if missing, its message without secrets."""
    if status := _STATUS_PATTERN.search(str(error)):
        return f"HTTP {status[1]}"
    message = str(error).partition("\n\nDebug source:")[0].replace("\n", r"\n")  # a name may contain a line end
    return one_line(Exception(_SECRET_PATTERN.sub("", message)), 200)
