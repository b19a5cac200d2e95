"""Manifests: the schema that all artifacts share.

`identity` is the content and everything that it depends on. The artifact's digest is the hash of the identity as
canonical JSON. `storage` lists every file as stored, to detect damage, and `provenance` has facts about the build; the
digest covers neither. `seal` is the sha256 of the manifest file without the seal, to detect any changed byte.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeAlias

import msgspec

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Count, Ledger
from pipeline_assets.spine.manifest_schema import KindParts
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.typed_values import convert

_ALLOWED_TYPES_ERROR = (
    "canonical JSON contains only dicts with text keys, lists, text, whole numbers, booleans and null"
)


def canonical_json(value: object) -> bytes:
    """Serialize a value as canonical JSON, which is equal on every machine.

    The JSON is UTF-8 without spaces, with keys sorted by code point. Raise TypeError for types that JSON lacks and for
    a float, since only decimal strings are exact. Raise UnicodeEncodeError for a lone surrogate.
    """
    _check_types(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def canonical_sha256(value: object) -> str:
    """Return the hex sha256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _check_types(value: object) -> None:
    match value:
        case None | bool() | int() | str():
            return
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{_ALLOWED_TYPES_ERROR}; got the key {key!r}")
                _check_types(item)
        case list() | tuple():
            for item in value:
                _check_types(item)
        case _:
            raise TypeError(f"{_ALLOWED_TYPES_ERROR}; got {type(value).__name__} {value!r}")


SCHEMA = "corpusmill/manifest/1"
MANIFEST_FILE = "manifest.json"
# The line of the seal with the line break before it, so that without the match all other lines remain.
_SEAL_LINE = re.compile(rb'\n "seal": "sha256:([0-9a-f]{64})",(?=\n)')
_ENCODED_SUFFIXES = (".zst", ".parquet")
_EDITED_FIX = "the manifest was edited; restore it, or run its recipe with --replace"
JsonObject = Mapping[str, Any]
LabelNames = Callable[[str], Collection[str]]
_Path: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\0]+\Z", max_length=4096)]


@dataclass(frozen=True)
class StageVersion:
    """Name and version of a stage; the version is raised when the output changes."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"


@dataclass(frozen=True)
class FileContent:
    """Content of a file: number of rows, and a hash that ignores compression."""

    path: _Path
    rows: Count
    content_sha256: str

    @property
    def is_raw(self) -> bool:
        """True if the content hash is the hash of the bytes; false for .zst and .parquet."""
        return not self.path.endswith(_ENCODED_SUFFIXES)


@dataclass(frozen=True)
class StoredFile:
    """File as stored, with a path relative to the artifact's folder."""

    path: _Path
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class Identity:
    """Content of an artifact, and everything that it depends on.

    Attributes:
        inputs: Upstream artifacts {name, digest} and external files {name, digest, bytes, …}, in order.
        tokenizer: {family, sha256}; None if no text is tokenized.
        decisions: Facts that the build determined, such as `english_filter_applied`.
        counts: Numbers such as documents, tokens and the ledger; the keys depend on the kind.
        files: All files whose content the digest covers.
    """

    stage: StageVersion
    recipe: JsonObject
    inputs: Sequence[JsonObject]
    tokenizer: JsonObject | None
    decisions: JsonObject
    counts: JsonObject
    files: Sequence[FileContent]

    @property
    def ledger(self) -> Ledger:
        """Ledger of the input rows; InputError if the manifest file lacks a ledger."""
        return convert(self.counts["ledger"], Ledger)

    @property
    def upstream(self) -> list[JsonObject]:
        """Inputs that are artifacts, in order."""
        return [entry for entry in self.inputs if "bytes" not in entry]  # only files have a size

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": vars(self.stage),
            "recipe": self.recipe,
            "recipe_sha256": canonical_sha256(self.recipe),
            "inputs": list(self.inputs),
            "tokenizer": self.tokenizer,
            "decisions": self.decisions,
            "counts": self.counts,
            "files": [vars(file) for file in self.files],
        }

    @functools.cached_property
    def digest(self) -> str:
        return "sha256:" + canonical_sha256(self.to_json())


