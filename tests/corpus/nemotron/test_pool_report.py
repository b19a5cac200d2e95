"""Report on candidate pools: figures equal the files, and the page escapes text."""

import inspect
import math
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from candidate_pools import MIXED, STAGE, Row, row, rows_artifact, seal_pools
from corpus_reports import read_figures, read_page
from real_samples import some

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.nemotron.pool_report import CORRECTNESS_RANGES, preview_pools, report_on_pools
from pipeline_assets.corpus.nemotron.pools import build_pools
from pipeline_assets.corpus.nemotron.pools_recipe import DEFAULT_RULES, PoolsRecipe
from pipeline_assets.corpus.nemotron.row_checks import pools_have_rows
from pipeline_assets.spine import engine
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.stage import WarmUp

SOLVED = {name: rules for name, rules in DEFAULT_RULES.items() if name != "unsolved"}  # some rows are in no pool
RECIPE = PoolsRecipe(rules=SOLVED, refuse_licences=("cc-by-sa-4.0",))


def build_report(root: Path, datasets: dict[str, Artifact]) -> Artifact:
    target = Target(unknown_kind("nemotron/pool_report", STAGE), "report", Path("report"), {})
    return build_target(target, root, lambda building: report_on_pools(building, datasets, RunSettings()), True, {})


