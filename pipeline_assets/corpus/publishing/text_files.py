"""Documents of a sealed corpus as one plain file, for programs that read no more than that."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.durable import DurableFile, make_folder
from pipeline_assets.corpus.spine.errors import UsageError

Form = Callable[[bytes], bytes]
_decoder = msgspec.json.Decoder(DocumentText)


def write_ndjsonl(corpus: Artifact, path: Path) -> int:
    """Documents as JSON, a line each; how many there are. Errors as `write_txt`."""
    return _write(corpus, path, lambda lines: lines)


def write_txt(corpus: Artifact, path: Path) -> int:
    """Texts, a line each, with blanks for what breaks lines in them; how many there are. The file appears when it is
    whole.

    Raises:
        UsageError: `path` is a folder.
    """
    return _write(corpus, path, lambda lines: "".join(f"{line}\n" for line in _texts(lines)).encode())


def _texts(lines: bytes) -> Iterator[str]:
    return (" ".join(document.text.splitlines()) for document in _decoder.decode_lines(lines))


def refuse_folder(path: Path) -> None:
    """Raises UsageError where a folder lies in the place of the file: for who asks before there is a corpus."""
    if path.is_dir():
        raise UsageError("this is a folder", path, "name a file")


def _write(corpus: Artifact, path: Path, form: Form) -> int:
    refuse_folder(path)
    make_folder(path.absolute().parent)
    documents = shard_rows(corpus)
    with DurableFile(path) as file:
        for shard in documents:
            for lines in read_line_blocks(corpus.path(shard)):
                file.write(form(lines))
    return sum(documents.values())
