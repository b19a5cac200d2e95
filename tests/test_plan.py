"""`corpusmill plan` before a build, after it, and with wrong input."""

import json
import shutil
from pathlib import Path

import pytest
from command_results import Corpusmill
from faulty_hub import FaultyHub

from pipeline_assets.demo.corpora import EDU_DATASET

OFFLINE = {"HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_HUB_TRIES": "1"}


@pytest.fixture
def new_root(demo_root: Path, tmp_path: Path) -> Path:
    shutil.copytree(demo_root / "recipes", tmp_path / "data" / "recipes")
    return tmp_path / "data"


def test_a_plan_has_fetched_and_written_bytes(corpusmill: Corpusmill, new_root: Path, demo_hub: FaultyHub) -> None:
    result = corpusmill("plan", "healing_text_v1", "--data", new_root, env={"HF_ENDPOINT": demo_hub.endpoint})

    lines = [line.strip() for line in result.stdout.splitlines()]
    sent = sum(request.bytes_sent for request in demo_hub.requests)
    files = list((demo_hub.folder / "datasets" / EDU_DATASET / "data").rglob("*.parquet"))
    rest = sum(path.stat().st_size - 65_536 for path in files)
    assert (result.returncode, result.stderr) == (0, "")
    assert lines[0] == f"healing_text_v1  {new_root}/recipes/healing_text_v1.yaml"
    assert lines[1] == f"planning fetched {sent / 1e3:,.1f} kB to the cache: listing and footers"
    assert sent < rest + len(files) * 65_536
    assert [line.split()[1] for line in lines if line.startswith("missing")] == [
        f"corpora/fineweb_edu/{demo_hub.commits()[EDU_DATASET]}",
        "selections/healing_text_v1",
        *(f"megatron/healing_text_v1{split}" for split in ("/train", "/valid", "")),
    ]
    assert "reads 8 of 8 files, 21 row groups, 1,050 rows" in lines
    fetched = "169,043 bytes to fetch (excluding cached bytes); 523.4 kB of files"
    assert f"{fetched}, 1,050 rows read (the listing and footers)" in lines
    assert lines[lines.index("244,500 tokens (`megatron.token_budget`)") + 1] == "978.0 kB on disk (estimate)"
    on_disk = "on disk: about 1.5 MB, if every document is kept"  # the snapshot's files and the tokens
    assert lines[-4:-1] == ["total", "to fetch: 169,043 bytes", on_disk]
    assert lines[-1].startswith(f"{new_root}: 1.1 MB needed by known figures, ")


def test_every_figure_in_json_has_a_basis(
    corpusmill: Corpusmill, new_root: Path, demo_root: Path, demo_hub: FaultyHub
) -> None:
    (new_root / "hub_cache").symlink_to(demo_root / "hub_cache")

    result = corpusmill("plan", "healing_text_v1", "--data", new_root, "--json", env={"HF_ENDPOINT": demo_hub.endpoint})

    report = json.loads(result.stdout)
    figures = [figure for artifact in report["artifacts"] for figure in artifact["planned"].values()]
    assert (report["bytes_to_fetch"], report["bytes_fetched_to_plan"], len(demo_hub.requests)) == (0, 0, 0)
    assert len(figures) == 5
    assert all(figure.keys() == {"value", "basis"} and figure["basis"] for figure in figures)
    assert [room["fits"] for room in report["room"]] == [True]
    assert report["warnings"] == []


def test_planned_figures_are_compared_with_real_ones(corpusmill: Corpusmill, demo_root: Path) -> None:
    result = corpusmill("plan", "healing_text_v1", "--data", demo_root, env=OFFLINE)

    lines = [line.strip() for line in result.stdout.splitlines()]
    assert (result.returncode, result.stderr) == (0, "")
    assert sum(line.startswith("current  ") for line in lines) == 5
    assert "169,043 bytes to fetch (as planned), 523.4 kB of files (as planned), 1,050 rows read (as planned)" in lines
    assert any("tokens (planned +" in line for line in lines)
    assert "total" not in lines


def test_a_plan_of_a_changed_recipe_asks_for_replace(corpusmill: Corpusmill, root: Path, demo_hub: FaultyHub) -> None:
    path = root / "recipes" / "healing_text_v1.yaml"
    path.write_text(path.read_text().replace("int_score >= 3", "int_score >= 2"))

    result = corpusmill("plan", "healing_text_v1", "--data", root, env={"HF_ENDPOINT": demo_hub.endpoint})

    lines = [line.strip() for line in result.stdout.splitlines()]
    [stale] = [number for number, line in enumerate(lines) if line.startswith("stale  corpora/")]
    assert lines[stale].endswith("(the recipe changed (`rules`: ['int_score >= 3'] → ['int_score >= 2']))")
    assert lines[stale + 1].startswith("`run` needs --replace, or a new name in the recipe;")


def test_artifacts_are_kept_if_their_missing_inputs_are_rebuilt(
    corpusmill: Corpusmill, root: Path, demo_hub: FaultyHub
) -> None:
    [snapshot] = (root / "corpora" / "fineweb_edu").glob("[0-9a-f]*/")
    shutil.rmtree(snapshot)
    env = {"HF_ENDPOINT": demo_hub.endpoint}

    text = corpusmill("plan", "healing_text_v1", "--data", root, env=env).stdout
    planned = json.loads(corpusmill("plan", "healing_text_v1", "--data", root, "--json", env=env).stdout)["artifacts"]
    built = corpusmill("run", "healing_text_v1", "--data", root, env=env)

    assert {entry["state"] for entry in planned} == {"missing", "stale"}
    assert not any(entry["needs_replace"] for entry in planned)
    assert "--replace" not in text
    assert "`run` keeps those whose inputs are rebuilt with equal content" in text
    assert (built.returncode, built.stdout.count("built ")) == (0, 1), built.stderr
