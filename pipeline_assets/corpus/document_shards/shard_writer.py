"""A Document shard as a source's rows become one: its documents, their ids, its rejects and its counts."""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import msgspec

from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.sealing import WORK

CONVERTED = f"{WORK}/converted"
IDS = f"{WORK}/ids"
REJECTS = f"{WORK}/rejects"
_encoder = msgspec.json.Encoder()


class ShardWriter:
    """Writes one shard; `receipt` is there once the block has ended without error. Nothing is held back but a zstd
    block of each file, and the ids of one sorted run.

    Attributes:
        counts: `documents` and `bytes` of text written, `rejected/<reason>`, `nul_documents`,
            `nul_characters_removed`, and what the caller counts.
    """

    def __init__(self, folder: BuildFolder, name: str, zstd_level: int) -> None:
        self.counts: dict[str, int] = {}
        self._names = f"{CONVERTED}/{name}{SUFFIX}", f"{IDS}/{name}", f"{REJECTS}/{name}{SUFFIX}"
        documents, ids, rejects = map(folder.path, self._names)
        self._documents, self._ids = JsonlZstWriter(documents, zstd_level), IdsWriter(ids)
        self._rejects = JsonlZstWriter(rejects, zstd_level)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for writer in (self._rejects, self._ids, self._documents):
            self._open.enter_context(writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, traceback)

    def count(self, name: str, more: int = 1) -> None:
        """Nothing isn't counted."""
        if more:
            self.counts[name] = self.counts.get(name, 0) + more

    def reject(self, reject: Reject) -> None:
        """Keeps a row aside."""
        self._rejects.write_lines(msgspec.json.encode(reject.to_json()) + b"\n", 1)
        self.count(f"rejected/{reject.reason}")

    def without_nul(self, text: str) -> str:
        """The text without its NUL characters, which are counted; empty where there is nothing else."""
        if "\0" not in text:
            return text
        plain = text.replace("\0", "")
        if plain:
            self.count("nul_documents")
            self.count("nul_characters_removed", len(text) - len(plain))
        return plain

    def write(self, documents: Sequence[Document]) -> None:
        """The next documents, in order."""
        if not documents:
            return
        self._ids.add(document.doc_id for document in documents)
        texts = (document.text for document in documents)
        self.count("documents", len(documents))
        self.count("bytes", sum(len(text) if text.isascii() else len(text.encode("utf-8")) for text in texts))
        self._documents.write_lines(_encoder.encode_lines(documents), len(documents))

    def receipt(self) -> Receipt:
        """Files, in this order: the documents, their ids as `doc_ids` reads them, the rejects."""
        documents, ids, rejects = self._names
        files = [self._documents.output(documents), self._ids.output(ids), self._rejects.output(rejects)]
        return Receipt(files, self.counts)