def drawn_rows(seed: int, count: int) -> list[Row]:
    dice = random.Random(seed)
    return [
        row(
            number,
            meta_correctness=dice.choice([None, 0.0, 0.1, 0.25, 0.5, 0.6, 0.75, 0.9, 1.0]),
            meta_domain=dice.choice(["math", "proof", None]),
            meta_capability_target=dice.choice([None, "chat", "safety"]),
            meta_license=dice.choice(["cc-by-4.0", "cc-by-4.0", "cc-by-sa-4.0"]),
            stats_tokens=dice.choice([0, 1, 2, 1023, 1024, 5000, 20_000]),
            stats_completion_tokens=dice.choice([None, 3, 400]),
            stats_tool_calls=dice.choice([0, 2]),
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Seal pools of two datasets with equal ids; one split has two files a pool."""
    roots = {name: tmp_path_factory.mktemp(name) for name in ("maths", "chats")}
    wide = [*drawn_rows(1, 300), row(300, text="x" * (64 << 20), meta_license="cc-by-sa-4.0")]
    splits = {"maths": {"low": wide, "high": drawn_rows(2, 200)}, "chats": {"low": drawn_rows(3, 150)}}
    sealed = {
        name: {split: rows_artifact(root, rows, name=split) for split, rows in splits[name].items()}
        for name, root in roots.items()
    }
    return {name: seal_pools(root, sealed[name], RECIPE) for name, root in roots.items()}


@pytest.fixture(scope="module")
def report(drawn: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return build_report(tmp_path_factory.mktemp("report"), drawn)


def test_workers_are_forked_from_a_process_that_has_the_kernels_and_no_threads_of_polars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[WarmUp] = []
    run_in_process = engine._run_in_process

    def record_load(work: Any, load_once: WarmUp, *stage: Any) -> Any:
        loads.append(inspect.unwrap(load_once))
        return run_in_process(work, load_once, *stage)

    monkeypatch.setattr(engine, "_run_in_process", record_load)
    build_report(tmp_path, {"maths": seal_pools(tmp_path, {"low": rows_artifact(tmp_path, MIXED)})})

    kernels = {build_pools.__module__, report_on_pools.__module__}
    code = "import pickle, sys; [load() for load in pickle.load(sys.stdin.buffer)]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(loads), capture_output=True, check=True)
    assert {*loaded.stdout.decode().split()} & {*kernels, "polars"} == kernels


def read_rows(pools: Artifact) -> pl.DataFrame:
    """Read all rows of all pools, with their pool and split."""
    columns = ["id", "stats_tokens", "stats_completion_tokens", "meta_correctness", "meta_domain"]
    return pl.concat(
        pl.read_parquet(path, columns=columns).with_columns(
            pool=pl.lit(path.parent.name.removeprefix("candidates_")), split=pl.lit(path.name.partition("-")[0])
        )
        for path in sorted(pools.folder.glob("candidates_*/*.parquet"))
    )


def test_sizes_equal_the_files_and_a_row_counts_once_in_a_dataset(drawn: dict[str, Artifact], report: Artifact) -> None:
    figures = read_figures(report)

    assert list(figures["datasets"]) == ["maths", "chats"]
    for name, pools in some(drawn.items()):
        rows, reported = read_rows(pools), figures["datasets"][name]
        once = rows.unique(["split", "id"])
        assert reported["rows"] == once.height == pools.manifest.identity.counts["documents"]
        assert reported["tokens"] == once["stats_tokens"].sum() == pools.manifest.identity.counts["tokens"]
        assert reported["completion_tokens"] == once["stats_completion_tokens"].sum()
        assert list(reported["pools"]) == sorted(set(rows["pool"]))
        for pool, entry in reported["pools"].items():
            pool_rows = rows.filter(pool=pool)
            assert entry["rows"] == pool_rows.height
            assert entry["tokens"] == pool_rows["stats_tokens"].sum()
            assert entry["completion_tokens"] == pool_rows["stats_completion_tokens"].sum()


def test_pools_share_the_rows_of_one_split_and_id(drawn: dict[str, Artifact], report: Artifact) -> None:
    assert len(list(drawn["maths"].folder.glob("candidates_tool_use/low-*.parquet"))) == 2
    for name, pools in some(drawn.items()):
        rows, reported = read_rows(pools).select("pool", "split", "id"), read_figures(report)["datasets"][name]["pools"]
        pairs = rows.join(rows, on=["split", "id"]).filter(pl.col("pool") != pl.col("pool_right"))
        counted = {(a, b): count for a, b, count in pairs.group_by("pool", "pool_right").len().rows()}

        assert {(a, b): count for a in reported for b, count in reported[a]["shared"].items()} == counted


def test_rows_are_counted_by_length_correctness_and_domain(drawn: dict[str, Artifact], report: Artifact) -> None:
    def correctness(share: float | None) -> str:
        if share is None:
            return "null"
        is_edge = share in (0, 1)
        return str(int(share)) if is_edge else CORRECTNESS_RANGES[1 + sum(share > edge for edge in (0.25, 0.5, 0.75))]

    for name, pools in some(drawn.items()):
        for pool, entry in read_figures(report)["datasets"][name]["pools"].items():
            pool_rows = read_rows(pools).filter(pool=pool)
            powers = [1 if tokens < 2 else 2 ** int(math.log2(tokens)) for tokens in pool_rows["stats_tokens"]]
            assert list(entry["lengths"].items()) == [
                (str(power), powers.count(power)) for power in sorted(set(powers))
            ]
            ranges = [correctness(share) for share in pool_rows["meta_correctness"]]
            assert list(entry["correctness"].items()) == [
                (label, ranges.count(label)) for label in CORRECTNESS_RANGES if label in ranges
            ]
            domains = [domain or "unknown" for domain in pool_rows["meta_domain"]]
            assert entry["domains"] == {domain: domains.count(domain) for domain in sorted(set(domains))}


def test_the_total_is_the_sum_of_the_datasets(report: Artifact) -> None:
    def add_up(values: list[Any]) -> Any:
        if not isinstance(values[0], dict):
            return sum(values)
        keys = {key for value in values for key in value}
        return {key: add_up([value[key] for value in values if key in value]) for key in keys}

    figures = read_figures(report)
    counted = [{**data, "left_out": {}, "empty": {}, "correctness_gap": {}} for data in figures["datasets"].values()]

    assert figures["total"] == add_up(counted)
    counts = report.manifest.identity.counts
    assert counts["documents"] == figures["total"]["rows"]
    assert counts["pools"] == {pool: entry["rows"] for pool, entry in figures["total"]["pools"].items()}


def test_page_shows_sizes_and_fates_of_all_rows(drawn: dict[str, Artifact], report: Artifact) -> None:
    ledger, html = drawn["chats"].manifest.identity.counts["ledger"], read_page(report)

    dropped = f"in_no_pool {ledger['dropped']['in_no_pool']}, refused_licence {ledger['dropped']['refused_licence']}"
    out = f"<td>{dropped}</td><td class='number'>{ledger['out']}</td>"
    assert f"<tr><td>chats</td><td class='number'>150</td>{out}" in html
    assert html.count("<details open>") == 1 and html.count("<details>") == 2
    pools = read_figures(report)["total"]["pools"]
    assert f"tool_use: {pools['tool_use']['rows']:,} rows</figcaption>" in html


def test_the_ui_shows_a_line_for_each_pool(tmp_path: Path) -> None:
    shares = [0.0, 0.5, 0.5, 1.0]
    rows = [row(number, meta_correctness=share, stats_tokens=1 << number) for number, share in enumerate(shares)]
    rules = {"all": ["stats_tokens > 0"], "right": ["meta_correctness = 1"], "long": ["stats_tokens > 2"]}

    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, rows)}, PoolsRecipe.from_content({"rules": rules}))

    line, *_ = preview_pools(build_report(tmp_path, {"maths": pools}))
    assert line == {
        "pool": "all",
        "rows": "4",
        "tokens": "15",
        "completion tokens": "0",
        "rows by tokens": "1 ████ 8",
        "by correctness": "▅▁█▁▁▅▁",
        "shares most with": "long",
    }


def test_hostile_text_of_datasets_is_escaped(tmp_path: Path) -> None:
    hostile = "</td><script src='http://evil.example'>"
    rows = [row(0, meta_domain=hostile, meta_capability_target=hostile, meta_license=hostile)]

    html = read_page(build_report(tmp_path, {hostile: seal_pools(tmp_path, {"low": rows_artifact(tmp_path, rows)})}))

    assert "<script" not in html and "src='" not in html and "url(" not in html
    occurrences = 1 + 1 + 1 + 1  # rows of the dataset, its pools, these in the contents, a domain
    assert html.count("&lt;/td&gt;&lt;script src=&#39;http://evil.example&#39;&gt;") == occurrences
    assert "capability_td_script_src_http_evil_example" in html


def test_pool_without_rows_has_a_reason_and_a_dataset_may_lack_pools(tmp_path: Path) -> None:
    rules = {"verified": ["meta_correctness = 1"], "on": ["meta_reasoning = 'on'", "stats_tokens < 1"]}
    recipe = PoolsRecipe.from_content({"rules": rules})
    rows = rows_artifact(tmp_path, [row(0, meta_reasoning="on"), row(1)])
    pools = seal_pools(tmp_path, {"low": rows}, recipe)

    report = build_report(tmp_path, {"maths": pools})

    assert read_figures(report)["datasets"]["maths"] == {
        "rows": 0,
        "tokens": 0,
        "completion_tokens": 0,
        "ledger": {"in": 2, "out": 0, "dropped": {"in_no_pool": 2}, "rejected": {}, "merged": 0},
        "pools": {},
        "left_out": {"verified": "no row says anything in meta_correctness"},
        "empty": {"on": {"meta_reasoning = 'on'": 1, "stats_tokens < 1": 0}},
        "correctness_gap": {},
    }
    assert preview_pools(report) == []
    text = "on: no row meets all of `meta_reasoning = 'on'` (rows: 1), `stats_tokens < 1` (rows: 0); no pool has rows; "
    assert pools_have_rows(pools).because.startswith(text)
    html = read_page(report)
    assert "No pool has rows." in html
    assert "<th>no row meets all (rows of each condition)</th>" in html
    assert "<td>on</td><td>meta_reasoning = &#39;on&#39; 1, stats_tokens &lt; 1 0</td>" in html
    assert "<td>verified</td><td>no row says anything in meta_correctness</td>" in html


def test_quotas_are_listed_by_stratum(tmp_path: Path) -> None:
    quota = {"right": {"max_rows": 1, "stratify": ["meta_solved_bin"]}}
    recipe = PoolsRecipe.from_content({"rules": {"right": ["meta_correctness = 1"]}, "quotas": quota})
    rows = rows_artifact(tmp_path, [row(number, meta_correctness=1.0) for number in range(3)])

    page = read_page(build_report(tmp_path, {"math": seal_pools(tmp_path, {"low": rows}, recipe)}))

    assert "pool with a quota" in page and "stratum of right" in page


def test_rows_of_known_correctness_in_no_pool_are_named(tmp_path: Path) -> None:
    recipe = PoolsRecipe(rules={"verified": ("meta_correctness = 1",)})
    rows = [row(0, meta_correctness=1.0), row(1, meta_correctness=0.6), row(2, meta_correctness=0.5), row(3)]
    rows[1]["id"] = "<b>"

    report = build_report(tmp_path, {"maths": seal_pools(tmp_path, {"low": rows_artifact(tmp_path, rows)}, recipe)})

    gap = {"rows": 2, "lowest": "0.5", "highest": "0.6", "examples": ["low/<b>", "low/row-2"]}
    assert read_figures(report)["datasets"]["maths"]["correctness_gap"] == gap
    line = "<td class='number'>2</td><td>0.5</td><td>0.6</td><td>low/&lt;b&gt;, low/row-2</td>"
    assert "Rows of known correctness in no pool:" in read_page(report) and line in read_page(report)
