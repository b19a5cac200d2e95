"""Draws of the first rows of JSON lines on a hub, up to the required amount."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_pages import PACKED, SECTION, Normalize, lines, pages
from real_samples import some
from stage_a_build import ledger, only, recipe_with

from pipeline_assets.build.pins.source_pin import list_inputs
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.normalize.sources import HubSource
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.snapshot import line_prefixes
from pipeline_assets.corpus.snapshot.line_prefixes import Prefix, block_ranges, draw_prefixes
from pipeline_assets.corpus.snapshot.listing import pin_sample
from pipeline_assets.corpus.snapshot.plan import plan_snapshot
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.progress import Progress

Read = Callable[[Artifact], list[dict[str, Any]]]


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
    assert entry["name"].endswith(":data/a.jsonl") and listing.bytes_to_fetch is not None
    assert [*listing.bytes_to_fetch.values()] == [len(content)]


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
    raw = pin_sample(hub_files, source.snapshot_recipe(1000), RunSettings(fetch_threads=1))

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
    raw = pin_sample(hub_files, source.snapshot_recipe(1000), RunSettings(fetch_threads=1))
    without_cache = HubFiles(tmp_path / "without_cache", hub.endpoint)

    plan = plan_snapshot(without_cache, source.snapshot_recipe(1000), RunSettings(fetch_threads=1), raw.external_inputs)

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
