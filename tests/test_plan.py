"""`corpusmill plan` as a user types it: before a build, after it, and with wrong input."""

import json
import shutil
from pathlib import Path

import pytest
from answers import Corpusmill
from faulty_hub import FaultyHub

from pipeline_assets.commands.plan import _plan_lines
from pipeline_assets.corpus.spine.inventory import ArtifactStatus
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.trust.figures import Planned, Size, TrackRecord
from pipeline_assets.corpus.trust.plan import ArtifactPlan, RecipePlan
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.systems.scoring import NLL_SCORES, SCORE_REPORT
from pipeline_assets.systems.stage_a import PACKED

NOWHERE = {"HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_HUB_TRIES": "1"}


@pytest.fixture
def fresh(demo_root: Path, tmp_path: Path) -> Path:
    """A data root that holds the demo's recipe and nothing else."""
    shutil.copytree(demo_root / "recipes", tmp_path / "data" / "recipes")
    return tmp_path / "data"


def test_it_tells_what_will_be_fetched_and_what_is_not_known(
    corpusmill: Corpusmill, fresh: Path, hub: FaultyHub
) -> None:
    result = corpusmill("plan", "healing_text_v1", "--data", fresh, "--mbit", 8, env={"HF_ENDPOINT": hub.endpoint})

    lines = [line.strip() for line in result.stdout.splitlines()]
    sent = sum(request.bytes_sent for request in hub.requests)
    files = list((hub.folder / "datasets" / EDU_DATASET / "data").rglob("*.parquet"))
    rest = sum(path.stat().st_size - 65_536 for path in files)
    assert (result.returncode, result.stderr) == (0, "")
    assert lines[0] == f"healing_text_v1  {fresh}/recipes/healing_text_v1.yaml"
    assert lines[1] == f"planning fetched {sent / 1e3:,.1f} kB: listing and footers, which stay in the cache"
    assert sent < rest + len(files) * 65_536
    assert [line.split()[:2] for line in lines if line.startswith("missing")] == [
        ["missing", line] for line in folders(fresh)
    ]
    assert "reads 8 of 8 files, 21 row groups, 1,050 rows" in lines
    told = " ".join(lines)
    assert (
        "169,043 bytes to fetch (less what the cache has); "
        "523.4 kB of files, 1,050 rows read (the listing and footers); "
        "0.2 s to fetch it (8 Mbit/s, as stated) healing/healing_text_manifest: 1 missing"
    ) in told
    assert "in all, with 2 workers" in lines
    assert "to fetch: 169,043 bytes; 0.2 s: 8 Mbit/s, as stated" in lines
    assert told.count("unknown") == 1
    assert told.endswith(
        "unknown before a first build here with 2 workers: time to build, memory and disk of "
        "healing/fineweb_edu_snapshot, healing/healing_text_manifest, healing/megatron_split, healing/megatron_dataset"
    )


def folders(root: Path) -> list[str]:
    recipe = (root / "recipes" / "healing_text_v1.yaml").read_text()
    commit = next(line.split()[-1] for line in recipe.splitlines() if "revision:" in line)
    splits = [f"megatron/healing_text_v1/{split}" for split in ("train", "valid")]
    return [
        f"corpora/fineweb_edu/{commit}",
        "selections/healing_text_v1",
        *splits,
        "megatron/healing_text_v1",
    ]


def test_as_json_every_figure_has_a_basis(corpusmill: Corpusmill, fresh: Path, demo_root: Path, hub: FaultyHub) -> None:
    (fresh / "hub_cache").symlink_to(demo_root / "hub_cache")

    result = corpusmill("plan", "healing_text_v1", "--data", fresh, "--json", env={"HF_ENDPOINT": hub.endpoint})

    report = json.loads(result.stdout)
    figures = [figure for artifact in report["artifacts"] for figure in artifact["planned"].values()]
    assert (report["bytes_to_fetch"], report["bytes_fetched_to_plan"], len(hub.requests)) == (0, 0, 0)
    assert len(figures) == 5  # without fetching, which takes no time
    assert all(figure.keys() == {"value", "basis"} and figure["basis"] for figure in figures)
    assert [room["fits"] for room in report["room"]] == [True]
    assert (report["build_seconds"], report["cpu_seconds"], report["warnings"]) == (None, None, [])


