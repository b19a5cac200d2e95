"""The manifest: one schema for every artifact. Its identity has a digest; storage and provenance have none.

`identity` is what the content depends on, and the content; its canonical JSON names the artifact for the world.
`storage` lists every file as stored, so that damage is found. `provenance` is true and useful, and changes nothing.
`seal` is the sha256 of the file without it: a changed byte of the manifest itself shows, wherever it is.
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
from pipeline_assets.spine.files import MetadataFile
from pipeline_assets.spine.ledger import Count, Ledger
from pipeline_assets.spine.manifest_schema import KindParts

_ALLOWED = "canonical JSON holds dicts with text keys, lists, text, whole numbers, booleans and null"


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with keys sorted by code point and no spaces: one value, one byte string, on every machine.

    Floats are refused, not rounded: a fraction belongs in a decimal string, which says exactly what was meant. Raises
    TypeError: a float, bytes, a key that is not text, or any other type; UnicodeEncodeError: text with a lone
    surrogate, which UTF-8 can't hold.
    """
    _refuse_others(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def canonical_sha256(value: object) -> str:
    """Hex sha256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _refuse_others(value: object) -> None:
    match value:
        case None | bool() | int() | str():
            return
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{_ALLOWED}; got the key {key!r}")
                _refuse_others(item)
        case list() | tuple():
            for item in value:
                _refuse_others(item)
        case _:
            raise TypeError(f"{_ALLOWED}; got {type(value).__name__} {value!r}")


SCHEMA = "corpusmill/manifest/1"
FILE_NAME = "manifest.json"
_SEAL = re.compile(rb'\n "seal": "sha256:([0-9a-f]{64})",(?=\n)')
_NOT_RAW = (".zst", ".parquet")
_EDITED = "the manifest was edited: restore it, or run its recipe with --replace"
Json = Mapping[str, Any]
LabelsOf = Callable[[str], Collection[str]]
_Path: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\0]+\Z", max_length=4096)]


@dataclass(frozen=True)
class StageVersion:
    """Which rule made an output. The version rises when the content made from the same input changes."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"


@dataclass(frozen=True)
class FileContent:
    """What a file says: `content_sha256` survives another compressor or Parquet writer; `rows` are its records."""

    path: _Path
    rows: Count
    content_sha256: str

    @property
    def is_raw(self) -> bool:
        """Whether the file says what it holds as it is stored: the hash of its bytes is that of its content."""
        return not self.path.endswith(_NOT_RAW)


@dataclass(frozen=True)
class StoredFile:
    """A file as it lies on disk, path relative to the artifact."""

    path: _Path
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class Identity:
    """What the content depends on, and the content.

    Attributes:
        inputs: upstream artifacts {name, digest} or hub files {name, digest, repo, commit, path, …}, in order.
        tokenizer: {family, sha256}, or None where no text becomes tokens.
        decisions: what the build settled by looking (english_filter_applied, split rule, …).
        counts: documents, tokens, dropped per reason: in = out + drops.
        files: the content, labels left out.
    """

    stage: StageVersion
    recipe: Json
    inputs: Sequence[Json]
    tokenizer: Json | None
    decisions: Json
    counts: Json
    files: Sequence[FileContent]

    @property
    def ledger(self) -> Ledger:
        """Of the rows that came in. Raises InputError: its kind has none."""
        return msgspec.convert(self.counts["ledger"], Ledger)

    @property
    def upstream(self) -> list[Json]:
        """Inputs that are artifacts, in order: files alone have a size."""
        return [entry for entry in self.inputs if "bytes" not in entry]

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
    """One sealed artifact, described."""

    kind: str
    name: str
    identity: Identity
    storage: Sequence[StoredFile]
    provenance: Json

    @property
    def digest(self) -> str:
        return self.identity.digest

    def storage_errors(self, labels_of: LabelsOf | None = None) -> Iterator[str]:
        """Entries of `storage`, which no digest covers, that don't fit the content that the digest names. Files beside
        the content are labels, whose names `label_names` tells for a kind; None where nobody can tell.
        """
        content = {file.path: file for file in self.identity.files}
        stored = {file.path: file for file in self.storage}
        if len(stored) < len(self.storage) or len(content) < len(self.identity.files):
            yield "it lists a file twice"
        for path in sorted(content.keys() - stored.keys()):
            yield f"its storage lacks {path}, which is content"
        if labels_of is not None and (others := stored.keys() - content.keys()):
            for path in sorted(others - set(labels_of(self.kind))):
                yield f"its storage lists {path}, which is neither content nor a label of {self.kind}"
        for path in sorted(content.keys() & stored.keys()):
            if content[path].is_raw and content[path].content_sha256 != stored[path].sha256:
                has, asked = stored[path].sha256, content[path].content_sha256
                yield f"{path} is stored with sha256 {has}, and its content has {asked}"

    def to_bytes(self) -> bytes:
        """The manifest file: indented for people, keys sorted."""
        value = {
            "schema": SCHEMA,
            "kind": self.kind,
            "name": self.name,
            "identity": self.identity.to_json(),
            "digest": self.digest,
            "storage": [vars(file) for file in self.storage],
            "provenance": self.provenance,
        }
        canonical_json({key: value[key] for key in ("kind", "name", "storage")})  # raises where they can't be hashed
        return _written(value | {"seal": "sha256:" + hashlib.sha256(_written(value)).hexdigest()})

    @classmethod
    def from_bytes(cls, data: bytes, where: Path) -> "Manifest":
        """The manifest that `to_bytes` wrote. Raises InputError: not a manifest, its digest is not that of its
        identity, or it names a file outside its folder.
        """
        written, manifest = _read(data, where)
        try:
            actual, recipe_sha256 = manifest.digest, canonical_sha256(manifest.identity.recipe)
        except (ValueError, TypeError) as error:
            raise InputError(f"this is no manifest: {error}", where, MANIFEST_FILE.fix) from None
        if (written.digest, written.identity.recipe_sha256) != (actual, recipe_sha256):
            raise InputError(f"digest is {written.digest}, its identity has {actual}", where, _EDITED)
        names = [file.path for file in manifest.storage] + [file.path for file in manifest.identity.files]
        outside = next((name for name in names if not is_inside(name)), None)
        if outside is not None:
            raise InputError(f"it names {outside!r}, which is no file inside its folder", where, _EDITED)
        return manifest

    @classmethod
    def sealed(cls, data: bytes, where: Path) -> "Manifest":
        """The manifest in bytes whose seal holds: its digest is as they say, and not worked out. Raises InputError: not
        a manifest.
        """
        written, manifest = _read(data, where)
        vars(manifest.identity)["digest"] = written.digest
        return manifest


def total(count: object) -> int | None:
    """A count, or the sum of a count by parts; None where the value is neither."""
    if isinstance(count, dict):
        return sum(part for part in count.values() if isinstance(part, int))
    return count if isinstance(count, int) else None


def is_seal_intact(data: bytes) -> bool:
    """Whether the bytes of a manifest file are those that were sealed: its seal is the sha256 of all other lines."""
    found = _SEAL.search(data)
    if found is None:
        return False
    return hashlib.sha256(data[: found.start()] + data[found.end() :]).hexdigest() == found[1].decode()


def is_inside(name: str) -> bool:
    """Whether a name, as manifests write them, stays below the folder that it is joined to."""
    path = PurePosixPath(name)
    return str(path) == name and not path.is_absolute() and ".." not in path.parts and "\0" not in name and name != "."


def _written(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


class _KindPart(dict[str, Any]):
    """What a manifest tells in a part that each kind fills by itself: what isn't there is no fault of its reader's."""

    where: Path

    @classmethod
    def from_json(cls, part: Json, where: Path) -> "_KindPart":
        told = cls(
            (key, cls.from_json(value, where) if isinstance(value, dict) else value) for key, value in part.items()
        )
        told.where = where
        return told

    def __missing__(self, key: str) -> Any:
        raise InputError(f"the manifest says nothing of `{key}`, which its kind does", self.where, MANIFEST_FILE.fix)


class _StoredIdentity(msgspec.Struct, forbid_unknown_fields=True):
    """As `Identity.to_json` has it."""

    stage: StageVersion
    recipe: dict[str, Any]
    recipe_sha256: str
    inputs: list[dict[str, Any]]
    tokenizer: dict[str, Any] | None
    decisions: dict[str, Any]
    counts: dict[str, Any]
    files: list[FileContent]


class _WrittenManifest(msgspec.Struct):
    """The file, its parts of the shapes that readers rely on; its digest is as it claims."""

    schema: str
    identity: _StoredIdentity
    kind: str
    name: str
    digest: str
    storage: list[StoredFile]
    provenance: dict[str, Any]


MANIFEST_FILE = MetadataFile(
    "manifest", 256 << 20, "rebuild the artifact", _WrittenManifest
)  # one of a million files has 200 MB


def _read(data: bytes, where: Path) -> tuple[_WrittenManifest, Manifest]:
    """The file and the manifest that it says. Raises InputError: the bytes are no manifest of this schema."""
    written = MANIFEST_FILE.parse(data, where)
    if written.schema != SCHEMA:
        raise InputError(f"schema is {written.schema!r}, this program reads {SCHEMA!r}", where, "rebuild it")
    said = msgspec.structs.asdict(written.identity)
    del said["recipe_sha256"]
    MANIFEST_FILE.convert_part(said | {"provenance": written.provenance}, KindParts, where)
    told = {part: _KindPart.from_json(said[part], where) for part in ("decisions", "counts")}
    return written, Manifest(written.kind, written.name, Identity(**said | told), written.storage, written.provenance)
