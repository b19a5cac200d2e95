"""Files that a draft of a source leaves out, with the reasons."""

import codecs
import itertools
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from pipeline_assets.corpus.formats.codecs import detect_codec
from pipeline_assets.corpus.formats.compression import Codec
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.file_patterns import real_folder_and_parents, utf8_name, walk_folder
from pipeline_assets.corpus.readers.lines import UTF16_MARKS, read_blocks
from pipeline_assets.corpus.readers.source_folder import HEAD_BYTES, SourceFile, has_files, open_source
from pipeline_assets.corpus.readers.source_formats import detect_format, strip_compression_suffix
from pipeline_assets.corpus.readers.whole_files import WHOLE_FILE_FORMATS, extractor_versions, whole_file_rows
from pipeline_assets.spine.files import file_sha256

_HEAD_BYTES = 1 << 16
_MAX_NAMES = 5
FILE_PATH, FOLDER_PATH = "\0file", "\0folder"
"""In a command of a reason, these stand for the path of the file, and of its folder."""
_ARROW_MAGIC = b"ARROW1"  # of the file format of Arrow; its stream format has none
_OFFICE_COMMAND = f"convert it: soffice --headless --outdir {FOLDER_PATH} --convert-to"
_TO_PARQUET = (
    "convert it: python -c 'import sys, pyarrow.{0}, pyarrow.parquet; "
    f"""pyarrow.parquet.write_table(pyarrow.{{1}}, sys.argv[1] + ".parquet")' {FILE_PATH}"""
)
_CONVERSIONS = {
    **dict.fromkeys((".doc", ".odt", ".rtf"), f"{_OFFICE_COMMAND} docx {FILE_PATH}"),
    **dict.fromkeys((".xls", ".xlsx", ".ods"), f"{_OFFICE_COMMAND} csv {FILE_PATH}"),
    **dict.fromkeys((".ppt", ".pptx", ".odp"), f"{_OFFICE_COMMAND} pdf {FILE_PATH}"),
    ".epub": f"convert it: pandoc {FILE_PATH} --output {FILE_PATH}.html",
    **dict.fromkeys((".tar", ".tgz", ".tbz2", ".txz"), f"unpack it: tar -xf {FILE_PATH} -C {FOLDER_PATH}"),
    ".zip": f"unpack it: unzip {FILE_PATH} -d {FOLDER_PATH}",
    ".feather": _TO_PARQUET.format("feather", "feather.read_table(sys.argv[1])"),
    ".orc": _TO_PARQUET.format("orc", "orc.read_table(sys.argv[1])"),
    ".arrow": _TO_PARQUET.format("ipc", "ipc.open_stream(sys.argv[1]).read_all()"),  # files of `datasets`
}
LeftOutFiles = defaultdict[tuple[str, str], list[str]]
"""Names of the files that a draft leaves out, by suffix and reason."""


def _suffix(file: SourceFile) -> str:
    return PurePosixPath(strip_compression_suffix(file.name)).suffix.lower()


def leave_out(file: SourceFile, reason: str, left_out: LeftOutFiles) -> None:
    left_out[_suffix(file), reason].append(file.name)


def describe_left_out(left_out: LeftOutFiles, folder: Path) -> list[str]:
    """Return a line for each suffix and reason, with up to five file names.

    Commands in a reason work in any current folder: they name the file by its path below `folder`. For several files
    they name `FILE` and `FOLDER`.
    """
    return [
        f"{_format_names(names, f'{suffix} files'.strip())} "
        f"({_complete_commands(reason, folder / names[0] if len(names) == 1 else None)})"
        for (suffix, reason), names in left_out.items()
    ]


def _complete_commands(reason: str, path: Path | None) -> str:
    file, folder = ("FILE", "FOLDER") if path is None else (_quote_path(path), _quote_path(path.parent))
    return reason.replace(FILE_PATH, file).replace(FOLDER_PATH, folder)