@dataclass(frozen=True)
class Manifest:
    """Description of one sealed artifact."""

    kind: str
    name: str
    identity: Identity
    storage: Sequence[StoredFile]
    provenance: JsonObject

    @property
    def digest(self) -> str:
        return self.identity.digest

    def storage_errors(self, label_names: LabelNames | None = None) -> Iterator[str]:
        """Describe contradictions between `storage` and the files that the digest covers.

        If `label_names` is set, every stored file that the digest does not cover must be in `label_names(kind)`.
        """
        content = {file.path: file for file in self.identity.files}
        stored = {file.path: file for file in self.storage}
        if len(stored) < len(self.storage) or len(content) < len(self.identity.files):
            yield "a file is listed twice"
        for path in sorted(content.keys() - stored.keys()):
            yield f"the storage lacks {path}, which is content"
        if label_names is not None and (extra := stored.keys() - content.keys()):
            for path in sorted(extra - set(label_names(self.kind))):
                yield f"the storage lists {path}, which is neither content nor a label of {self.kind}"
        for path in sorted(content.keys() & stored.keys()):
            if content[path].is_raw and content[path].content_sha256 != stored[path].sha256:
                actual, expected = stored[path].sha256, content[path].content_sha256
                yield f"{path} is stored with sha256 {actual}, and its content has {expected}"

    def to_bytes(self) -> bytes:
        """Return the sealed manifest as indented, sorted JSON; InputError if too large."""
        value = {
            "schema": SCHEMA,
            "kind": self.kind,
            "name": self.name,
            "identity": self.identity.to_json(),
            "digest": self.digest,
            "storage": [vars(file) for file in self.storage],
            "provenance": self.provenance,
        }
        canonical_json({key: value[key] for key in ("kind", "name", "storage")})  # raises for other types
        data = _encode_json(value | {"seal": "sha256:" + hashlib.sha256(_encode_json(value)).hexdigest()})
        if len(data) > MANIFEST_FORMAT.max_bytes:
            what = f"a manifest is limited to {MANIFEST_FORMAT.max_bytes:,} bytes, got {len(data):,}"
            raise InputError(what, f"{self.kind} {self.name}", "split the source, so that it lists fewer files")
        return data

    @classmethod
    def from_bytes(cls, data: bytes, where: Path | str) -> "Manifest":
        """Parse a manifest; InputError if invalid, or if its digest or a path is wrong."""
        written, manifest = _parse(data, where)
        try:
            actual, recipe_sha256 = manifest.digest, canonical_sha256(manifest.identity.recipe)
        except (ValueError, TypeError) as error:
            raise InputError(f"not a valid manifest: {error}", where, MANIFEST_FORMAT.fix) from None
        if (written.digest, written.identity.recipe_sha256) != (actual, recipe_sha256):
            raise InputError(f"digest is {written.digest}, its identity has {actual}", where, _EDITED_FIX)
        names = [file.path for file in manifest.storage] + [file.path for file in manifest.identity.files]
        escaping = next((name for name in names if not is_inside_folder(name)), None)
        if escaping is not None:
            raise InputError(f"the path {escaping!r} leads out of the folder", where, _EDITED_FIX)
        return manifest

    @classmethod
    def from_sealed_bytes(cls, data: bytes, where: Path) -> "Manifest":
        """Parse a manifest with an intact seal, without checking its digest and paths."""
        written, manifest = _parse(data, where)
        vars(manifest.identity)["digest"] = written.digest
        return manifest


def is_seal_intact(data: bytes) -> bool:
    """Check whether the seal of a manifest file is the sha256 of its other lines."""
    seal = _SEAL_LINE.search(data)
    if seal is None:
        return False
    return hashlib.sha256(data[: seal.start()] + data[seal.end() :]).hexdigest() == seal[1].decode()


def is_inside_folder(file_path: str) -> bool:
    """Check whether a path in a manifest is normalized and inside the artifact."""
    path = PurePosixPath(file_path)
    return str(path) == file_path != "." and not path.is_absolute() and ".." not in path.parts and "\0" not in file_path


def _encode_json(value: JsonObject) -> bytes:
    compact = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return msgspec.json.format(compact, indent=1) + b"\n"  # json indents in Python, four times slower


class _KindPart(dict[str, Any]):
    """Manifest part whose keys depend on the kind; a missing key raises InputError."""

    where: Path | str

    @classmethod
    def from_json(cls, part: JsonObject, where: Path | str) -> "_KindPart":
        values = {key: cls.from_json(value, where) if isinstance(value, dict) else value for key, value in part.items()}
        content = cls(values)
        content.where = where
        return content

    def __missing__(self, key: str) -> Any:
        raise InputError(f"the manifest lacks `{key}`, which its kind requires", self.where, MANIFEST_FORMAT.fix)


class _StoredIdentity(msgspec.Struct, forbid_unknown_fields=True):
    """Identity as written by `Identity.to_json`."""

    stage: StageVersion
    recipe: dict[str, Any]
    recipe_sha256: str
    inputs: list[dict[str, Any]]
    tokenizer: dict[str, Any] | None
    decisions: dict[str, Any]
    counts: dict[str, Any]
    files: list[FileContent]


class _StoredManifest(msgspec.Struct):
    """Manifest file whose parts have the expected shapes; its digest is not checked."""

    schema: str
    identity: _StoredIdentity
    kind: str
    name: str
    digest: str
    storage: list[StoredFile]
    provenance: dict[str, Any]


# The manifest of a million files has 200 MB.
MANIFEST_FORMAT = MetadataFormat("manifest", 256 << 20, "rebuild the artifact", _StoredManifest)


def _parse(data: bytes, where: Path | str) -> tuple[_StoredManifest, Manifest]:
    written = MANIFEST_FORMAT.parse(data, where)
    if written.schema != SCHEMA:
        what = f"the schema is {written.schema!r}, but this program reads {SCHEMA!r}"
        raise InputError(what, where, MANIFEST_FORMAT.fix)
    identity = msgspec.structs.asdict(written.identity)
    del identity["recipe_sha256"]
    MANIFEST_FORMAT.convert_part(identity | {"provenance": written.provenance}, KindParts, where)
    kind_parts = {part: _KindPart.from_json(identity[part], where) for part in ("decisions", "counts")}
    content = Identity(**identity | kind_parts)
    return written, Manifest(written.kind, written.name, content, written.storage, written.provenance)
