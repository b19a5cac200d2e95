"""The report on scores: figures equal a naive computation, the page is inert."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus_reports import read_figures, read_page
from score_files import POOL, Row, drawn_rows, scored_row, write_scores

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.nemotron.pool_report import CORRECTNESS_RANGES
from pipeline_assets.corpus.scoring.score_report import SCORE_REPORT_STAGE, preview_scores, report_on_scores
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings

MODEL = {"name": "maker/model", "dtype": "float32", "device": "cpu", "attention": "eager"}


def report_on(root: Path, splits: list[ScoredSplit]) -> Artifact:
    target = Target(unknown_kind("nemotron/score_report", SCORE_REPORT_STAGE), "report", Path("report"), {})
    return build_target(target, root, lambda staging: report_on_scores(staging, splits, RunSettings()), True, {})


def quantile(values: list[float], share: float) -> float:
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def naive(rows: list[Row]) -> dict[str, Any]:
    """Compute the figures of rows that have a score."""
    values = sorted(row["nll_mean"] for row in rows)
    nats = math.fsum(row["nll_sum"] for row in rows)
    tokens, size = (sum(row[name] for row in rows) for name in ("completion_token_count", "completion_bytes"))
    bins = [0] * 128
    for value in values:
        bins[max(number for number in range(128) if number / 10 <= max(value, 0))] += 1
    while bins and not bins[-1]:
        bins.pop()
    return {
        "rows": len(rows),
        "completion_tokens": tokens,
        "completion_bytes": size,
        "nll_sum": pytest.approx(nats, rel=1e-12),
        "nll": pytest.approx(nats / tokens, rel=1e-12),
        "bits_per_byte": pytest.approx(nats / 0.6931471805599453 / size, rel=1e-12),
        "perplexity": pytest.approx(2.718281828459045 ** (nats / tokens), rel=1e-12),
        "quantiles": pytest.approx([quantile(values, share) for share in (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)]),
        "bins": bins,
    }


def correctness(row: Row) -> str:
    share = row["correctness"]
    if share is None:
        return "null"
    is_edge = share in (0, 1)
    return str(int(share)) if is_edge else CORRECTNESS_RANGES[1 + sum(share > edge for edge in (0.25, 0.5, 0.75))]


def length(row: Row) -> str:
    return "1" if row["tokens"] < 2 else str(2 ** int(math.log2(row["tokens"])))


GROUPS: dict[str, Callable[[Row], str]] = {
    "domains": lambda row: row["domain"] or "unknown",
    "correctness": correctness,
    "lengths": length,
}
SPLITS = {"maths/high": drawn_rows(1, 150), "maths/low": drawn_rows(2, 90)}


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[ScoredSplit]:
    decisions = {"model": MODEL, "how_sure": {"rescored": 64, "error_bar": None, "largest": 0.00012}}
    root = tmp_path_factory.mktemp("scores")
    return [write_scores(root / name, name, rows, decisions) for name, rows in SPLITS.items()]


@pytest.fixture(scope="module")
def report(splits: list[ScoredSplit], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return report_on(tmp_path_factory.mktemp("report"), splits)


def test_figures_equal_a_naive_computation(report: Artifact) -> None:
    figures = read_figures(report)

    parts = {name: (rows, figures["splits"][name]) for name, rows in SPLITS.items()}
    for rows, stats in [*parts.values(), ([row for split in SPLITS.values() for row in split], figures["total"])]:
        scored = [row for row in rows if row["nll_mean"] is not None]
        assert stats["scored"] == naive(scored)
        for group, group_name in GROUPS.items():
            by_name = {group_name(row) for row in scored}
            assert stats[group] == {name: naive([row for row in scored if group_name(row) == name]) for name in by_name}
        assert (stats["rows"], stats["without_score"]) == (len(rows), {"no_completion": len(rows) - len(scored)})
        lost = sum(row["truncated"] for row in rows), sum(row["tokens_lost"] for row in rows)
        assert (stats["truncated"], stats["tokens_lost"]) == lost
    total = figures["total"]
    assert list(total["domains"]) == ["chat_if", "math", "proof", "unknown"]  # as people read them
    assert list(total["correctness"]) == ["0", "(0, 0.25]", "(0.5, 0.75]", "(0.75, 1)", "1", "null"]
    assert list(total["lengths"]) == ["1", "2", "512", "1024", "4096"]
    counts = {"documents": total["scored"]["rows"], "completion_tokens": total["scored"]["completion_tokens"]}
    assert report.manifest.identity.counts == counts  # which the UI plots


def test_the_first_of_equal_rows_is_listed(tmp_path: Path) -> None:
    values = [3.0, 1.0, None, 3.0, 0.0, *[2.0] * 20, 0.0]
    rows = [scored_row(number, value) for number, value in enumerate(values)]

    low = read_figures(report_on(tmp_path, [write_scores(tmp_path / "s", "maths/low", rows)]))["splits"]["maths/low"]

    assert [row["id"] for row in low["highest"]] == ["row-0", "row-3", "row-5", "row-6", "row-7"]
    assert [row["id"] for row in low["lowest"]] == ["row-4", "row-25", "row-1", "row-5", "row-6"]
    assert low["highest"][0] == {"split": "maths/low", "id": "row-0", "nll_mean": 3.0, "tokens": 10}


def test_a_correctness_that_is_nan_counts_as_missing(tmp_path: Path) -> None:
    rows = [scored_row(number, 1.0, correctness=share) for number, share in enumerate([math.nan, 0.0, None])]

    total = read_figures(report_on(tmp_path, [write_scores(tmp_path / "s", "maths/low", rows)]))["total"]

    assert {name: figures["rows"] for name, figures in total["correctness"].items()} == {"0": 1, "null": 2}


def test_page_shows_the_model_from_each_splits_manifest(report: Artifact, tmp_path: Path) -> None:
    html = read_page(report)

    uncertainty = "uncertainty of scores"
    shown = [("model", "attention", "eager"), (uncertainty, "error_bar", ""), (uncertainty, "largest", "0.00012")]
    for part, key, value in shown:
        assert re.search(rf"<th>{part}</th>(?:(?!</table>).)*<td>{key}</td><td[^>]*>{value}</td></tr>", html, re.DOTALL)
    splits = [
        write_scores(tmp_path / name, f"maths/{name}", [scored_row(0, 1.0)], decisions)
        for name, decisions in (("a", {"model": {"name": "one"}}), ("b", {"model": {"name": "two"}}), ("c", {}))
    ]
    html = read_page(report_on(tmp_path, splits))
    pages = dict(re.findall(r"<h2>maths/(\w)</h2>(.*?)</details>", html, re.DOTALL))
    models = {name: re.findall(r"<td>name</td><td>(\w+)</td>", text) for name, text in pages.items()}
    assert models == {"a": ["one"], "b": ["two"], "c": []}


def test_an_outlier_does_not_squeeze_the_plot(tmp_path: Path) -> None:
    rows = [scored_row(number, 0.25 + 0.1 * (number % 3)) for number in range(120)]

    html = read_page(report_on(tmp_path, [write_scores(tmp_path / "s", "maths/low", [*rows, scored_row(120, 12.0)])]))

    assert "<title>41 rows from 0.4+</title>" in html
    alone = read_page(
        report_on(tmp_path / "one", [write_scores(tmp_path / "alone", "maths/low", [scored_row(0, 0.25)])])
    )
    assert re.findall("<title>(.* from .*)</title>", alone) == ["1 row from 0.2+"]
    assert "Rows by NLL; the label of a bar is its smallest NLL: 1 row<" in alone
    assert "rows from 0.5" not in html


def test_a_split_without_scores_and_a_group_of_one_row(tmp_path: Path) -> None:
    rows = [scored_row(0, 0.5), scored_row(1, 0.7, domain="proof")]
    splits = [
        write_scores(tmp_path / "none", "maths/none", [scored_row(0, None, count=None, size=None)]),
        write_scores(tmp_path / "empty", "maths/empty", []),
        write_scores(tmp_path / "one", "maths/one", rows),
    ]

    report = report_on(tmp_path, splits)

    figures_by_split, nothing = read_figures(report)["splits"], [None, None, None, [], []]
    assert figures_by_split["maths/none"]["without_score"] == {"no_completion": 1}
    figures = ("nll", "bits_per_byte", "perplexity", "quantiles", "bins")
    for name in ("maths/none", "maths/empty"):
        assert [figures_by_split[name]["scored"][figure] for figure in figures] == nothing
    assert figures_by_split["maths/one"]["domains"]["proof"]["quantiles"] == [0.7] * 7
    assert read_page(report).count("No row has a score.") == 2


def test_report_without_splits_is_empty(tmp_path: Path) -> None:
    report = report_on(tmp_path, [])

    assert read_figures(report)["total"]["rows"] == 0
    assert preview_scores(report) == []


def test_pools_without_columns_count_as_unknown(tmp_path: Path) -> None:
    split = write_scores(tmp_path / "s", "maths/low", drawn_rows(3, 20), pool=POOL.remove(2).remove(1))

    total = read_figures(report_on(tmp_path, [split]))["total"]

    assert list(total["domains"]) == ["unknown"]
    assert list(total["correctness"]) == ["null"]


def test_the_ui_shows_a_line_for_all_rows_each_group_and_each_split(tmp_path: Path) -> None:
    rows = [scored_row(number, value) for number, value in enumerate([0.5, 0.5, 0.6, 0.8, None])]
    high_rows = [scored_row(0, 1.0, domain="proof")]
    splits = [write_scores(tmp_path / "l", "maths/low", rows), write_scores(tmp_path / "h", "maths/high", high_rows)]

    lines = preview_scores(report_on(tmp_path, splits))

    groups = ["domain math", "domain proof", "correctness null", "tokens from 8"]
    assert [line["rows of"] for line in lines] == ["all", *groups, "maths/low", "maths/high"]
    assert lines[-2] == {
        "rows of": "maths/low",
        "scored": "4 of 5",
        "NLL": "0.600",
        "bits/byte": "0.173",
        "PPL": "1.822",
        "rows by NLL": "0.5 █▅▁▅ 0.8+",
    }


def test_hostile_content_of_rows_is_escaped(tmp_path: Path) -> None:
    hostile = "</td><script src='http://evil.example'>"
    rows = [scored_row(0, 1.0, id=hostile, domain=hostile), scored_row(1, None, reason=hostile)]

    html = read_page(report_on(tmp_path, [write_scores(tmp_path / "s", hostile, rows, {"model": {hostile: hostile}})]))

    assert "<script" not in html and "src='" not in html
    places = {"split and its part": 2, "contents": 1, "rows that stand out": 4, "domain": 1, "reason": 2, "model": 2}
    assert html.count("&lt;/td&gt;&lt;script src=&#39;http://evil.example&#39;&gt;") == sum(places.values())


def test_a_perplexity_beyond_floats_is_null(tmp_path: Path) -> None:
    report = report_on(tmp_path, [write_scores(tmp_path / "s", "maths/low", [scored_row(0, 5000.0)])])

    assert read_figures(report)["total"]["scored"]["perplexity"] is None
    assert read_figures(report)["total"]["scored"]["bins"][-1] == 1