def _quote_path(path: Path) -> str:
    """Quote a path as an argument of a command, never as one of its options."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def unreadable_reason(file: SourceFile) -> str | None:
    """Return why a file cannot be read in its format; None if it seems readable.

    Only the first 64 KiB are examined. HTML, notebook, DOCX and PDF files of at most 64 KiB are parsed. Raise
    UsageError if the format needs a package that is not installed.
    """
    with open_source(file) as opened:
        codec = detect_codec(opened.read(HEAD_BYTES))
        opened.seek(0)
        head = next(read_blocks(opened, file), b"")[:_HEAD_BYTES] if file.bytes else b""
    format_, suffix = detect_format(file.name), _suffix(file)
    extractor_versions([format_])
    if not head:
        return "empty"
    if format_ in WHOLE_FILE_FORMATS and file.bytes <= _HEAD_BYTES:
        [(_, row)] = whole_file_rows(file, format_)
        return f"{row.reason}: {row.detail}" if isinstance(row, Fault) else None
    fault = None if format_ in ("parquet", "html", "docx", "pdf") else _encoding_fault(head, suffix, codec)
    if codec is None and fault and fault.startswith("not UTF-8") and file.name != strip_compression_suffix(file.name):
        return "neither compressed nor UTF-8; fetch it again"
    if format_ is not None:
        return fault
    hint = f", {fault.partition(';')[0]}" if fault else ""
    if suffix and not fault:
        ending = file.name[len(strip_compression_suffix(file.name)) - len(suffix) :]
        hint = f"; to read it as text, add `**/*{ending}` to `files`, and set `text_endings: [{suffix}]`"
    conversion = _CONVERSIONS.get(".feather" if head.startswith(_ARROW_MAGIC) else suffix)
    if codec and conversion and "tar -xf" not in conversion:  # tar decompresses its input
        return f"decompress it: {codec.name} -dc < {FILE_PATH} > {FILE_PATH}{suffix}"
    return conversion or f"unknown format{hint}"


def jq_command(file: SourceFile, *arguments: str) -> str:
    """Return a command that runs jq on a file, and writes the output next to it.

    It is a part of a reason, in which `FILE_PATH` stands for the file.
    """
    with open_source(file) as opened:
        codec = detect_codec(opened.read(HEAD_BYTES))
    pipe, source = _pipe_and_source(codec)
    return f"{pipe}{shlex.join(['jq', '-c', *arguments])} {source}> {FILE_PATH}.jsonl"


def _pipe_and_source(codec: Codec | None) -> tuple[str, str]:
    """Return (pipe before a command, path after it) for reading a file; one is empty."""
    return (f"{codec.name} -dc < {FILE_PATH} | ", "") if codec else ("", f"{FILE_PATH} ")


def _encoding_fault(head: bytes, suffix: str, codec: Codec | None) -> str | None:
    pipe, source = _pipe_and_source(codec)
    output = f"-t UTF-8 {source}-o {FILE_PATH}.utf8{suffix}"
    if head.startswith(UTF16_MARKS):
        encoding = "UTF-32" if head.startswith(codecs.BOM_UTF32_LE) else "UTF-16"
        return f"{encoding}; convert it: {pipe}iconv -f {encoding} {output}"
    nul_characters = head.count(b"\0")
    if nul_characters > max(1, len(head) // 100):
        return "binary"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < _HEAD_BYTES)
    except UnicodeDecodeError:
        return f"not UTF-8; convert it, such as: {pipe}iconv -f WINDOWS-1252 {output}"
    output = f"{source and '< '}{source}> {FILE_PATH}.text{suffix}"
    return f"NUL characters; remove them: {pipe}tr -d '\\000' {output}" if nul_characters else None


def scan_hidden_entries(folder: Path) -> tuple[bool, list[str]]:
    """Return (whether a folder has visible files, sorted list of hidden entries).

    Visible files in linked folders count. Hidden entries are relative to the folder; hidden folders end with a slash.
    """
    is_filled, hidden = False, list[str]()
    for parent, folders, names in walk_folder(folder):
        base, entries = parent.relative_to(folder), [*(f"{name}/" for name in folders), *names]
        hidden += [(base / name).as_posix() + "/" * name.endswith("/") for name in entries if name.startswith(".")]
        folders[:] = [name for name in folders if not name.startswith(".")]
        is_filled |= any(not name.startswith(".") for name in names)
        linked = (path for name in folders if (path := parent / name).is_symlink())  # which `walk` does not enter
        is_filled = is_filled or any(map(has_files, linked))
    return is_filled, sorted(hidden)


def unreadable_entries(folder: Path, names: Sequence[str] | None) -> list[str]:
    """List the paths below a folder, relative to it, that no reader can open.

    These are broken links, links to a folder that contains them, special files such as pipes, and non-UTF-8 names. With
    `names`, which are relative paths, only these are examined.
    """
    if names is None:
        entries = [parent / name for parent, folders, files in walk_folder(folder) for name in (*folders, *files)]
    else:
        entries = [folder / name for name in names]
    odd = {entry for entry in entries if not (entry.is_file() or entry.is_dir())}
    odd |= {entry for entry in entries if utf8_name(entry.name) != entry.name}
    links = (entry for entry in {*entries} - odd if entry.is_symlink())
    odd |= {link for link in links if link.resolve() in real_folder_and_parents(link.parent)}
    return sorted(entry.relative_to(folder).as_posix() for entry in odd)


def describe_links_and_copies(files: Sequence[SourceFile]) -> Iterator[str]:
    """Yield a message if files are links, and one if files have equal contents."""
    paths_by_name = {file.name: (file.path, *file.path.parents[: file.name.count("/")]) for file in files}
    if links := [name for name, paths in paths_by_name.items() if any(path.is_symlink() for path in paths)]:
        yield f"links are followed: {_format_names(links)}"
    by_size, originals, copies = defaultdict[int, list[SourceFile]](list), dict[str, str](), list[str]()
    for file in files:
        by_size[file.bytes].append(file)
    for file in itertools.chain.from_iterable(same for same in by_size.values() if len(same) > 1):
        original = originals.setdefault(file_sha256(file.path), file.name)
        copies += [] if original == file.name else [f"{file.name} equals {original}"]
    if copies:
        yield f"copies, which `dedup` drops: {_format_names(copies)}"


def _format_names(names: Sequence[str], noun: str = "") -> str:
    """Format up to five of the names, usually after a count of all names.

    The count is omitted for a single name, and for two to five names if `noun` is empty.
    """
    few, shown = len(names) <= _MAX_NAMES, ", ".join(names[:_MAX_NAMES])
    if len(names) == 1 or (few and not noun):
        return shown
    return f"{len(names):,} {noun or 'files'}{':' if few else ', such as'} {shown}"
