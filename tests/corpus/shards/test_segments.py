"""Segments of a training: disjoint rows of each corpus, each with its own mixture."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refusal
from shards_build import numbered_rows, seal_rows

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.shards.recipe import SEGMENTS_STAGE, SegmentsRecipe
from pipeline_assets.corpus.shards.segments import build_segments, open_segments
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import canonical_sha256

FIRST = {"a": 1000, "b": 2000}
TWO_SEGMENTS = [
    {"name": "first", "tokens": 40, "weights": {"a": "0.75", "b": "0.25"}},
    {"name": "second", "tokens": 50, "weights": {"a": "0.3", "b": "0.7"}},
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """30 and 20 rows of 4 tokens, 5 rows a file."""
    root = tmp_path_factory.mktemp("data")
    sizes = {"a": 30, "b": 20}
    return {name: seal_rows(root, name, numbered_rows(FIRST[name], size)) for name, size in sizes.items()}


def seal(root: Path, corpora: dict[str, Artifact], segments: list[dict[str, Any]], name: str = "plan") -> Artifact:
    recipe = SegmentsRecipe.model_validate({"segments": segments})
    target = Target(unknown_kind("stage_a/segments", SEGMENTS_STAGE), name, Path("stage_a", name), recipe.content())
    return build_target(target, root, lambda staging: build_segments(staging, corpora, recipe), True, {})


def test_segments_take_the_next_rows_of_each_corpus(corpora: dict[str, Artifact], tmp_path: Path) -> None:
    sealed = seal(tmp_path, corpora, TWO_SEGMENTS)

    plan = json.loads((sealed.folder / "segments.json").read_text())
    sha256 = {name: {file.path: file.sha256 for file in entry.manifest.storage} for name, entry in corpora.items()}
    first, second = plan["segments"]
    assert plan["corpora"] == {name: entry.manifest.digest for name, entry in corpora.items()}
    assert [(entry["name"], entry["start"], entry["stop"], entry["asked_tokens"]) for entry in (first, second)] == [
        ("first", 0, 40, 40),
        ("second", 40, 88, 50),
    ]
    # 7.5 and 2.5 of 10 rows: of equal remainders the first by name has the odd row; then 3.6 and 8.4 of 12.
    assert {name: corpus["rows"] for name, corpus in first["corpora"].items()} == {"a": [0, 8], "b": [0, 2]}
    assert {name: corpus["rows"] for name, corpus in second["corpora"].items()} == {"a": [8, 12], "b": [2, 10]}
    assert second["corpora"]["a"]["files"] == [
        {"file": "shard_00001.npy", "rows": [3, 5], "sha256": sha256["a"]["shard_00001.npy"]},
        {"file": "shard_00002.npy", "rows": [0, 2], "sha256": sha256["a"]["shard_00002.npy"]},
    ]
    assert second["sha256"] == canonical_sha256(second["corpora"])
    identity = sealed.manifest.identity
    assert identity.counts == {"segments": 2, "tokens": 88, "unused_tokens": {"a": 72, "b": 40}}
    assert identity.decisions == {"rounded_down_tokens": {"first": 0, "second": 2}}


def test_each_segment_is_read_by_its_own_mixture(corpora: dict[str, Artifact]) -> None:
    root = corpora["a"].folder.parents[1]
    segments = open_segments(seal(root, corpora, TWO_SEGMENTS).folder)

    assert [(segment.name, segment.tokens) for segment in segments] == [("first", 40), ("second", 48)]
    rows = {}
    for segment in segments:
        reader = segments.reader(segment.name, seed=3)
        rows[segment.name] = [int(reader[index].tokens[0]) for index in range(len(reader))]
        assert [FIRST[reader[index].corpus] + reader[index].row for index in range(len(reader))] == rows[segment.name]
        batches = [batch[:, 0].tolist() for batch in reader.batches(4)]
        resumed = [batch[:, 0].tolist() for batch in segments.reader(segment.name, seed=3).batches(4, step=1)]
        assert resumed == batches[1:]
    assert sorted(rows["first"]) == [*range(1000, 1008), 2000, 2001]
    assert sorted(rows["second"]) == [*range(1008, 1012), *range(2002, 2010)]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(4, 24), st.integers(1, 99)), min_size=1, max_size=4))
def test_no_row_is_in_two_segments_and_shares_are_exact(
    tmp_path_factory: pytest.TempPathFactory, corpora: dict[str, Artifact], requests: list[tuple[int, int]]
) -> None:
    assume(sum(tokens // 4 for tokens, _ in requests) <= 20)  # the rows of the smaller corpus
    sections = [
        {"name": f"s{number}", "tokens": tokens, "weights": {"a": f"0.{part:02d}", "b": f"0.{100 - part:02d}"}}
        for number, (tokens, part) in enumerate(requests)
    ]

    sealed = seal(tmp_path_factory.mktemp("plan"), corpora, sections)

    folders = {name: artifact.folder for name, artifact in corpora.items()}
    segments, times, stop = open_segments(sealed.folder, folders), Counter[tuple[str, int]](), 0
    for artifact, (tokens, part) in zip(segments, requests, strict=True):
        assert (artifact.start, artifact.stop) == (stop, stop + tokens // 4 * 4)
        stop = artifact.stop
        for name, corpus in artifact.corpora.items():
            weight = part / 100 if name == "a" else 1 - part / 100
            assert abs(len(range(*corpus.rows)) - weight * (tokens // 4)) < 1
            assert sum(len(range(*file.rows)) for file in corpus.files) == len(range(*corpus.rows))
            times.update((name, row) for row in range(*corpus.rows))
    assert set(times.values()) == {1}
    assert {name: max(row for other, row in times if other == name) + 1 for name, _ in times} == {
        name: sum(other == name for other, _ in times) for name, _ in times
    }


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        (
            {"tokens": 88, "weights": {"a": "0.5", "b": "0.5"}},
            "segment x needs 44 tokens of b, and only 40 are unused; request fewer tokens, or give b less weight",
        ),
        (
            {"tokens": 3, "weights": {"a": "1"}},
            "segment x has 3 tokens, fewer than a row of 4; request at least one row",
        ),
        ({"tokens": 8, "weights": {"c": "1"}}, "segment x names the unknown corpus c; known corpora: a, b"),
    ],
)
def test_segments_that_the_corpora_cannot_fill_are_refused(
    corpora: dict[str, Artifact], tmp_path: Path, segment: dict[str, Any], message: str
) -> None:
    line = refusal(lambda: seal(tmp_path, corpora, [*TWO_SEGMENTS, {"name": "x"} | segment]), UsageError)

    assert line == f"segments: {message}"


def test_corpora_with_unequal_row_lengths_are_refused(corpora: dict[str, Artifact], tmp_path: Path) -> None:
    longer = seal_rows(tmp_path, "c", numbered_rows(2, 3, seq_len=8))

    line = refusal(lambda: seal(tmp_path, {"a": corpora["a"], "c": longer}, TWO_SEGMENTS), UsageError)

    assert line.startswith("segments: seq_len of c is 8, but of a 4: read them separately")


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([], "at least 1 item"),
        ([TWO_SEGMENTS[0], TWO_SEGMENTS[0]], "there are two segments first; give each its own name"),
        ([TWO_SEGMENTS[0] | {"weights": {"a": "0.5", "b": "0.4"}}], "weights must sum to 1, got 0.9"),
        ([TWO_SEGMENTS[0] | {"tokens": 0}], "greater than or equal to 1"),
    ],
)
def test_invalid_segments_are_refused(segments: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentsRecipe.model_validate({"segments": segments})


def test_edited_segments_are_refused(corpora: dict[str, Artifact], tmp_path: Path) -> None:
    folder = seal(tmp_path, corpora, TWO_SEGMENTS).folder
    path = folder / "segments.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"shard_00001.npy"', b'"shard_00007.npy"'))

    line = refusal(lambda: open_segments(folder, {}), InputError)

    assert line.startswith(f"{path}: digest of segment first does not match its rows;")


def test_a_replaced_corpus_is_no_longer_read(tmp_path: Path) -> None:
    corpora = {"a": seal_rows(tmp_path, "a", numbered_rows(2, 30))}
    folder = seal(tmp_path, corpora, [{"name": "x", "tokens": 20, "weights": {"a": "1"}}]).folder
    segments = open_segments(folder)
    seal_rows(tmp_path, "a", numbered_rows(9, 30), rows_per_shard=6)

    assert "set was replaced since" in refusal(lambda: segments.reader("x", seed=1), RetryableError)
    assert open_artifact(folder).manifest.digest
    with pytest.raises(InputError):
        open_segments(folder)
