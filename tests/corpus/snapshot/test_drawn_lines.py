"""JSON lines on a hub: the first rows of files, up to the required amount."""

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from healing_build import DATASET, build_snapshot
from healing_build import parse_recipe as healing_recipe
from real_samples import some
from refusals import refusal
from stage_a_build import ledger, normalize, only, recipe_with

from pipeline_assets.build.pins.source_pin import list_inputs
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.normalize.sources import HubSource
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.snapshot import line_prefixes
from pipeline_assets.corpus.snapshot.convert import convert_shard
from pipeline_assets.corpus.snapshot.fetch import fetch_pieces, plan_shards
from pipeline_assets.corpus.snapshot.line_prefixes import Prefix, block_ranges, draw_prefixes
from pipeline_assets.corpus.snapshot.listing import pin_sample
from pipeline_assets.corpus.snapshot.plan import plan_snapshot
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import StagingView

Read = Callable[[Artifact], list[dict[str, Any]]]
Normalize = Callable[..., Artifact]
PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "jsonl": lambda content: content,
    "json.gz": lambda content: gzip.compress(content, mtime=0),
    "jsonl.zst": zstandard.ZstdCompressor().compress,
}
COLUMNS = {"text": "text", "id": "id", "created_at": None, "license": None}
SECTION = {"columns": COLUMNS, "rules": [], "language": None, "amount": {"files": 9}, "max_reject_fraction": "1"}


