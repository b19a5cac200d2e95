"""The manifest: one schema for every artifact. What it is made of has a digest; how it is stored and came about has
none.

`identity` is what the content depends on, and the content; its canonical JSON names the artifact for the world.
`storage` lists every file as stored, so that damage is found. `provenance` is true and useful, and changes nothing.
`seal` is the sha256 of the file without it: a changed byte of the manifest itself shows, wherever it is.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine.canonical_json import canonical_json, sha256_of
from pipeline_assets.corpus.spine.errors import InputError

SCHEMA = "corpusmill/manifest/1"
FILE_NAME = "manifest.json"
Json = Mapping[str, Any]


@dataclass(frozen=True)
class StageVersion:
    """Which rule made an output. The version rises when the content made from the same input changes."""

    name: str
    version: int


@dataclass(frozen=True)
class FileContent:
    """What a file says: `content_sha256` survives another compressor or Parquet writer; `rows` are its records."""

    path: str
    rows: int
    content_sha256: str


@dataclass(frozen=True)
class StoredFile:
    """A file as it lies on disk, path relative to the artifact."""

    path: str
    bytes: int
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
    def upstream(self) -> list[Json]:
        """Inputs that are artifacts, in order."""
        return [entry for entry in self.inputs if "bytes" not in entry]

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": vars(self.stage),
            "recipe": self.recipe,
            "recipe_sha256": sha256_of(self.recipe),
            "inputs": list(self.inputs),
            "tokenizer": self.tokenizer,
            "decisions": self.decisions,
            "counts": self.counts,
            "files": [vars(file) for file in self.files],
        }

    @property
    def digest(self) -> str:
        return "sha256:" + sha256_of(self.to_json())


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

    def to_bytes(self) -> bytes:
        """The manifest file: indented for people, keys sorted."""
        value = self._unsealed()
        return _written(value | {"seal": "sha256:" + hashlib.sha256(_written(value)).hexdigest()})

    def _unsealed(self) -> dict[str, Any]:
        value = {
            "schema": SCHEMA,
            "kind": self.kind,
            "name": self.name,
            "identity": self.identity.to_json(),
            "digest": self.digest,
            "storage": [vars(file) for file in self.storage],
            "provenance": self.provenance,
        }
        canonical_json({key: value[key] for key in ("kind", "name", "storage")})
        return value

    def was_written_as(self, data: bytes) -> bool:
        """Whether these bytes, which say what this manifest says, are those that were sealed, to the last bit.

        A manifest from before there was a seal is held against its own form only: its provenance may have changed.
        """
        try:
            return data in (self.to_bytes(), _written(self._unsealed()))
        except (TypeError, ValueError):  # an edit that parses, such as 1e999, but that was never written
            return False

    @classmethod
    def from_bytes(cls, data: bytes, where: Path) -> "Manifest":
        """The manifest that `to_bytes` wrote.

        Raises:
            InputError: not a manifest, or its digest is not that of its identity.
        """
        try:
            value = json.loads(data)
            identity = value["identity"]
            if value["schema"] != SCHEMA:
                raise InputError(f"schema is {value['schema']!r}, this program reads {SCHEMA!r}", where, "rebuild it")
            manifest = cls(
                kind=value["kind"],
                name=value["name"],
                identity=Identity(
                    stage=StageVersion(**identity["stage"]),
                    recipe=identity["recipe"],
                    inputs=identity["inputs"],
                    tokenizer=identity["tokenizer"],
                    decisions=identity["decisions"],
                    counts=identity["counts"],
                    files=[FileContent(**file) for file in identity["files"]],
                ),
                storage=[StoredFile(**file) for file in value["storage"]],
                provenance=value["provenance"],
            )
            claimed, recipe_sha256 = value["digest"], identity["recipe_sha256"]
            actual, actual_recipe_sha256 = manifest.digest, sha256_of(identity["recipe"])
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"this is no manifest: no JSON ({error})", where, "rebuild the artifact") from None
        except KeyError as error:
            raise InputError(f"this is no manifest: it lacks {error}", where, "rebuild the artifact") from None
        except (ValueError, TypeError, AttributeError):
            raise InputError("this is no manifest: its parts have other types", where, "rebuild the artifact") from None
        if (claimed, recipe_sha256) != (actual, actual_recipe_sha256):
            what = f"digest is {claimed}, its identity has {actual}"
            raise InputError(what, where, "the manifest was edited: restore it, or run its recipe with --replace")
        return manifest


def _written(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
