"""The five datasets at their real layout on a hub: by command, by assets, with any workers, killed: equal digests."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from crash_points import count_steps, killed_at
from nemotron_hub import rows_of, write_dataset, write_hub
from one_line import only_line

from pipeline_assets.corpus.nemotron import inventory
from pipeline_assets.corpus.nemotron.splits import PARTITION_KEYS, SPLITS
from pipeline_assets.corpus.planning.recipe_plan import PlanSettings
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.rebuild.run import rebuild
from pipeline_assets.corpus.recipes.kind import RunSettings
from pipeline_assets.corpus.recipes.nemotron import NemotronRecipe
from pipeline_assets.corpus.recipes.planners import plan_recipe
from pipeline_assets.corpus.recipes.systems import KINDS
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.inventory import holdings
from pipeline_assets.definitions import defs
from resources.corpus_store import CorpusStore
from resources.hub import Hub
from resources.loopback_hub import LoopbackHub

PROJECT = Path(__file__).parents[1]
SHIPPED = PROJECT / "manifests" / "recipes" / "nemotron_v1.yaml"
AGENTIC = "nvidia/Nemotron-Agentic-v1"
Corpusmill = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def nemotron_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    """All five, running."""
    folder = tmp_path_factory.mktemp("nemotron") / "hub"
    write_hub(folder)
    with LoopbackHub(folder) as hub:
        yield hub


@pytest.fixture(scope="module")
def recipe(nemotron_hub: LoopbackHub) -> NemotronRecipe:
    """The shipped recipe, pinned to what the hub has."""
    content = yaml.safe_load(SHIPPED.read_text())
    for section in content["datasets"]:
        section["revision"] = nemotron_hub.commits()[section["dataset"]]
    return NemotronRecipe.of(content, SHIPPED)


@pytest.fixture(scope="module")
def cache(nemotron_hub: LoopbackHub, recipe: NemotronRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with all that the recipe reads."""
    folder = tmp_path_factory.mktemp("cache")
    build(recipe, tmp_path_factory.mktemp("first"), HubFiles(folder, nemotron_hub.endpoint), EngineSettings())
    return folder


def build(recipe: NemotronRecipe, root: Path, hub: HubFiles, engine: EngineSettings) -> dict[str, str]:
    """Builds all artifacts of a recipe without Dagster; their digests by role."""
    settings = RunSettings(engine, hub)
    targets = recipe.targets()
    return {target.role: KINDS[target.kind].build(target, root, False, settings).manifest.digest for target in targets}


def offline(cache: Path) -> HubFiles:
    return HubFiles(cache, endpoint="http://127.0.0.1:9", tries=1)


