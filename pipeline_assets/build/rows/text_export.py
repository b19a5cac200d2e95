"""Exports of documents as one plain file of JSON lines or of text lines."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from pipeline_assets.corpus.formats.compressors import compressor_for
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.partial_documents import DocumentText
from pipeline_assets.corpus.readers.source_formats import FORMATS, Format, detect_format
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.sealed_folder import find_artifact_above

_decoder = msgspec.json.Decoder(DocumentText)
_ASCII_BLANKS = " \t\v\f"  # a line of these is blank to readers of lines


def write_ndjsonl(corpus: Artifact, path: Path) -> int:
    """Write documents as JSON lines, compressed as in `write_txt`; return the count."""
    return _write_converted(corpus, path, lambda lines: lines)


def write_txt(corpus: Artifact, path: Path) -> int:
    """Write each text as one line; return the number of lines.

    Line breaks become spaces. Blank texts are omitted, so that a recipe with `text_unit: line` reads each line as one
    document. The file is compressed if its name ends with .gz, .bz2, .xz, .zst or .zstd. The file gets its name only
    when it is complete. Raise UsageError if `path` is a folder or is in a sealed artifact.
    """

    def convert(lines: bytes) -> bytes:
        texts = (" ".join(document.text.splitlines()) for document in _decoder.decode_lines(lines))
        return "".join(f"{text}\n" for text in texts if text.strip(_ASCII_BLANKS)).encode()

    return _write_converted(corpus, path, convert)


def check_output_format(path: Path, option: str, format_: Format) -> None:
    """Check an output file; UsageError if its suffix belongs to another format."""
    check_output_file(path)
    if detect_format(path.name) not in (None, format_):
        endings = ", ".join(suffix for suffix, known in FORMATS.items() if known == format_)
        raise UsageError(f"must end with {endings}, compressed or not, got {path.name}", option, "rename the file")


def check_output_file(path: Path) -> None:
    """Raise UsageError if an output file is a folder or is in a sealed artifact."""
    if path.is_dir():
        raise UsageError("output file is a folder", path, "name a file")
    if (artifact := find_artifact_above(path)) is not None:
        raise UsageError(f"output file is in the sealed artifact {artifact}", path, "choose another folder")


def _write_converted(corpus: Artifact, path: Path, convert: Callable[[bytes], bytes]) -> int:
    check_output_file(path)
    durable.make_folder(path.absolute().parent)
    written, stream = 0, compressor_for(path.name)
    with durable.DurableFile(path) as file:
        for shard in rows_by_shard(corpus):
            for lines in read_line_blocks(corpus.path(shard)):
                data = convert(lines)
                file.write(stream.compress(data))
                written += data.count(b"\n")
        file.write(stream.flush())
    return written
