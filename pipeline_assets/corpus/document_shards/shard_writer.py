"""A Document shard as a source's rows become one: its documents, their ids, its rejects and its counts."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec

from pipeline_assets.corpus import doc_ids
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.sealing import WORK

CONVERTED = f"{WORK}/converted"
IDS = f"{WORK}/ids"
REJECTS = f"{WORK}/rejects"
NORMALISATION = "text stays as it came; only its NUL characters (U+0000) are removed"
_encoder = msgspec.json.Encoder()


class ShardWriter:
    """Writes one shard; `receipt` is there once the block has ended without error.

    Attributes:
        counts: `documents` and `bytes` of text written, `rejected/<reason>`, `nul_documents`,
            `nul_characters_removed`, and what the caller counts.
    """

    def __init__(self, folder: BuildFolder, name: str, zstd_level: int) -> None:
        self.counts: dict[str, int] = {}
        self._folder, self._name, self._zstd_level = folder, name, zstd_level
        self._rejects: list[Reject] = []
        self._doc_ids: list[str] = []
        self._file = f"{CONVERTED}/{name}{SUFFIX}"
        self._writer = JsonlZstWriter(folder.path(self._file), zstd_level)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, traceback)

    def count(self, name: str, more: int = 1) -> None:
        """Nothing isn't counted."""
        if more:
            self.counts[name] = self.counts.get(name, 0) + more

    def reject(self, reject: Reject) -> None:
        """Keeps a row aside."""
        self._rejects.append(reject)
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
        self._doc_ids += [document.doc_id for document in documents]
        texts = (document.text for document in documents)
        self.count("documents", len(documents))
        self.count("bytes", sum(len(text) if text.isascii() else len(text.encode("utf-8")) for text in texts))
        self._writer.write_lines(_encoder.encode_lines(documents), len(documents))

    def receipt(self) -> Receipt:
        """Files, in this order: the documents, their ids as `doc_ids` reads them, the rejects."""
        ids_name, rejects_name = f"{IDS}/{self._name}", f"{REJECTS}/{self._name}{SUFFIX}"
        size, sha256 = doc_ids.write_ids(self._folder.path(ids_name), self._doc_ids)
        ids = OutputFile(ids_name, len(self._doc_ids), size, sha256, sha256)
        rows = [reject.to_json() for reject in self._rejects]
        rejects = write_rows(self._folder.path(rejects_name), rejects_name, rows, self._zstd_level)
        return Receipt([self._writer.output(self._file), ids, rejects], self.counts)