@pytest.fixture(scope="module")
def undisturbed(recipe: NemotronRecipe, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return build(recipe, tmp_path_factory.mktemp("undisturbed"), offline(cache), EngineSettings())


def test_every_partition_of_the_five_datasets_is_built(undisturbed: dict[str, str]) -> None:
    assert {f"nemotron/inventory/{key}" for key in PARTITION_KEYS} < undisturbed.keys()
    assert len(set(undisturbed.values())) == len(undisturbed) == 25


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_and_the_shards_change_no_digest(
    workers: int,
    recipe: NemotronRecipe,
    cache: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inventory, "SHARD_BYTES", 30_000)

    assert build(recipe, tmp_path, offline(cache), EngineSettings(workers, "fork")) == undisturbed


@pytest.mark.parametrize("share", [0.1, 0.35, 0.6, 0.85])
def test_killed_anywhere_it_goes_on_to_the_same_digests(
    share: float,
    recipe: NemotronRecipe,
    cache: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inventory, "SHARD_BYTES", 10_000)
    agentic = recipe.model_copy(update={"datasets": recipe.datasets[3:4]})
    steps = count_steps(lambda: build(agentic, tmp_path / "counted", offline(cache), EngineSettings()))

    killed_before = killed_at(
        round(share * steps), lambda: build(agentic, tmp_path / "data", offline(cache), EngineSettings())
    )
    found = build(agentic, tmp_path / "data", offline(cache), EngineSettings())

    assert killed_before is not None
    assert {role: digest for role, digest in found.items() if "coverage" not in role}.items() <= undisturbed.items()
    assert not [*(tmp_path / "data").rglob("*.building.*/*")]


def test_the_assets_come_to_the_same_digests_by_partition(
    nemotron_hub: LoopbackHub, recipe: NemotronRecipe, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "nemotron_v1.yaml").write_text(yaml.safe_dump(recipe.content()))
    resources = {
        "store": CorpusStore(data_root=str(tmp_path), nemotron_recipe="nemotron_v1", workers=0),
        "hub": Hub(endpoint=nemotron_hub.endpoint),
    }
    assets = [asset for asset in defs.assets or [] if isinstance(asset, dg.AssetsDefinition)]
    assets = [asset for asset in assets if asset.key.path[0] == "nemotron"]
    with dg.DagsterInstance.ephemeral() as instance:
        for key in ("nemotron-agentic-v1/tool_calling", "nemotron-science-v1/MCQ"):
            result = dg.materialize(
                assets,
                partition_key=key,
                instance=instance,
                resources=resources,
                selection=["nemotron/raw", "nemotron/inventory"],
            )
            assert result.success
        waiting = dg.materialize(
            assets, instance=instance, resources=resources, selection=["nemotron/metadata_coverage"]
        )

    for section, split in [one for one in recipe.all_splits() if one[1] in ("tool_calling", "MCQ")]:
        target = recipe.inventory(section, split)
        assert open_artifact(tmp_path / target.folder).manifest.digest == undisturbed[target.role]
    assert waiting.success and waiting.get_asset_materialization_events() == []


def test_a_partition_that_the_recipe_has_not_is_refused_with_those_it_has(
    recipe: NemotronRecipe, tmp_path: Path
) -> None:
    (tmp_path / "nemotron_v1.yaml").write_text(
        yaml.safe_dump(recipe.content() | {"datasets": recipe.content()["datasets"][2:3]})
    )
    store = CorpusStore(data_root=str(tmp_path), nemotron_recipe=str(tmp_path / "nemotron_v1.yaml"))
    assets = [asset for asset in defs.assets or [] if isinstance(asset, dg.AssetsDefinition)]
    raw = next(asset for asset in assets if asset.key.path == ["nemotron", "raw"])

    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.Failure) as refused:
        dg.materialize(
            [raw], partition_key="nemotron-math-v2/low", instance=instance, resources={"store": store, "hub": Hub()}
        )

    assert refused.value.description == (
        "choose a partition of recipe nemotron_v1: nemotron-science-v1/MCQ, nemotron-science-v1/RQA"
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of the datasets as a user may have it on disk."""
    folder = tmp_path_factory.mktemp("work")
    write_dataset(folder / "datasets" / "Nemotron-Math-v2", "nvidia/Nemotron-Math-v2", made=True)
    return folder


@pytest.fixture(scope="module")
def typed(corpusmill: Corpusmill, nemotron_hub: LoopbackHub, work: Path) -> list[subprocess.CompletedProcess[str]]:
    """What every command of docs/nemotron.md answered."""
    page = (PROJECT / "docs" / "nemotron.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```\n(corpusmill .*?)^```", page, re.MULTILINE | re.DOTALL)
    answers = []
    for command in map(shlex.split, block.splitlines()):
        env = {"HF_ENDPOINT": nemotron_hub.endpoint, "CORPUSMILL_WORKERS": "0"}
        answers.append(corpusmill(*command[1:], cwd=work, env=env))
        assert answers[-1].returncode == 0, f"{shlex.join(command)}\n{answers[-1].stderr}"
    return answers


def test_the_command_tells_what_it_built_and_comes_to_the_digests_of_the_assets(
    typed: list[subprocess.CompletedProcess[str]],
    nemotron_hub: LoopbackHub,
    work: Path,
    undisturbed: dict[str, str],
) -> None:
    lines = typed[0].stdout.splitlines()

    folder = work / "out" / "nemotron" / "inventory-nemotron-agentic-v1" / "inventory" / "nemotron-agentic-v1"
    assert lines[0] == str(folder / "interactive_agent")
    assert lines[1].strip() == undisturbed["nemotron/inventory/nemotron-agentic-v1/interactive_agent"]
    assert lines[4].strip() == undisturbed["nemotron/inventory/nemotron-agentic-v1/tool_calling"]
    assert "1 file, 3 rows (all rows)" in lines[2]
    assert lines[-1].endswith("metadata_coverage/metadata_coverage.md")
    assert f"{AGENTIC} at {nemotron_hub.commits()[AGENTIC]}" in typed[0].stderr


def test_a_sample_of_one_split_is_told_as_one(typed: list[subprocess.CompletedProcess[str]], work: Path) -> None:
    assert "1 file, 2 rows (a sample)" in typed[1].stdout

    found = json.loads(Path(typed[1].stdout.splitlines()[-2].strip()).read_bytes())
    assert [(one["split"], one["scan"]["max_rows"], one["rows"]) for one in found["splits"]] == [("MCQ", 2, None)]


def test_a_folder_is_read_as_the_hub_is(typed: list[subprocess.CompletedProcess[str]], work: Path) -> None:
    found = json.loads(Path(typed[2].stdout.splitlines()[-2].strip()).read_bytes())

    splits = {one["split"]: one for one in found["splits"]}
    assert list(splits) == list(SPLITS["nvidia/Nemotron-Math-v2"])
    assert splits["low"]["coverage"]["uuid"]["share"] == "1.0000"
    assert splits["high_part00"]["coverage"]["uuid"]["share"] == "0.0000"
    assert splits["high_part01"]["coverage"]["tools"]["share"] == "1.0000"
    assert splits["high_part02"]["tags"]["license"] == {"cc-by-sa-4.0": 3}
    assert [file["path"] for file in splits["high_part00"]["files"]] == ["data/high.part_00.jsonl"]
    assert splits["low"]["revision"] is None


def test_what_a_command_built_is_there_for_its_recipe(typed: list[subprocess.CompletedProcess[str]]) -> None:
    assert [line.split()[0] for line in typed[4].stdout.splitlines()[::2]] == ["current"] * 5


@pytest.mark.slow
def test_a_run_of_the_recipe_is_checked_and_a_rebuild_comes_to_the_same(
    corpusmill: Corpusmill, nemotron_hub: LoopbackHub, recipe: NemotronRecipe, tmp_path: Path
) -> None:
    (tmp_path / "recipes").mkdir()
    science = recipe.content() | {"datasets": recipe.content()["datasets"][2:3]}
    (tmp_path / "recipes" / "nemotron_v1.yaml").write_text(yaml.safe_dump(science))
    env = {"HF_ENDPOINT": nemotron_hub.endpoint, "CORPUSMILL_WORKERS": "0"}

    ran = corpusmill("run", "nemotron_v1", "--data", tmp_path, env=env)
    again = rebuild(
        tmp_path / "nemotron" / "nemotron_v1" / "metadata_coverage",
        tmp_path,
        RunSettings(EngineSettings(), HubFiles(tmp_path / "hub_cache", nemotron_hub.endpoint)),
        with_upstream=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert "RQA: ledger_adds_up: passed: nemotron-science-v1/RQA: 3 in = 3 out" in ran.stderr
    assert ran.stdout.count("built ") == 5
    assert [outcome.verdict for outcome in again.outcomes] == ["identical"] * 5


def test_a_plan_tells_what_is_to_be_fetched(
    nemotron_hub: LoopbackHub, recipe: NemotronRecipe, cache: Path, tmp_path: Path
) -> None:
    settings = PlanSettings(TrackRecord, EngineSettings())

    def to_fetch(hub: HubFiles) -> int:
        return plan_recipe(recipe, holdings(tmp_path, recipe.targets()), hub, settings).missing_bytes

    sizes = [len(rows_of(section.dataset, split)) for section, split in recipe.all_splits()]
    assert to_fetch(HubFiles(tmp_path / "cache", nemotron_hub.endpoint)) == sum(sizes)
    assert to_fetch(offline(cache)) == 0


@pytest.fixture
def wrong(corpusmill: Corpusmill, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Exit status and the one line of an inventory that can't be taken."""

    def answer(*options: object, **env: str) -> tuple[int, str]:
        arguments = ("nemotron", "inventory", *options, "--out-dir", tmp_path / "out", "--cpu-threads", "0")
        result = corpusmill(*arguments, cwd=tmp_path, env={"CORPUSMILL_HUB_TRIES": "1", **env})
        return result.returncode, only_line(result)

    return answer


@pytest.mark.parametrize(
    ("options", "status", "line"),
    [
        (["--split", "tool_caling"], 2, f"{AGENTIC}: there is no split 'tool_caling'; did you mean tool_calling?"),
        (["--revision", "f" * 40], 2, f"it has no revision {'f' * 40}; run `corpusmill pin {AGENTIC}` for its head"),
        (["--revision", "v2"], 2, "it has no revision v2; run"),
        (["--max-records", "0"], 2, "--max-records: it is '0'; give 1 or more"),
    ],
)
def test_a_wrong_option_is_one_line(
    wrong: Callable[..., tuple[int, str]], nemotron_hub: LoopbackHub, options: list[str], status: int, line: str
) -> None:
    found = wrong("--dataset", AGENTIC, *options, HF_ENDPOINT=nemotron_hub.endpoint)

    assert found[0] == status
    assert line in found[1]


def test_a_dataset_that_is_nowhere_is_one_line(wrong: Callable[..., tuple[int, str]]) -> None:
    words = "there is no such folder, and it is no owner/name; give a folder, or owner/name"
    assert wrong("--dataset", "chats") == (2, f"chats: {words}")
    assert wrong("--dataset", "./a/b/c") == (2, f"./a/b/c: {words}")


def test_a_folder_has_no_revision_and_must_have_rows(wrong: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    (folder / "notes.txt").write_text("no rows")

    assert wrong("--dataset", folder, "--revision", "main")[1].startswith(
        f"{folder}: --revision is given; leave it out"
    )
    assert wrong("--dataset", folder) == (
        2,
        f"{folder}: it has no JSON lines and no Parquet; give a dataset of rows",
    )


def test_a_broken_card_is_one_line_and_no_card_is_none(
    corpusmill: Corpusmill, wrong: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    folder = tmp_path / "chats"
    write_dataset(folder, AGENTIC, made=True)
    (folder / "README.md").write_text("---\nconfigs: [\n---\n")

    status, line = wrong("--dataset", folder)

    assert (status, line.startswith(f"{folder}: the card's YAML can't be read")) == (1, True)
    (folder / "README.md").unlink()
    result = corpusmill("nemotron", "inventory", "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)
    assert result.returncode == 0, result.stderr


def test_a_split_that_fails_does_not_keep_the_others_from_being_built(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    (folder / "bad.parquet").write_bytes(b"no parquet")
    (folder / "good.jsonl").write_bytes(b"{}\n")

    result = corpusmill("nemotron", "inventory", "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)

    assert result.returncode == 1
    assert "FAILED bad: " in result.stderr and "its Parquet footer can't be read" in result.stderr
    assert only_line(result).endswith(
        "1 of 2 splits failed: bad; the lines that begin with FAILED say why; the others are built"
    )
    assert "1 file, 1 row (all rows)" in result.stdout


def test_another_scan_of_the_same_split_asks_before_it_replaces(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    write_dataset(folder, AGENTIC, made=True)
    arguments = ("nemotron", "inventory", "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)
    assert corpusmill(*arguments).returncode == 0

    again = corpusmill(*arguments, "--max-records", 2)
    replaced = corpusmill(*arguments, "--max-records", 2, "--replace")

    assert again.returncode == 2
    assert "--max-records" in only_line(again) and "--replace" in only_line(again)
    assert replaced.returncode == 0 and "2 rows (a sample)" in replaced.stdout


def test_the_shipped_recipe_says_how_it_is_pinned(corpusmill: Corpusmill, tmp_path: Path) -> None:
    result = corpusmill("run", "nemotron_v1", "--data", tmp_path, "--partition", "nemotron-science-v1/MCQ")

    assert result.returncode == 2
    assert only_line(result).startswith(
        "nvidia/Nemotron-Science-v1: no revision is pinned yet; run corpusmill pin nvidia/Nemotron-Science-v1 --recipe"
    )


def test_a_dataset_beyond_the_partitions_is_built_by_the_command_alone(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "harmony-tools"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "<|start|>user<|message|>Hi<|end|>"}\n')
    arguments = ("nemotron", "inventory", "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)

    made = corpusmill(*arguments)
    (tmp_path / "out" / "nemotron").rename(tmp_path / "moved")
    ran = corpusmill("run", "inventory-harmony-tools", "--data", tmp_path / "out")

    assert made.returncode == 0 and "1 column" in made.stdout
    what = "harmony-tools/train is no partition of the asset nemotron/raw"
    fix = "build it by a command: see corpusmill nemotron --help"
    assert (ran.returncode, only_line(ran)) == (2, f"inventory-harmony-tools: {what}; {fix}")