def test_a_corpus_too_small_for_its_budget_is_a_no(corpusmill: Corpusmill, fresh: Path, hub: FaultyHub) -> None:
    path = fresh / "recipes" / "healing_text_v1.yaml"
    path.write_text(path.read_text().replace("token_budget: 244500", "token_budget: 999000000"))

    result = corpusmill("plan", "healing_text_v1", "--data", fresh, env={"HF_ENDPOINT": hub.endpoint})

    warnings = [line for line in result.stdout.splitlines() if line.startswith("WARNING")]
    assert result.returncode == 1
    assert [line.split(":")[0] for line in warnings] == ["WARNING train", "WARNING valid"]
    assert warnings[0].endswith(
        "of 899,100,000 tokens; the dataset has only 3,173,920 text_bytes or so in all: lower `megatron.token_budget`"
    )


def test_planned_stands_beside_real(corpusmill: Corpusmill, demo_root: Path) -> None:
    result = corpusmill("plan", "healing_text_v1", "--data", demo_root, env=NOWHERE)

    lines = [line.strip() for line in result.stdout.splitlines()]
    assert (result.returncode, result.stderr) == (0, "")
    assert sum(line.startswith("current  ") for line in lines) == 5
    exact = "169,043 bytes to fetch (as planned), 523.4 kB of files (as planned), 1,050 rows read (as planned)"
    assert exact in lines
    assert any("tokens (planned +" in line for line in lines)
    assert "in all" not in result.stdout


def test_a_changed_recipe_needs_replace_and_says_so(corpusmill: Corpusmill, root: Path, hub: FaultyHub) -> None:
    path = root / "recipes" / "healing_text_v1.yaml"
    path.write_text(path.read_text().replace("int_score >= 3", "int_score >= 2"))

    result = corpusmill("plan", "healing_text_v1", "--data", root, env={"HF_ENDPOINT": hub.endpoint})

    lines = [line.strip() for line in result.stdout.splitlines()]
    [stale] = [number for number, line in enumerate(lines) if line.startswith("stale  corpora/")]
    assert lines[stale].endswith("(the recipe changed (rules: ['int_score >= 3'] → ['int_score >= 2']))")
    assert lines[stale + 1].startswith("`run` needs --replace, or a new name in the recipe;")


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (("fineweb_edu\n", "fineweb_edu\n  sead: 1\n"), 2, "unknown key `snapshot.sead`; did you mean `seed`?"),
        (("data/*/*.parquet", "data/*.arrow"), 2, "no file matches data/*.arrow; correct `files`; there are README.md"),
        (("id: id", "id: key"), 2, "there is no column `key`; it has text, id, dump"),
    ],
    ids=["key", "files", "column"],
)
def test_a_wrong_recipe_is_one_line(
    corpusmill: Corpusmill, fresh: Path, hub: FaultyHub, change: tuple[str, str], status: int, words: str
) -> None:
    path = fresh / "recipes" / "healing_text_v1.yaml"
    path.write_text(path.read_text().replace(*change))

    result = corpusmill("plan", "healing_text_v1", "--data", fresh, env={"HF_ENDPOINT": hub.endpoint})

    complaint, *rest = result.stderr.splitlines()
    assert (result.returncode, result.stdout) == (status, "")
    assert words in complaint
    assert rest == []


