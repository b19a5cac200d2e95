"""Unreadable files of a local source: rejects, up to a limit."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill
from refusals import refusal
from stage_a_build import INLINE, ledger, local_source, normalize, parse_recipe

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.normalize.sources import LocalSource, check_folders, to_source_folder
from pipeline_assets.corpus.readers.file_patterns import is_excluded
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import ChangedFileError, InputError
from pipeline_assets.spine.rejects import Reject


def rows(file: str, count: int = 20) -> bytes:
    return b"".join(
        b'{"text": "Row %d of %b.", "key": "%b-%d"}\n' % (n, file.encode(), file.encode(), n) for n in range(count)
    )


def build_damaged_parquet(folder: Path) -> bytes:
    """Build Parquet with a damaged second row group, read after the first."""
    table = pa.table({"text": [f"Row {n} of the table." for n in range(40)], "key": [f"t-{n}" for n in range(40)]})
    pq.write_table(table, folder / "made", row_group_size=20, compression="none", use_dictionary=False)
    content = bytearray((folder / "made").read_bytes())
    (folder / "made").unlink()
    position = content.index(b"Row 30 of")
    content[position - 200 : position] = b"\xff" * 200
    return bytes(content)


def build_cut(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)[:-9]


MAKERS: dict[str, tuple[str, Callable[[Path], bytes], str]] = {
    "cut gzip": ("bad.jsonl.gz", lambda _: build_cut(rows("bad")), "the gzip stream is truncated"),
    "wrong checksum": (
        "bad.jsonl.gz",
        lambda _: gzip.compress(rows("bad"), mtime=0)[:-8] + b"12345678",
        "the gzip stream is damaged (",
    ),
    "cut line": ("bad.jsonl", lambda _: rows("bad")[:-30], "the last line, line 20 (byte "),
    "cut array": ("bad.json", lambda _: b'[{"text": "bad"},\n{"text": "b', "the file is truncated within the JSON val"),
    "cut csv": ("bad.csv.gz", lambda _: build_cut(b"text\nbad\n" * 99), "the gzip stream is truncated"),
    "no bytes": ("bad.jsonl.gz", lambda _: b"", "the compressed file has 0 bytes"),
    "csv without bytes": ("bad.csv.xz", lambda _: b"", "the compressed file has 0 bytes"),
    "page without bytes": ("bad.html.zst", lambda _: b"", "the compressed file has 0 bytes"),
    "csv header": ("bad.csv", lambda _: b"text,text\nbad,a\n", "two columns have the name `text`"),
    "utf-16": ("bad.jsonl", lambda _: rows("bad").decode().encode("utf-16"), "the file is UTF-16"),
    "no parquet": ("bad.parquet", lambda _: b"<html>", "the Parquet footer cannot be read ("),
    "damaged pages": ("bad.parquet", build_damaged_parquet, "row groups "),
    "parquet by another name": ("bad.jsonl", lambda _: b"PAR1" + b"x" * 20, "the file is Parquet"),
}


def build_source(root: Path, contents: dict[str, bytes], **changes: object) -> dict[str, Any]:
    section = local_source(
        root, "notes", [], **{"files": ["*"], "text_unit": "file", "columns": {"text": "text"}, **changes}
    )
    folder = Path(section["path"])
    (folder / "rows.jsonl").unlink()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return section


def good_files(count: int) -> dict[str, bytes]:
    return {f"good-{n}.jsonl": rows(f"good-{n}", 40) for n in range(count)}


def read_rejects(normalized: Artifact) -> list[Reject]:
    return list(read_structs(normalized.path(REJECTS_FILE), Reject))


def read_texts(normalized: Artifact) -> list[str]:
    shards = sorted((normalized.folder / "shards").iterdir())
    return [document.text for shard in shards for document in read_structs(shard, Document)]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("shard_bytes", [300, 1 << 26])
def test_an_unreadable_file_is_one_reject_without_kept_rows(kind: str, shard_bytes: int, tmp_path: Path) -> None:
    name, build_content, message = MAKERS[kind]
    (tmp_path / "bad").mkdir()
    bad = build_content(tmp_path / "bad")
    recipe = parse_recipe(build_source(tmp_path, good_files(3) | {name: bad}), shard_text_bytes=shard_bytes)

    normalized = normalize(recipe, tmp_path)

    [reject] = read_rejects(normalized)
    assert (reject.file, reject.row, reject.reason) == (name, 0, "unreadable_file")
    assert reject.detail.startswith(message)
    assert ledger(normalized) == {"in": 121, "out": 120, "dropped": {}, "rejected": {"unreadable_file": 1}}
    assert not any("bad" in text or "table" in text for text in read_texts(normalized))


def test_shards_with_unreadable_files_do_not_depend_on_workers(tmp_path: Path) -> None:
    bad = {"cut.jsonl.gz": MAKERS["cut gzip"][1](tmp_path), "cut.jsonl": rows("cut", 10)[:-3]}
    recipe = parse_recipe(build_source(tmp_path, good_files(6) | bad, max_reject_fraction=0.5), shard_text_bytes=300)

    digests = [
        normalize(recipe, tmp_path / name, engine=engine).manifest.digest
        for name, engine in (("inline", INLINE), ("workers", RunSettings(workers=2)))
    ]

    assert digests[0] == digests[1]


def test_two_unreadable_files_or_a_large_one_stop_the_source_and_are_named(tmp_path: Path) -> None:
    bad = {"bad-1.parquet": b"x" * 50, "bad-2.parquet": b"x" * 50}
    two = parse_recipe(build_source(tmp_path / "two", good_files(6) | bad))
    large = parse_recipe(build_source(tmp_path / "large", {**good_files(3), "bad.parquet": b"x" * 90_000}))

    message = refusal(lambda: normalize(two, tmp_path / "two"), InputError)

    assert "/stage_a/mixed/normalized/notes: 2 of 8 files cannot be read, 0.8% of the bytes, above" in message
    assert "(the first: bad-1.parquet: the Parquet footer cannot be read (" in message
    assert message.endswith(
        "repair these files, list them in `exclude` in the recipe, or set `max_reject_fraction` in the recipe to 0.01 "
        "to lose them"
    )
    assert "1 of 4 files cannot be read, 9" in refusal(lambda: normalize(large, tmp_path / "large"), InputError)


@pytest.mark.parametrize(
    ("bad", "good", "fraction", "is_built"),
    [
        (5, 10, 0.001, True),  # five rows of fifteen are a third
        (6, 30, 0.001, False),
        (5, 9, 0.001, False),  # more than a third
        (1, 1, 0.001, False),
        (1, 2, 0.001, True),
        (1, 100, 0, False),  # 0 means none
        (6, 6, 0.5, True),
    ],
)
def test_a_small_source_may_lose_five_rows_but_no_more_than_a_third(
    bad: int, good: int, fraction: float, is_built: bool, tmp_path: Path
) -> None:
    contents = {f"good-{n}.txt": b"A text." + str(n).encode() for n in range(good)}
    contents |= {f"bad-{n}.txt": b"caf\xe9 %d" % n if n % 2 else "A text.".encode("utf-16") for n in range(bad)}
    recipe = parse_recipe(build_source(tmp_path, contents, max_reject_fraction=fraction))

    if is_built:
        assert ledger(normalize(recipe, tmp_path))["in"] == good + bad
    else:
        rejected = f"{bad} of {bad + good} rows {'is' if bad == 1 else 'are'} rejected"
        with pytest.raises(InputError, match=rejected):
            normalize(recipe, tmp_path)


def test_a_file_changed_after_hashing_is_an_error_not_a_reject(tmp_path: Path) -> None:
    section = build_source(tmp_path, good_files(5))
    recipe = parse_recipe(section)
    normalize(recipe, tmp_path)
    changed = Path(section["path"]) / "good-1.jsonl"
    stamp = changed.stat()
    changed.write_bytes(changed.read_bytes()[:-2] + b"]\n")  # same size, another hash
    os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    (tmp_path / "stage_a/mixed/normalized/notes").rename(tmp_path / "old")

    target = recipe.target("stage_a/normalized", "notes")

    with pytest.raises(ChangedFileError, match=r"sha256 is .*the file changed after it was hashed"):
        target.kind.build(target, Run(tmp_path, INLINE, None))


@pytest.mark.parametrize(
    ("name", "pattern", "is_out"),
    [
        ("drafts/a.md", "drafts", True),
        ("drafts/b/a.md", "drafts/", True),
        ("drafts/b/a.md", "drafts/*", True),
        ("old/drafts/a.md", "drafts", False),
        ("old/drafts/a.md", "**/drafts", True),
        ("a.tmp", "**/*.tmp", True),
        ("x/y/a.tmp", "**/*.tmp", True),
        ("x/.hidden/a.md", "**/.*", True),
        ("x/a.tmp", "*.tmp", False),
        ("x/a.md", "**/*.tmp", False),
        ("a.md", "**", True),
        ("[a].md", "[[]a].md", True),
    ],
)
def test_exclude_names_files_and_folders(name: str, pattern: str, is_out: bool) -> None:
    assert is_excluded(name, [pattern]) is is_out


def test_thousands_of_excluded_names_are_matched_next_to_patterns() -> None:
    excluded = [f"notes/{number}.md" for number in range(3000)] + ["drafts", "**/*.tmp"]
    names = [f"notes/{number}.md" for number in range(6000)] + ["drafts/a.md", "x/a.tmp", "x/a.md", "notes"]

    kept = [name for name in names if not is_excluded(name, excluded)]

    assert kept == [*(f"notes/{number}.md" for number in range(3000, 6000)), "x/a.md", "notes"]


def test_excluded_files_are_not_inputs_and_the_key_is_optional_content(tmp_path: Path) -> None:
    section = build_source(tmp_path, good_files(3) | {"bad.jsonl": b"[", "bad.parquet": b"x"})
    plain = LocalSource.model_validate(section)
    with_exclude = LocalSource.model_validate(section | {"exclude": "bad.*\n"})

    assert "exclude" not in plain.output_content(1)
    assert [file.name for file in to_source_folder(with_exclude).files()] == [f"good-{n}.jsonl" for n in range(3)]
    normalized = normalize(parse_recipe(section | {"exclude": ["bad.*"]}), tmp_path)
    assert ledger(normalized)["in"] == 120
    (Path(section["path"]) / "bad.zip").write_bytes(b"excluded, too")
    normalize(parse_recipe(section | {"exclude": ["bad.*"]}), tmp_path)  # no file of the source changed


def test_a_source_whose_files_are_all_excluded_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    section = build_source(tmp_path, good_files(2), exclude="good-*")

    [error] = check_folders({"name": "mixed", "sources": [section]}, tmp_path)

    assert (error.location, error.what) == (("sources", 0, "exclude"), "all files of the source are excluded")


def test_run_lists_unread_files_in_its_last_lines(corpusmill: Corpusmill, tmp_path: Path) -> None:
    contents = {f"good-{n}.txt": b"A text of number %d." % n for n in range(9)}
    contents |= {"cut.md.gz": build_cut(b"A text. " * 99), "latin.txt": b"caf\xe9", "empty.txt": b""}
    section = build_source(tmp_path, contents)
    recipe = {"system": "stage_a", "name": "mixed", "sources": [section | {"columns": None}]}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mixed.yaml").write_text(json.dumps(recipe))

    for _ in range(2):  # also if everything is up to date
        result = corpusmill("run", "mixed", "--data", str(tmp_path))
        assert result.returncode == 0
        assert result.stderr.splitlines()[-2:] == [
            "mixed/notes: cut.md.gz was not read: the gzip stream is truncated",
            "mixed/notes: latin.txt was not read: unexpected end of data at byte 3",
        ]
