"""Inventory of token shards, which compares every file with its manifest."""

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.markdown import code, markdown_table
from pipeline_assets.corpus.shards.mixture_figures import INVENTORY_JSON, INVENTORY_MD
from pipeline_assets.corpus.shards.token_shards import SHARD_SUFFIX
from pipeline_assets.corpus.tokens.losses import LOST_TEXT
from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.spine.staging import StagingDir

logger = logging.getLogger("corpusmill")
_COUNT_KEYS = ("documents", "cut_documents", "sequences", "tokens", "remainder_tokens", "license_tokens")
_DECISION_KEYS = ("dtype", "seq_len", "end_of_document", "vocabulary_size", "tokenizer_sha256")


@dataclass(frozen=True)
class Difference:
    """Difference between a file of a corpus and the corpus's manifest."""

    corpus: str
    file: str
    reason: str


@dataclass(frozen=True)
class Inventory:
    """Content of corpora of token shards, and differences between files and manifests.

    `corpora` maps each corpus to facts from its manifest: the digest, `_DECISION_KEYS`, `_COUNT_KEYS`, `shards` and
    `lost_text`. `shards` has file, rows and sha256 of each shard. `lost_text` has the tokenizer's losses; it is empty
    for a lossless tokenizer, and None if the shards were built by a version that did not count losses. A corpus without
    a readable manifest is only in `differences`.
    """

    corpora: Mapping[str, Mapping[str, Any]]
    differences: Sequence[Difference]

    @property
    def tokens(self) -> int:
        """Number of tokens in the rows of all corpora."""
        return sum(corpus["tokens"] for corpus in self.corpora.values())

    def to_json(self) -> dict[str, Any]:
        """Return the inventory as JSON values."""
        differences = [asdict(difference) for difference in self.differences]
        return {"tokens": self.tokens, "corpora": dict(self.corpora), "differences": differences}

    def to_markdown(self) -> str:
        """Return a Markdown page with corpora, licences, lost text and differences."""
        corpora, licences, lost = list[list[str | int]](), list[list[str | int]](), list[list[str | int]]()
        for name, corpus in self.corpora.items():
            digest, shards = code(corpus["digest"]), len(corpus["shards"])
            corpora.append([code(name), corpus["sequences"], corpus["tokens"], corpus["documents"], shards, digest])
            for tag, tokens in sorted(corpus["license_tokens"].items(), key=lambda item: (-item[1], item[0])):
                licences.append([code(name), code(tag), tokens])
            for losses in (corpus[LOST_TEXT] or {}).values():
                share = f"{float(losses['fraction']):.3%}"
                lost.append([code(name), losses["unknown_tokens"], losses["lost_characters"], share])
        lost_head = ["corpus", "unknown tokens", "lost characters", "share"]
        differences = [[code(item.corpus), code(item.file), code(item.reason)] for item in self.differences]
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


def take_inventory(corpora: Mapping[str, Path], threads: int = 4) -> Inventory:
    """Make an inventory; compare names, sizes and hashes of files with the manifests.

    `corpora` are folders of token shards by corpus name; `threads` folders are read at the same time.

    Raises:
        UsageError: No folder has an artifact.
    """
    figures: dict[str, Mapping[str, Any]] = {}
    differences: list[Difference] = []
    missing: list[UsageError] = []
    names = sorted(corpora)
    with ThreadPoolExecutor(threads) as pool:
        readings = pool.map(_read_corpus, [corpora[name] for name in names])
        for name, (manifest, damage) in zip(names, readings, strict=True):
            if isinstance(manifest, Manifest):
                figures[name] = _manifest_figures(manifest)
            elif isinstance(manifest, UsageError):
                missing.append(manifest)
            tokens = figures.get(name, {}).get("tokens", 0)
            logger.info("%s: %s tokens, %d differences", name, f"{tokens:,}", len(damage))
            differences += [Difference(name, item.path, item.what) for item in damage]
    if missing and len(missing) == len(corpora):
        missing[0].fix = "build the recipe first, such as with `corpusmill run`"
        raise missing[0]
    return Inventory(figures, differences)


def _read_corpus(folder: Path) -> tuple[Manifest | InputError, list[Damage]]:
    """Return a folder's manifest, or the error of reading it, and damage to its files."""
    try:
        manifest = require_manifest(folder)
        return manifest, [item for item in verify(Artifact(folder, manifest)) if isinstance(item, Damage)]
    except InputError as error:
        return error, [Damage(MANIFEST_FILE, error.what)]


def _manifest_figures(manifest: Manifest) -> dict[str, Any]:
    identity = manifest.identity
    stored = {file.path: file.sha256 for file in manifest.storage}
    return {
        "digest": manifest.digest,
        **{key: identity.decisions[key] for key in _DECISION_KEYS},
        **{key: identity.counts[key] for key in _COUNT_KEYS},
        LOST_TEXT: manifest.provenance.get(LOST_TEXT),
        "shards": [
            {"file": file.path, "rows": file.rows, "sha256": stored.get(file.path)}
            for file in identity.files
            if file.path.endswith(SHARD_SUFFIX)
        ],
    }


def build_inventory(staging: StagingDir, corpora: Mapping[str, Artifact], settings: RunSettings) -> BuildResult:
    """Write inventory.json and inventory.md; InputError if a file is damaged."""
    folders = {name: corpus.folder for name, corpus in corpora.items()}
    inventory = take_inventory(folders, threads=max(1, settings.workers))
    if inventory.differences:
        first, more = inventory.differences[0], len(inventory.differences) - 1
        what = f"{first.reason}{f' (and {more:,} more)' if more else ''}"
        raise InputError(what, folders[first.corpus] / first.file, "restore the file, or rebuild the token shards")
    contents = {
        INVENTORY_JSON: json.dumps(inventory.to_json(), sort_keys=True, indent=1).encode() + b"\n",
        INVENTORY_MD: inventory.to_markdown().encode(),
    }
    files = [staging.write(name, data) for name, data in contents.items()]
    shards = sum(len(corpus["shards"]) for corpus in inventory.corpora.values())
    return BuildResult(files, {"corpora": len(corpora), "shards": shards, "tokens": inventory.tokens}, {})