def lines(rows: Iterable[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def pages(first: int, count: int) -> list[dict[str, Any]]:
    return [{"text": f"Text of page {number}.", "id": f"page-{number}"} for number in range(first, first + count)]


@pytest.fixture
def hub_source(publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path) -> Normalize:
    """Return a function that normalises published files; keywords change the section."""

    def run(
        published: Mapping[str, bytes], engine: RunSettings | None = None, root: str = "data", **changes: object
    ) -> Artifact:
        section = SECTION | {"files": ["data/*"]} | changes
        recipe = recipe_with(tmp_path, only("pages", **section), publish(published))
        return normalize(recipe, tmp_path / root, hub_files, engine or RunSettings(workers=0))

    return run


@pytest.fixture
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each file give its share, however small."""
    monkeypatch.setattr(line_prefixes, "MIN_SHARE", {"documents": 1, "text_bytes": 1})


def test_one_file_of_lines_is_listed_with_its_missing_bytes(
    publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path
) -> None:
    content = lines(pages(0, 3))
    commit = publish({"data/a.jsonl": content})
    [raw, *_] = recipe_with(tmp_path, only("pages", **SECTION, files=["data/*"]), commit).targets()

    listing = list_inputs(raw, Run(tmp_path / "data", RunSettings(workers=0), hub_files))

    [entry] = listing.inputs
    assert entry["name"].endswith(":data/a.jsonl") and listing.missing_bytes is not None
    assert [*listing.missing_bytes.values()] == [len(content)]


@pytest.mark.parametrize("ending", PACKED)
def test_a_row_becomes_a_document_with_its_number_not_counting_blank_lines(
    ending: str, hub_source: Normalize, read_docs: Read
) -> None:
    content = lines([pages(0, 1)[0] | {"url": "http://a"}]) + b"\n  \n" + lines(pages(1, 1))

    snapshot = hub_source({f"data/a.{ending}": PACKED[ending](content)})

    documents = read_docs(snapshot)
    assert [(document["text"], document["doc_id"], document["meta"]["url"]) for document in documents] == [
        ("Text of page 0.", "page-0", "http://a"),
        ("Text of page 1.", "page-1", ""),
    ]
    places = [(document["meta"]["source_file"], document["meta"]["source_row"]) for document in documents]
    assert places == [(f"data/a.{ending}", 0), (f"data/a.{ending}", 1)]


@pytest.mark.parametrize(
    ("amount", "row_counts"), [({"documents": 7}, {7}), ({"text_bytes": 400}, {9, 10, 11}), ({"files": 1}, {10})]
)
def test_a_bounded_amount_is_met_by_the_first_rows_of_files_in_any_compression(
    amount: dict[str, int], row_counts: set[int], hub_source: Normalize, read_docs: Read, small_shares: None
) -> None:
    contents = [lines(pages(first, 10)) for first in (0, 10, 20)]

    snapshots = {
        ending: hub_source(
            {f"data/{ending}/{number}.{ending}": pack(content) for number, content in enumerate(contents)},
            files=[f"data/{ending}/*"],
            amount=amount,
            root=ending,
        )
        for ending, pack in PACKED.items()
    }

    for artifact in some(snapshots.values()):
        rows = [document["meta"]["source_row"] for document in read_docs(artifact)]
        assert len(rows) == ledger(artifact)["in"]
        assert len(rows) in row_counts  # of bytes, the row that reaches a file's share is its last
        starts = [number for number, row in enumerate(rows) if row == 0]
        assert rows == [number - max(start for start in starts if start <= number) for number in range(len(rows))]


def test_the_manifest_lists_every_file_with_the_rows_and_bytes_read(
    publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path, small_shares: None
) -> None:
    content = lines(pages(0, 10))
    recipe = recipe_with(
        tmp_path,
        only("pages", **SECTION | {"files": ["data/*"], "amount": {"documents": 15}}),
        publish({"data/a.jsonl": content, "data/b.jsonl.zst": PACKED["jsonl.zst"](content)}),
    )

    [source] = recipe.sources
    assert isinstance(source, HubSource)
    raw = pin_sample(hub_files, source.snapshot_recipe(1000), threads=1, log_every_s=60)

    assert [entry["name"].partition(":")[2] for entry in raw.external_inputs] == ["data/a.jsonl", "data/b.jsonl.zst"]
    groups = [group for entry in raw.external_inputs for group in entry["row_groups"]]
    assert [(group["number"], group["first_row"], group["start"]) for group in groups] == [(0, 0, 0)] * 2
    assert [group["stop"] for group in groups] == [entry["bytes"] for entry in raw.external_inputs]
    assert sum(group["rows"] for group in groups) == raw.counts["rows"] == 15


def test_long_files_make_up_for_short_ones() -> None:
    row_counts = {"short": 10, "long": 1000, "empty": 0}
    files = [HubFile(name, 100, f"sha256:{name}") for name in row_counts]
    requests: list[tuple[str, int | None]] = []

    def read(file: HubFile, limit: int | None) -> Prefix:
        requests.append((file.path, limit))
        rows = row_counts[file.path] if limit is None else min(row_counts[file.path], limit)
        return Prefix(rows, 10 * rows, 100, limit is None or rows < limit, True, ("text",))

    def draw(limit: int) -> dict[str, int]:
        progress = Progress("draw", 3, "files", 60)
        prefixes = draw_prefixes(files, read, "seed", ("documents", limit), 1, progress)
        return {path: prefix.rows for path, prefix in prefixes.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_prefixes, "MIN_SHARE", {"documents": 1})
        assert draw(300) == {"short": 10, "long": 290, "empty": 0}
        assert draw(5000) == row_counts
    requests.clear()
    assert sum(draw(300).values()) == 300
    assert len(requests) == 1 or requests[0][1] == 300  # a file gives a thousand rows before the next one is read


@pytest.mark.parametrize(
    ("window", "kept_rows", "rejected"),
    [
        (WHOLE_SHARD, [0, 1, 2, 3, 4], {5: "no_text"}),
        (Window(1, 4), [1, 2, 3], {}),
        (Window(3, None), [3, 4], {5: "no_text"}),
        (Window(6, None), [], {}),
        (Window(poison_rows=frozenset({1, 4})), [0, 2, 3], {1: "killed_worker", 4: "killed_worker", 5: "no_text"}),
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_window_reads_only_its_rows_and_rejects_poison_rows_unread(
    window: Window,
    kept_rows: list[int],
    rejected: dict[int, str],
    ending: str,
    publish: Callable[..., str],
    hub_files: HubFiles,
    tmp_path: Path,
    jsonl: Callable[[Path], list[dict[str, Any]]],
) -> None:
    rows = [*pages(0, 5), {"text": None, "id": "page-5"}]
    files: dict[str, bytes | pa.Table] = {"data/a.jsonl": lines(rows[:3]), "data/b.jsonl": lines(rows[3:])}
    places = [(file, row) for file in files for row in range(3)]
    if ending == "parquet":
        files, places = {"data/a.parquet": pa.Table.from_pylist(rows)}, [("data/a.parquet", row) for row in range(6)]
    commit = publish(files, rows_per_group=3)
    [source] = recipe_with(tmp_path, only("pages", **SECTION | {"files": ["data/*"]}), commit).sources
    assert isinstance(source, HubSource)
    recipe = source.snapshot_recipe(1 << 20)
    plan = plan_snapshot(hub_files, recipe, 1, 60)
    [shard] = plan_shards(fetch_pieces(hub_files, recipe, plan, 1, 60), recipe.shard_text_bytes)

    receipt = convert_shard(shard, window, StagingView(tmp_path), recipe, 3, source.columns)

    documents, _, rejects = (tmp_path / file.path for file in receipt.files)
    assert [document["doc_id"] for document in jsonl(documents)] == [f"page-{row}" for row in kept_rows]
    assert [(reject["file"], reject["row"], reject["reason"]) for reject in jsonl(rejects)] == [
        (*places[row], reason) for row, reason in rejected.items()
    ]
    assert receipt.counts.get("rows", 0) == len(kept_rows) + len(rejected)


def test_bad_rows_are_rejects_with_their_reasons(
    hub_source: Normalize, read_rejects: Callable[[Artifact], list[dict[str, object]]]
) -> None:
    bad = [
        b'{"text": "half',
        b"[1, 2]",
        b'{"text": "\xff"}',
        b'{"text": null}',
        b'{"text": 5}',
        b'{"text": ""}',
        b'{"body": "x"}',
        b'{"text": "many", "score": "x"}',
        b'{"text": "few", "score": 1}',
        b'{"text": "none"}',
    ]
    content = lines([{"text": "good", "score": 3}]) + b"\n".join(bad)

    snapshot = hub_source({"data/a.jsonl": content}, columns=COLUMNS | {"id": None}, rules=["score >= 3"])

    assert [(reject["row"], reject["reason"], reject["detail"]) for reject in read_rejects(snapshot)] == [
        (1, "not_json", "JSON is malformed: invalid character (byte 14)"),
        (2, "wrong_type", "the line is list"),
        (3, "invalid_utf8", "invalid start byte at byte 0"),
        (8, "wrong_type", "column `score` is str"),
    ]
    assert ledger(snapshot) == {
        "in": 11,
        "out": 1,
        "dropped": {"score >= 3": 6},
        "rejected": {"not_json": 1, "wrong_type": 2, "invalid_utf8": 1},
    }


def test_only_rows_with_another_language_are_dropped(hub_source: Normalize, read_docs: Read) -> None:
    rows = [{"text": code, "id": code} | ({"language": code} if code != "-" else {}) for code in ("en", "de", "-")]

    snapshot = hub_source({"data/a.jsonl": lines(rows)}, language="en")

    assert [document["text"] for document in read_docs(snapshot)] == ["en", "-"]
    assert ledger(snapshot)["dropped"] == {"language": 1}


def test_named_columns_without_values_are_recorded(hub_source: Normalize) -> None:
    snapshot = hub_source({"data/a.jsonl": lines(pages(0, 3))}, columns=COLUMNS | {"id": "key", "license": "licence"})

    assert snapshot.manifest.identity.decisions["columns_without_values"] == ["key", "licence"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"columns": COLUMNS | {"text": "body"}}, "column `body` not found in the first rows; they have text, id"),
        ({"rules": ["score >= 3"]}, "column `score` not found in the first rows; they have text, id"),
    ],
)
def test_a_column_not_in_first_rows_is_an_error(changes: dict[str, object], what: str, hub_source: Normalize) -> None:
    line = refusal(lambda: hub_source({"data/a.jsonl": lines(pages(0, 3))}, **changes), UsageError)

    assert line.startswith(f"{DATASET}@") and f":data/a.jsonl: {what}; " in line


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.json.gz", PACKED["json.gz"](lines(pages(0, 99)))[:-20], "the gzip stream is truncated"),
        ("a.jsonl.zst", PACKED["jsonl.zst"](lines(pages(0, 99)))[:-20], "the zstd stream is truncated"),
        ("a.json.gz", PACKED["json.gz"](b"{}")[:10] + b"\xff" * 40, "the gzip stream is damaged ("),
        ("a.jsonl", json.dumps(pages(0, 3)).encode(), "the file is a JSON array, not JSON lines"),
        ("a.jsonl", "{}\n".encode("utf-16"), "the file is UTF-16"),
    ],
)
def test_an_unreadable_file_is_reported_in_one_line_and_leaves_no_cached_bytes(
    name: str, content: bytes, what: str, hub_source: Normalize, hub_files: HubFiles, hub: LoopbackHub
) -> None:
    line = refusal(lambda: hub_source({f"data/{name}": content}))

    assert f":data/{name}: {what}" in line
    if "stream" in what:
        assert line.endswith("; the file is damaged: pin another commit, or exclude it from `files`")
        assert not [path for path in hub_files.cache.glob("*/bytes/*/*") if path.is_file()]


def test_mixed_formats_are_refused(hub_source: Normalize) -> None:
    with pytest.raises(UsageError, match=r"JSON lines and others: data/a.jsonl, data/b.parquet; narrow `files`"):
        hub_source({"data/a.jsonl": b"", "data/b.parquet": b"PAR1"})


def test_large_files_are_fetched_in_growing_blocks_up_to_the_last_required_row(
    hub_source: Normalize, hub: LoopbackHub, hub_files: HubFiles
) -> None:
    pages_of_1_kib = [{"text": f"{number:07d} " + "x" * 1000, "id": str(number)} for number in range(12_000)]

    snapshot = hub_source({"data/a.jsonl": lines(pages_of_1_kib)}, amount={"documents": 2000})

    assert ledger(snapshot)["in"] == 2000
    assert hub_files.traffic.bytes < 5 << 20
    assert list(block_ranges(30 << 20)) == [
        (0, 4 << 20),
        (4 << 20, 12 << 20),
        (12 << 20, 28 << 20),
        (28 << 20, 30 << 20),
    ]


def test_a_plan_reads_only_the_first_hundred_rows_that_a_manifest_lists(
    publish: Callable[..., str], hub_files: HubFiles, hub: LoopbackHub, tmp_path: Path
) -> None:
    rows_of_30_kb = [{"text": f"{number:07d} " + "x" * 30_000, "id": str(number)} for number in range(400)]
    section = only("pages", **SECTION | {"files": ["data/*"]})
    recipe = recipe_with(tmp_path, section, publish({"data/a.jsonl": lines(rows_of_30_kb)}))
    [source] = recipe.sources
    assert isinstance(source, HubSource)
    raw = pin_sample(hub_files, source.snapshot_recipe(1000), threads=1, log_every_s=60)
    without_cache = HubFiles(tmp_path / "without_cache", hub.endpoint)

    plan = plan_snapshot(without_cache, source.snapshot_recipe(1000), 1, 60, raw.external_inputs)

    assert plan.rows == 400
    assert 3 << 20 < without_cache.traffic.bytes < 5 << 20  # the first block, of 12 MB


def test_a_file_in_several_blocks_is_compared_with_its_hash(
    hub_source: Normalize, hub_files: HubFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_prefixes, "_FIRST_BLOCK_BYTES", 1000)
    span_counts: list[int] = []
    check = line_prefixes.check_file_hash
    monkeypatch.setattr(
        line_prefixes,
        "check_file_hash",
        lambda file, spans, where: (span_counts.append(len(spans)), check(file, spans, where)),
    )

    snapshot = hub_source({"data/a.json.gz": PACKED["json.gz"](lines(pages(0, 1000)))})

    assert ledger(snapshot)["out"] == 1000
    assert span_counts == [3]


def test_a_healing_snapshot_reads_compressed_json_lines(
    publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path, read_docs: Read
) -> None:
    rows = [row | {"url": "u", "language": "en"} for row in pages(0, 30)]
    commit = publish({"data/a.jsonl.zst": PACKED["jsonl.zst"](lines(rows))})
    recipe = healing_recipe(commit, {"files": ["data/*"], "amount": {"documents": 20}})

    snapshot = build_snapshot(recipe, tmp_path / "data", hub_files)

    assert [document["meta"]["source_row"] for document in read_docs(snapshot)] == list(range(20))
    assert {document["meta"]["language"] for document in read_docs(snapshot)} == {"en"}
