"""Six datasets of a hub are built and published, also after kills."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill, Started, type_page
from faulty_hub import FaultyHub
from nemotron_hub import SHIPPED

from pipeline_assets.build.rows.row_stores import open_rows
from pipeline_assets.build.rows.source_record import read_record
from pipeline_assets.build.rows.source_row import HubRow
from pipeline_assets.build.rows.trace import trace_row
from pipeline_assets.corpus.nemotron.splits import dataset_key
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_http import HubRequest, Origin, Response
from pipeline_assets.demo.loopback_hub import HUB_FOLDER
from pipeline_assets.demo.loopback_writes import OBJECTS_FOLDER
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS

pytestmark = pytest.mark.slow


class KillingHub(FaultyHub):
    """Hub that kills a process at one of its requests, before or after the answer."""

    victim: subprocess.Popen[str] | None = None
    kill_at = 0
    answered = False
    counting = threading.Lock()

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        if not self.kill_at:
            return super().answer(origin, request)
        with self.counting:  # requests arrive concurrently, also while another is answered
            is_target = self.kill_at == 1
            self.kill_at = max(0, self.kill_at - 1)
        if is_target and not self.answered:
            self._kill()
        answer = super().answer(origin, request)
        if is_target and self.answered:
            self._kill()
        return answer

    def _kill(self) -> None:
        while self.victim is None:  # the command may send requests before its process is noted
            time.sleep(0.001)
        self.victim.kill()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillingHub]:
    root = tmp_path_factory.mktemp("root")
    write_inputs(root, "nemotron")
    folder = root / HUB_FOLDER
    (folder / "datasets" / "me").mkdir()
    with KillingHub(folder, writable=True) as hub:
        yield hub


@pytest.fixture(scope="module")
def env(hub: KillingHub) -> dict[str, str]:
    return {**hub.client_environment(), "CORPUSMILL_WORKERS": "0", "CORPUSMILL_HUB_TRIES": "2"}


@pytest.fixture(scope="module")
def root(
    hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Build all targets of the shipped recipe in a data root and publish the pools."""
    root = tmp_path_factory.mktemp("root")
    content = yaml.safe_load(SHIPPED.read_text())
    for section in content["datasets"]:
        section["revision"] = hub.commits()[section["dataset"]]
    content |= {"name": "mine", "publish": {"repo": "loopback/{dataset}-pools", "allow_unknown_licences": True}}
    content["rows"]["max_reject_fraction"] = "0.5"
    (root / "recipes").mkdir()
    (root / "recipes" / "mine.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    done = corpusmill("run", "mine", "--data", root, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{hub.endpoint}/datasets/loopback/nemotron-math-v2-pools at " in done.stdout
    return root


def test_pools_of_each_dataset_are_published_as_a_hub_dataset(root: Path, hub: KillingHub) -> None:
    for section in yaml.safe_load(SHIPPED.read_text())["datasets"]:
        name = dataset_key(section["dataset"])
        pools, repo = root / "nemotron" / "mine" / "candidate_pools" / name, f"loopback/{name}-pools"
        folder = hub.folder / "datasets" / repo
        files = {path.relative_to(pools).as_posix() for path in pools.rglob("*.parquet")}
        assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")} == files != set()
        assert all((folder / file).read_bytes() == (pools / file).read_bytes() for file in files)
        published = root / "nemotron" / "mine" / "published_pools" / name
        manifest = json.loads((published / "manifest.json").read_bytes())
        assert manifest["provenance"]["published"]["commit"] == hub.commits()[repo]
        publication = json.loads((published / "publication.json").read_bytes())
        assert publication["digest"] == json.loads((pools / "manifest.json").read_bytes())["digest"]


@pytest.mark.parametrize(
    ("kind", "config", "rows"),
    [
        ("inventory/nemotron-agentic-v1/tool_calling", None, 0),
        ("normalized_shards/nemotron-agentic-v1/tool_calling", "default", 12),
        ("deduplicated/nemotron-agentic-v1/tool_calling", "default", 10),
        ("hf_layout/nemotron-agentic-v1", "default", 24),
    ],
)
def test_any_sealed_folder_is_published_with_its_configs(
    root: Path, hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill, kind: str, config: str | None, rows: int
) -> None:
    folder, repo = root / "nemotron/mine" / kind, f"loopback/as-{kind.replace('/', '-')}"

    done = corpusmill("nemotron", "publish", repo, folder, env=env)

    assert done.returncode == 0, done.stderr
    copy = hub.folder / "datasets" / repo
    card = (copy / "README.md").read_text()
    metadata = yaml.safe_load(card.removeprefix("---\n").partition("\n---\n")[0])
    assert [entry["config_name"] for entry in metadata.get("configs", [])] == ([config] if config else [])
    assert sum(entry["num_examples"] for entry in metadata.get("dataset_info", {}).get("splits", [])) == rows
    script = card.rsplit("```python\n", 1)[1].partition("```")[0]
    subprocess.run([sys.executable, "-c", script, str(copy)], check=True)


def test_a_rebuild_sends_nothing(root: Path, hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill) -> None:
    hub.requests.clear()

    done = corpusmill("rebuild", root / "nemotron/mine/published_pools/nemotron-math-v2", env=env)

    assert (done.returncode, done.stdout.split()[0]) == (0, "identical"), done.stdout + done.stderr
    assert [sent for sent in hub.requests if sent.method not in ("GET", "HEAD")] == []


def test_recipe_without_a_token_is_refused(root: Path, env: dict[str, str], corpusmill: Corpusmill) -> None:
    recipe = root / "recipes" / "mine.yaml"
    (root / "recipes" / "other.yaml").write_text(
        recipe.read_text().replace("name: mine", "name: other").replace("-pools", "-others")
    )

    done = corpusmill("run", "other", "--data", root, env={**env, "HF_TOKEN": ""})

    assert done.returncode == 2
    assert "HF_TOKEN: no token is set; set it to a token with write access" in done.stderr


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kill_at", [6, 9, 14, 17])
def test_killed_publication_is_resumed_by_the_same_command(
    root: Path,
    hub: KillingHub,
    env: dict[str, str],
    started: Started,
    corpusmill: Corpusmill,
    kill_at: int,
    answered: bool,
) -> None:
    repo = f"loopback/killed-{kill_at}-{answered}".lower()
    pools = root / "nemotron" / "mine" / "candidate_pools" / "nemotron-agentic-v1"
    words = ["nemotron", "publish", repo, pools, "--allow-unknown-licences"]
    hub.requests.clear()
    hub.titles.clear()
    for stored in (hub.folder / OBJECTS_FOLDER).iterdir():  # files that earlier tests published would not be sent
        stored.unlink()

    hub.victim, hub.kill_at, hub.answered = None, kill_at, answered
    hub.victim = first = started(*words, env=env)
    first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL
    second = corpusmill(*words, env=env)
    assert second.returncode == 0, second.stderr

    folder = hub.folder / "datasets" / repo
    assert all(
        (folder / path.relative_to(pools)).read_bytes() == path.read_bytes() for path in pools.rglob("*.parquet")
    )
    sent = [put.path for put in hub.requests if put.method == "PUT" and put.status == 200 and "/upload/" in put.path]
    assert len(sent) == len(set(sent)) > 0
    assert len(hub.titles) == len(set(hub.titles)) == 2


def test_dry_run_lists_commits_and_sends_nothing(
    root: Path, hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill, tmp_path: Path
) -> None:
    pools, words = root / "nemotron/mine/candidate_pools/nemotron-agentic-v1", ["nemotron", "publish"]

    done = corpusmill(*words, "loopback/tried", pools, "--dry-run", env=env)

    assert done.returncode == 0 and "will be created, private" in done.stdout and "commit 2 of 2" in done.stdout
    alone = shutil.copytree(pools, tmp_path / "around" / "one" / "pools").parents[1]
    shutil.copytree(pools, tmp_path / "around" / "one" / ".pools.building.7")  # as after a crash
    nested = corpusmill(*words, "loopback/tried", alone, "--dry-run", "--data", root, env=env)
    around = corpusmill(*words, "loopback/tried", root / "nemotron/mine/candidate_pools", "--dry-run", env=env)
    assert (
        nested.returncode == 0 and around.returncode == 2 and "expected one folder to publish, got 6" in around.stderr
    )
    assert not (hub.folder / "datasets" / "loopback" / "tried").exists()


def test_page_commands_work(hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill, tmp_path: Path) -> None:
    run_all, pools, planned, published, traced, record = (
        result.stdout for _, result in type_page("publishing.md", corpusmill, cwd=tmp_path, env=env)
    )

    folder = tmp_path / "out" / "nemotron"
    assert run_all.count("built ") > 90 and "candidate_pools/nemotron-math-v2" in run_all
    assert f"corpusmill nemotron publish OWNER/nemotron-math-v2 {folder / 'pools/candidate_pools'}" in pools
    same = [
        json.loads((folder / name / "candidate_pools/nemotron-agentic-v1/manifest.json").read_bytes())["identity"]
        for name in ("pools", "nemotron_all")
    ]
    assert same[0]["files"] == same[1]["files"] != []
    assert "will be created, private" in planned and "2 commits created" in published
    assert "nvidia/Nemotron-Math-v2@" in traced and json.loads(record)["data_source"] == "made"


def test_heads_are_requested_once(hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill, tmp_path: Path) -> None:
    words = ["nemotron", "run-all", "--max-records", "2", "--out-dir", tmp_path / "out"]
    first = corpusmill(*words, env=env)
    hub.requests.clear()

    again = corpusmill(*words, env=env)

    assert (first.returncode, again.returncode) == (0, 0), again.stderr[-2000:]
    assert "built " not in again.stdout and hub.requests == []


def test_reports_cover_the_datasets_that_succeeded(env: dict[str, str], corpusmill: Corpusmill, tmp_path: Path) -> None:
    write_inputs(tmp_path, "nemotron")
    (tmp_path / "hub/datasets/nvidia/Nemotron-Science-v1/.gated").touch()
    words = ("nemotron", "run-all", "--max_records", "2", "--out_dir", tmp_path / "out")
    with FaultyHub(tmp_path / "hub") as served:
        done = corpusmill(*words, env={**env, "HF_ENDPOINT": served.endpoint, "HF_TOKEN": ""})

    assert done.returncode == 1, done.stderr[-2000:]
    assert "accept the terms on " in done.stderr and "no revision is pinned" not in done.stderr
    reports = tmp_path / "out/nemotron/nemotron_all_partial"
    report = json.loads((reports / "pool_report/report.json").read_text())
    assert len(report["datasets"]) == 5 and "nemotron-science-v1" not in report["datasets"]
    assert f"{reports / 'pool_report'}  without nemotron-science-v1" in done.stdout


def test_every_row_of_every_pool_is_traced_to_its_source_record(root: Path, hub: KillingHub) -> None:
    files = HubFiles(root / "hub_cache", endpoint=hub.endpoint)
    traced_rows = 0
    for section in yaml.safe_load(SHIPPED.read_text())["datasets"]:
        store = open_rows(
            root / "nemotron/mine/candidate_pools" / dataset_key(section["dataset"]), SYSTEMS.kinds, Lineage(root)
        )
        for number in range(len(store)):
            [traced] = trace_row(store, number)
            source = traced.text.source.rows[0]
            assert isinstance(source, HubRow) and source.dataset == section["dataset"]
            record = read_record(source, files)
            content = (hub.folder / "datasets" / source.dataset / source.path).read_bytes()
            assert content[source.row : source.row + len(record) + 1] == record + b"\n"
            row = json.loads(record)
            prompt = row.get("text") or (row["messages"][-1]["content"] if row.get("messages") else row["problem"])
            assert prompt in traced.text.part.text
            traced_rows += 1
    assert traced_rows >= 200


def test_no_row_is_lost_between_the_source_and_the_pools(root: Path, hub: KillingHub) -> None:
    for section in yaml.safe_load(SHIPPED.read_text())["datasets"]:
        name = dataset_key(section["dataset"])
        lines = sum(
            path.read_bytes().count(b"\n")
            for path in (hub.folder / "datasets" / section["dataset"] / "data").glob("*.jsonl")
        )
        for kind in ("normalized_shards", "deduplicated", "candidate_pools"):
            folders = [root / "nemotron/mine" / kind / name]
            if kind != "candidate_pools":
                folders = [folders[0] / split for split in section["splits"]]
            ledgers = [open_artifact(folder).manifest.identity.ledger for folder in folders]
            assert all(ledger.adds_up for ledger in ledgers)
            assert sum(ledger.rows_in for ledger in ledgers) == lines
            lines = sum(ledger.out for ledger in ledgers)
