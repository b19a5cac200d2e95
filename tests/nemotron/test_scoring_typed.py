"""Scoring commands on external pools, two models and edited pools."""

import json
import re
import shutil
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
import yaml
from command_results import Corpusmill, Result, only_line
from forgery import flip
from nemotron_build import row, run
from tiny_scoring import build_rows, copy_model, half_written, save_whole_model, write_pool

from pipeline_assets.code_location import build_definitions
from pipeline_assets.systems.registry import SYSTEMS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two models into a folder."""
    folder = tmp_path_factory.mktemp("models")
    save_whole_model(folder / "first")
    save_whole_model(folder / "second", "Mistral")
    return folder


@pytest.fixture
def corpusmill(scoring_corpusmill: Corpusmill) -> Corpusmill:
    return scoring_corpusmill


def score(corpusmill: Corpusmill, pool: Path, model: Path, root: Path, *options: object) -> Result:
    arguments = ("--pool", pool, "--model", model, "--out-dir", root, "--device", "cpu", "--cpu-threads", 1)
    return corpusmill("nemotron", "score", *arguments, *options)


def test_external_pool_is_scored_and_divided_into_subsets(corpusmill: Corpusmill, models: Path, tmp_path: Path) -> None:
    rows = [*build_rows(30), {"id": "x", "text": "no Harmony", "loss_mode": "assistant_all"}]
    pool, root = write_pool(tmp_path / "mine", rows), tmp_path / "out"

    scored = score(corpusmill, pool, models / "first", root)
    listed = corpusmill("nemotron", "percentiles", "--in-dir", root, "--out-dir", root)
    chosen = corpusmill("nemotron", "subsets", "--in-dir", root, "--out-dir", root)

    assert (scored.returncode, listed.returncode, chosen.returncode) == (0, 0, 0)
    assert "30 of 31 rows have a score; without one: 1 text_outside_messages" in scored.stdout
    assert ["mine/train", "30", "of", "31"] in [line.split()[:4] for line in listed.stdout.splitlines()]
    no_rows = "0 rows: no row has a value in meta_correctness"
    assert [line.strip() for line in chosen.stdout.splitlines() if line.startswith("  ") and ": " in line] == [
        *(f"anchor: {no_rows}", "anchor_unverified: 8 rows"),
        *(f"challenge: {no_rows}", "challenge_unverified: 3 rows"),
        *(f"learning: {no_rows}", "learning_unverified: 5 rows"),
        "restoration: 6 rows",
    ]
    assert "nemotron publish" not in chosen.stdout  # it refuses rows that name no dataset
    [subsets] = root.glob("nemotron/*/training_subsets")
    file = pool / "data" / "train.parquet"
    refused = corpusmill("trace", "--source", f"{file}#0", "--data", root)
    fix = f"trace rows of {subsets} with --row"
    assert only_line(refused) == f"{file}: rows of scored pools are only traced backwards; {fix}"


def test_description_of_subsets_lists_their_datasets(corpusmill: Corpusmill, models: Path, tmp_path: Path) -> None:
    revisions = {"maker/math": "a" * 40, "maker/chats": "b" * 40}
    rows = [
        row | {"dataset": name, "source_revision": commit}
        for first, (name, commit) in enumerate(revisions.items())
        for row in build_rows(20, first * 20)
    ]
    pool, root = write_pool(tmp_path / "mine", rows), tmp_path / "out"
    score(corpusmill, pool, models / "first", root)
    corpusmill("nemotron", "subsets", "--in-dir", root, "--out-dir", root)
    [subsets] = root.glob("nemotron/*/training_subsets")

    described = corpusmill("describe", subsets, "--as", "eu-summary")

    assert described.returncode == 0, described.stderr
    public = described.stdout.partition("## 2.1 ")[2].partition("\n## ")[0]
    sources = [line.split()[1:3] for line in public.splitlines() if line.startswith("| ")][2:-1]
    assert sources[0] == ["folder", "mine"]
    assert sorted(name.strip("`") for name, _ in sources[1:]) == [f"maker/chats@{'b' * 40}", f"maker/math@{'a' * 40}"]


def test_token_files_of_subsets_are_not_pools(corpusmill: Corpusmill, models: Path, tmp_path: Path) -> None:
    """Only a `rows.parquet` next to `tokens.npy` describes tokens."""
    subsets = write_pool(tmp_path / "mine", build_rows(3), "subset_anchor/math/low-00000-of-00001.parquet")
    write_pool(subsets, build_rows(2), "subset_anchor/math/rows.parquet")
    write_pool(subsets, [{"id": "row-0", "first_token": 0, "tokens": 2}], "tokens/anchor/rows.parquet")
    np.save(subsets / "tokens" / "anchor" / "tokens.npy", np.arange(2, dtype=np.int32))

    done = score(corpusmill, subsets, models / "first", tmp_path / "out", "--dry-run")

    assert done.returncode == 0, done.stderr
    assert [line.partition(" row")[0] for line in done.stdout.splitlines()] == ["mine/low: 3", "mine/rows: 2"]


def test_refused_files_leave_no_output(corpusmill: Corpusmill, models: Path, tmp_path: Path) -> None:
    write_pool(tmp_path / "mine", [{"text": "A row without an id."}])

    refused = score(corpusmill, tmp_path / "mine", models / "first", tmp_path / "out")

    assert refused.returncode == 1
    assert "column not found: id, loss_mode; a pool needs the columns id, text, loss_mode" in only_line(refused)
    assert not (tmp_path / "out").exists()


def test_empty_pools_are_named_and_others_are_scored(corpusmill: Corpusmill, models: Path, tmp_path: Path) -> None:
    """Answers of one token are below the minimum, so their rows are in no pool."""
    root, rows = tmp_path / "out", [row(f"{number}", f"What are {number} and {number}?") for number in range(3)]
    short = [row("short", "Is it?", "no")]
    pools = run(corpusmill, root, {"full": {"high": rows, "low": short}, "bare": {"low": short}}, pools={})
    folder = pools / "candidate_pools"

    nothing = score(corpusmill, folder / "bare", models / "first", root)
    scored = score(corpusmill, folder, models / "first", root)
    rest = score(corpusmill, folder, models / "first", root, "--dry-run")
    chosen = corpusmill("nemotron", "subsets", "--in-dir", root, "--out-dir", root)
    recipe = root / "recipes" / "mine.yaml"
    recipe.write_text(recipe.read_text() + f"scoring: {{model: {{path: {models / 'first'}}}}}\nsubsets: {{}}\n")
    own_run = corpusmill("run", "mine", "--data", root)
    content = yaml.safe_load(recipe.read_text())
    content |= {"name": "empty", "datasets": [part for part in content["datasets"] if part["dataset"] == "bare"]}
    (root / "recipes" / "empty.yaml").write_text(yaml.safe_dump(content))
    empty_run = corpusmill("run", "empty", "--data", root)

    no_rows = f"{folder / 'bare'}: the pools have no rows; choose pools with rows"
    assert (nothing.returncode, only_line(nothing)) == (2, no_rows)
    assert scored.returncode == 0, scored.stderr
    assert [path.parts[-3:-1] for path in root.glob("nemotron/score-*/*/*/*/scores.parquet")] == [("full", "high")]
    assert "nothing to score: the scores of all splits are current" in rest.stdout
    lines = [line.strip() for line in chosen.stdout.splitlines()]
    assert "challenge: 0 rows: no row has a value in meta_correctness" in lines
    assert "challenge_unverified: 0 rows" in lines  # too few rows lack a correctness
    assert own_run.returncode == 0, own_run.stderr
    assert {line for line in own_run.stderr.splitlines() if "rows_have_scores" in line} == {
        f"check mine/{name}/low: rows_have_scores: WARNING: no pool has a row of the split low"
        for name in ("full", "bare")
    }
    report = json.loads((pools / "score_report" / "report.json").read_text())
    rows_by_split = {name: split["rows"] for name, split in report["splits"].items()}
    assert rows_by_split == {"full/high": 3, "full/low": 0, "bare/low": 0}
    shutil.rmtree(pools / "training_subsets")
    own_subsets = corpusmill("nemotron", "subsets", "--in-dir", pools, "--out-dir", root)
    assert (own_subsets.returncode, "restoration: 1 row" in own_subsets.stdout) == (0, True)
    what = "no pool has a row of any split; relax `deduplicate` or `pools` of the recipe"
    line = f"FAILED nemotron/score_report: {root}/nemotron/empty/candidate_pools/bare: {what}"
    assert (empty_run.returncode, line in empty_run.stderr, "Traceback" in empty_run.stderr) == (1, True, False)


TOO_LONG = "--max-length: must be at most the model's 4,096 tokens, got 5,000; set 4096 or less"
TOO_SMALL = (
    "--batch-tokens: must be at least 512, got 8: it counts tokens, not rows; "
    r"for 8 rows a batch, set their number times the tokens of a row \(--max-length\)"
)


@pytest.mark.parametrize(("options", "line"), [(("--max-length", 5000), TOO_LONG), (("--batch-tokens", 8), TOO_SMALL)])
def test_dry_run_names_options_beyond_the_limits_of_a_model(
    corpusmill: Corpusmill, models: Path, tmp_path: Path, options: tuple[object, ...], line: str
) -> None:
    pool = write_pool(tmp_path / "mine", build_rows(3))

    result = score(corpusmill, pool, models / "first", tmp_path / "out", *options, "--dry-run")

    assert result.returncode == 2
    assert re.fullmatch(line, only_line(result)), result.stderr
    assert half_written(tmp_path) == []


def gap_line(result: Result) -> list[str]:
    """Return rows, bytes, bits per byte of both models, and the gap with its interval."""
    assert result.returncode == 0, result.stderr
    [line] = [line for line in result.stdout.splitlines() if line.startswith("all ")]
    return line.split()[1:]


def test_only_different_models_have_a_gap(corpusmill: Corpusmill, models: Path, tmp_path: Path) -> None:
    pool, first = write_pool(tmp_path / "mine", build_rows(20)), models / "first"
    namesake = copy_model(models / "second", tmp_path / "elsewhere" / "first")

    same = gap_line(score(corpusmill, pool, first, tmp_path / "same", "--against", first))
    other = gap_line(score(corpusmill, pool, first, tmp_path / "other", "--against", models / "second"))
    named_alike = gap_line(score(corpusmill, pool, first, tmp_path / "alike", "--against", namesake))

    assert (same[0], same[4:8]) == ("20", ["+0.0000", "+0.0000", "to", "+0.0000"])
    assert same[2] == same[3] == other[2]
    assert other[3] != other[2]
    assert named_alike == other


def test_sealed_pools_are_inputs_of_their_scores_and_edited_pools_are_refused(
    corpusmill: Corpusmill, models: Path, tmp_path: Path
) -> None:
    rows = [row(f"{number}", f"What are {number} and {number}?") for number in range(6)]
    pools = run(corpusmill, tmp_path / "out", {"maths": {"high": rows}}, pools={}) / "candidate_pools"

    result = score(corpusmill, pools, models / "first", tmp_path / "out")

    assert result.returncode == 0, result.stderr
    scores = tmp_path / "out" / "nemotron" / "score-maths-first" / "nll_scores" / "maths" / "high"
    upstream = json.loads((scores / "manifest.json").read_text())["identity"]["inputs"]
    assert [entry["name"] for entry in upstream] == ["nemotron/candidate_pools/maths", "nemotron/model"]
    recipe = SYSTEMS.read_recipe(tmp_path / "out" / "recipes" / "score-maths-first.yaml")
    assert {target.role: target.state(tmp_path / "out")[0] for target in recipe.targets()} == {
        "nemotron/model": "current",
        "nemotron/nll_scores/maths/high": "current",
        "nemotron/score_report": "current",
    }
    again = corpusmill("run", "score-maths-first", "--data", tmp_path / "out")
    assert again.returncode == 0, again.stderr
    key = dg.AssetKey(["nemotron", "score-maths-first", "nll_scores"])
    pools_of_scores = build_definitions(tmp_path / "out").resolve_asset_graph().get(key).parent_keys
    assert dg.AssetKey(["nemotron", "mine", "candidate_pools"]) in pools_of_scores

    path = sorted(pools.rglob("*.parquet"))[0]
    path.chmod(0o644)
    flip(path)
    edited = score(corpusmill, pools, models / "second", tmp_path / "out")
    assert edited.returncode == 1
    line = only_line(edited)
    assert line.startswith(f"{path}: sha256 is ") and ", sealed with " in line
    assert line.endswith(f"remove {pools / 'maths'}, and run its recipe again")
    assert half_written(tmp_path) == []