def test_a_hub_that_is_down_says_how_to_go_on(corpusmill: Corpusmill, fresh: Path) -> None:
    result = corpusmill("plan", "healing_text_v1", "--data", fresh, env=NOWHERE)

    assert result.returncode == 1
    assert f"{EDU_DATASET} can't be reached" in result.stderr.splitlines()[0]
    assert result.stderr.splitlines()[1] == f"to go on: corpusmill plan healing_text_v1 --data {fresh}"


def test_gpu_hours_and_their_price_are_told_from_what_earlier_scores_took() -> None:
    """Scores of a sample took 36 GPU seconds; of all rows they will take a hundred times as many."""
    target = NLL_SCORES.target("mine", {}, partition="maths/low")
    figures = {"gpu_seconds": Planned(3600.0, "as in 1 earlier build here"), "tokens": Planned(9_000_000, "the same")}
    status = ArtifactStatus(target, "missing", "missing", None, None, Size(), None, None)
    planned = RecipePlan([ArtifactPlan(status, figures)], 0, 0, None, [])

    told, unpriced = ("\n".join(_plan_lines(planned, "mine", 1, cost)) for cost in (3.95, None))

    assert planned.gpu_hours == 1.0
    assert "9,000,000 tokens (the same); 60.0 min of GPU (as in 1 earlier build here)" in told
    assert "GPU: 1.00 hours, which cost 3.95" in told
    assert "its price is unknown: --gpu-price says it" in unpriced


def test_each_figure_has_its_own_basis_and_what_is_unknown_is_said_once_with_its_kinds() -> None:
    """Of two sources there were three builds, of another two, none with as many workers; nothing of scores."""
    here = "as in {} earlier builds here"
    figures = [
        {
            "tokens": Planned(9, "`pack.num_seqs`"),
            "bytes": Planned(1000, here.format(builds)),
            "cpu_seconds": Planned(2.0, here.format(builds)),
            "documents": Planned(5, here.format(16)),
        }
        for builds in (2, 3, 3)
    ]
    asked = [*((PACKED, of_kind) for of_kind in figures), (NLL_SCORES, {}), (SCORE_REPORT, {})]
    targets = [kind.target("mine", {}, partition=f"part-{number}") for number, (kind, _) in enumerate(asked)]
    missing = [ArtifactStatus(target, "missing", "missing", None, None, Size(), None, None) for target in targets]
    plans = [ArtifactPlan(status, of_kind) for status, (_, of_kind) in zip(missing, asked, strict=True)]

    told = " ".join(line.strip() for line in _plan_lines(RecipePlan(plans, 0, 0, None, []), "mine", 4, None))

    assert (told.count("earlier build"), told.count("unknown")) == (2, 1)
    assert (
        "stage_a/packed: 3 missing missing  stage_a/mine/packed/part-0 "
        "missing  stage_a/mine/packed/part-1, and 1 more to build "
        "15 documents (as in 16 earlier builds here); 27 tokens (`pack.num_seqs`); "
        "3.0 kB on disk, 6.0 s of CPU (as in 2 to 3 earlier builds here) nemotron/nll_scores: 1 missing"
    ) in told
    assert told.endswith(
        "unknown before a first build here with 4 workers: time to build and memory of stage_a/packed; "
        "time to build, memory and disk of nemotron/nll_scores, nemotron/score_report"
    )


def test_gpu_seconds_of_a_build_are_in_its_record(tmp_path: Path) -> None:
    target = NLL_SCORES.target("mine", {}, partition="maths/low")

    def made(building: StagingDir) -> BuildResult:
        counts = {"documents": 10, "ledger": {"in": 10, "out": 10, "dropped": {}, "rejected": {}}}
        return BuildResult([], counts, {}, provenance={"gpu_seconds": 36.0, "took_in": {"bytes": 1000, "rows": 10}})

    target.build(tmp_path, made, False, {})
    forecast = TrackRecord(tmp_path).forecast(target.kind, target.partition, 2, Size(100_000, None))

    assert forecast["gpu_seconds"].value == pytest.approx(3600)
