"""Inventory of token shards, with every byte compared with its manifest."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_assets.corpus.pages import code, markdown_table
from pipeline_assets.corpus.shards.mixture_views import INVENTORY_JSON, INVENTORY_MD
from pipeline_assets.corpus.shards.token_shards import SHARD_SUFFIX, shard_header
from pipeline_assets.corpus.spine.artifact import Artifact, Damage, present_files, sealed_manifest
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.files import blocks, file_sha256, unreadable
from pipeline_assets.corpus.spine.manifest import FILE_NAME, Manifest, StoredFile
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.tokens.losses import LOST_TEXT

logger = logging.getLogger("corpusmill")
_TOLD = ("documents", "cut_documents", "sequences", "tokens", "remainder_tokens", "license_tokens")
_DECIDED = ("dtype", "seq_len", "end_of_document", "vocabulary_size", "tokenizer_sha256")


@dataclass(frozen=True)
class Difference:
    """Difference between a file of a corpus and its manifest."""

    corpus: str
    file: str
    reason: str


@dataclass(frozen=True)
class Inventory:
    """Corpora of token shards and their differences from their manifests.

    Attributes:
        corpora: by name, the digest, the decisions, the counts, and the file, rows and sha256 of each of the `shards`.
            A corpus with an unreadable manifest is missing. `lost_text` is empty for a lossless tokenizer, None if an
            earlier version built the shards.
    """

    corpora: Mapping[str, Mapping[str, Any]]
    differences: Sequence[Difference]

    @property
    def tokens(self) -> int:
        """Tokens in the rows of all corpora."""
        return sum(corpus["tokens"] for corpus in self.corpora.values())

    def to_json(self) -> dict[str, Any]:
        """Return the inventory as JSON values."""
        differences = [asdict(one) for one in self.differences]
        return {"tokens": self.tokens, "corpora": dict(self.corpora), "differences": differences}

    def to_markdown(self) -> str:
        """Return tables of corpora, licences, lost text and differences."""
        corpora = [
            [code(name), one["sequences"], one["tokens"], one["documents"], len(one["shards"]), code(one["digest"])]
            for name, one in self.corpora.items()
        ]
        licences = [
            [code(name), code(tag), tokens]
            for name, one in self.corpora.items()
            for tag, tokens in sorted(one["license_tokens"].items(), key=lambda item: (-item[1], item[0]))
        ]
        lost = [
            [code(name), of["unknown_tokens"], of["lost_characters"], f"{float(of['fraction']):.3%}"]
            for name, one in self.corpora.items()
            for of in (one[LOST_TEXT] or {}).values()
        ]
        lost_head = ["corpus", "unknown tokens", "lost characters", "share"]
        differences = [[code(one.corpus), code(one.file), code(one.reason)] for one in self.differences]
        lines = [
            f"# Token shards: {self.tokens:,} tokens",
            "",
            *markdown_table(["corpus", "rows", "tokens", "documents", "shards", "digest"], corpora),
            "\n## Licences\n",
            *markdown_table(["corpus", "licence", "tokens"], licences),
            "\n## Text that the tokenizer loses\n",
            *markdown_table(lost_head, lost),
            "\n## Differences\n",
            *markdown_table(["corpus", "file", "what differs"], differences),
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _Read:
    """Fault of a file, None if it is valid, and its number of document ends."""

    path: str
    reason: str | None
    ends: int = 0


def take_inventory(
    corpora: Mapping[str, Path], log: Callable[[str], object] | None = None, threads: int = 4
) -> Inventory:
    """Read every file of token shards once, with one block per thread in memory.

    Compared with the manifest: file names, sizes, headers, sha256; ids against the vocabulary size; ends of documents
    against the number of documents that are not cut; token counts against rows.

    Args:
        log: called with a message per corpus; None uses the logger.

    Raises:
        UsageError: a folder has no artifact.
    """
    figures: dict[str, Mapping[str, Any]] = {}
    differences: list[Difference] = []
    for name, folder in sorted(corpora.items()):
        found: list[Difference] = []
        try:
            manifest = sealed_manifest(folder)
            figures[name] = _figures(manifest)
            found += [Difference(name, *one) for one in _differences(folder, manifest, threads)]
        except UsageError:
            raise
        except InputError as error:
            figures.pop(name, None)
            found.append(Difference(name, FILE_NAME, error.what))
        (log or logger.info)(f"{name}: {figures.get(name, {}).get('tokens', 0):,} tokens, {len(found):,} differences")
        differences += found
    return Inventory(figures, differences)


def _figures(manifest: Manifest) -> dict[str, Any]:
    identity = manifest.identity
    stored = {file.path: file.sha256 for file in manifest.storage}
    return {
        "digest": manifest.digest,
        **{key: identity.decisions[key] for key in _DECIDED},
        **{key: identity.counts[key] for key in _TOLD},
        LOST_TEXT: manifest.provenance.get(LOST_TEXT),
        "shards": [
            {"file": file.path, "rows": file.rows, "sha256": stored.get(file.path)}
            for file in identity.files
            if file.path.endswith(SHARD_SUFFIX)
        ],
    }


def _differences(folder: Path, manifest: Manifest, threads: int) -> Iterator[tuple[str, str]]:
    """Yield (file, reason) of each difference."""
    ends, is_whole = 0, True

    def read(item: StoredFile | Damage) -> _Read:
        return _Read(item.path, item.what) if isinstance(item, Damage) else _read(folder, item, manifest)

    with ThreadPoolExecutor(threads) as pool:
        for one in pool.map(read, present_files(folder, manifest, lambda kind: ())):
            ends += one.ends
            if one.reason is not None:
                is_whole = False
                yield one.path, one.reason
    counts, seq_len = manifest.identity.counts, manifest.identity.decisions["seq_len"]
    rows = sum(file.rows for file in manifest.identity.files if file.path.endswith(SHARD_SUFFIX))
    if (counts["sequences"], counts["tokens"]) != (rows, rows * seq_len):
        yield FILE_NAME, f"it counts {counts['tokens']:,} tokens, and its shards have {rows:,} rows of {seq_len:,}"
    if sum(counts["license_tokens"].values()) != counts["tokens"]:
        yield FILE_NAME, f"its tokens by licence don't sum to its {counts['tokens']:,} tokens"
    if is_whole and ends != counts["documents"] - counts["cut_documents"]:
        documents = f"{counts['documents']:,} documents, {counts['cut_documents']:,} of them cut"
        yield FILE_NAME, f"it counts {documents}, and its shards have {ends:,} ends of documents"


def _read(folder: Path, stored: StoredFile, manifest: Manifest) -> _Read:
    path = folder / stored.path
    try:
        if stored.path.endswith(SHARD_SUFFIX):
            return _read_shard(path, stored, manifest)
        return _Read(stored.path, _hash_differs(file_sha256(path), stored))
    except OSError as error:
        return _Read(stored.path, unreadable(error))
    except InputError as error:
        return _Read(stored.path, error.what)


def _hash_differs(sha256: str, stored: StoredFile) -> str | None:
    return None if sha256 == stored.sha256 else f"sha256 is {sha256}, sealed with {stored.sha256}"


def _read_shard(path: Path, stored: StoredFile, manifest: Manifest) -> _Read:
    decided, digest = manifest.identity.decisions, hashlib.sha256()
    rows = next((file.rows for file in manifest.identity.files if file.path == stored.path), None)
    dtype, largest, ends = np.dtype(decided["dtype"]).newbyteorder("<"), 0, 0
    with open(path, "rb") as file:
        header = shard_header(file, path, (rows, decided["seq_len"]), dtype)
        file.seek(0)
        digest.update(file.read(header.offset))
        for block in blocks(file):
            digest.update(block)
            ids = np.frombuffer(block, dtype)
            largest = max(largest, int(ids.max()))
            ends += int(np.count_nonzero(ids == decided["end_of_document"]))
    wrong = _hash_differs(digest.hexdigest(), stored)
    if wrong is None and largest >= decided["vocabulary_size"]:
        wrong = f"it has the id {largest:,}, and the vocabulary {decided['vocabulary_size']:,}"
    return _Read(stored.path, wrong, ends)


def build_inventory(building: StagingDir, corpora: Mapping[str, Artifact], settings: RunSettings) -> BuildResult:
    """Write `inventory.json` and `inventory.md`, without times and paths.

    Raises:
        InputError: a corpus contradicts its manifest; states the first difference and the number of others.
    """
    folders = {name: corpus.folder for name, corpus in corpora.items()}
    inventory = take_inventory(folders, threads=max(1, settings.workers))
    if inventory.differences:
        first, more = inventory.differences[0], len(inventory.differences) - 1
        told = f"{first.reason}{f' (and {more:,} more)' if more else ''}"
        raise InputError(told, folders[first.corpus] / first.file, "restore the file, or rebuild the token shards")
    written = {
        INVENTORY_JSON: json.dumps(inventory.to_json(), sort_keys=True, indent=1).encode() + b"\n",
        INVENTORY_MD: inventory.to_markdown().encode(),
    }
    files = [building.write(name, data) for name, data in written.items()]
    shards = sum(len(one["shards"]) for one in inventory.corpora.values())
    return BuildResult(files, {"corpora": len(corpora), "shards": shards, "tokens": inventory.tokens}, {})
