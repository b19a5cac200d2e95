"""Six datasets of a hub to six published ones, by a recipe and by the command; killed for good in the middle."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from answers import Corpusmill, Started
from nemotron_hub import SHIPPED, write_hub

from pipeline_assets.corpus.nemotron.splits import dataset_key
from resources.loopback_http import Answer, Ask, Origin
from resources.loopback_hub import LoopbackHub
from resources.loopback_writes import OBJECTS

pytestmark = pytest.mark.slow


# Of which no made row is in any pool: those of Math-v2 have one token of completion each, and so on.
EMPTY = {"nemotron-math-v2", "nemotron-science-v1", "nemotron-instruction-following-chat-v1"}


class KillingHub(LoopbackHub):
    """Kills a process at a request of its own, before it is answered or after what it asks for was done."""

    victim: subprocess.Popen[str] | None = None
    left = 0
    answered = False

    def answer(self, origin: Origin, ask: Ask) -> Answer:
        if self.victim is None:
            return super().answer(origin, ask)
        self.left -= 1
        if self.left == 0 and not self.answered:
            self.victim.kill()
        answer = super().answer(origin, ask)
        if self.left == 0 and self.answered:
            self.victim.kill()
        return answer


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillingHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_hub(folder, made=True)
    with KillingHub(folder, writable=True) as hub:
        yield hub


@pytest.fixture(scope="module")
def env(hub: KillingHub) -> dict[str, str]:
    return {**hub.variables(), "HF_TOKEN": "hf_any", "CORPUSMILL_WORKERS": "0", "CORPUSMILL_HUB_TRIES": "2"}


@pytest.fixture(scope="module")
def root(
    hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A data root with all that the shipped recipe asks for, and the pools published."""
    root = tmp_path_factory.mktemp("root")
    content = yaml.safe_load(SHIPPED.read_text())
    for section in content["datasets"]:
        section["revision"] = hub.commits()[section["dataset"]]
    content |= {"name": "mine", "publish": {"repo": "loopback/{dataset}-pools", "allow_unknown_licences": True}}
    content["rows"]["max_reject_fraction"] = "0.5"
    del content["hf_layout"], content["scan"]
    (root / "recipes").mkdir()
    (root / "recipes" / "mine.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    done = corpusmill("run", "mine", "--data", root, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return root


def test_the_pools_of_each_dataset_are_a_dataset_of_the_hub(root: Path, hub: KillingHub) -> None:
    for section in yaml.safe_load(SHIPPED.read_text())["datasets"]:
        name = dataset_key(section["dataset"])
        pools, repo = root / "nemotron" / "mine" / "candidate_pools" / name, f"loopback/{name}-pools"
        folder = hub.folder / "datasets" / repo
        files = {path.relative_to(pools).as_posix() for path in pools.rglob("*.parquet")}
        assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")} == files
        assert files or name in EMPTY
        assert all((folder / file).read_bytes() == (pools / file).read_bytes() for file in files)
        published = root / "nemotron" / "mine" / "published_pools" / name
        manifest = json.loads((published / "manifest.json").read_bytes())
        assert manifest["provenance"]["published"]["commit"] == hub.commits()[repo]
        said = json.loads((published / "publication.json").read_bytes())
        assert said["digest"] == json.loads((pools / "manifest.json").read_bytes())["digest"]


def test_a_rebuild_sends_nothing(root: Path, hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill) -> None:
    hub.requests.clear()

    done = corpusmill("rebuild", root / "nemotron/mine/published_pools/nemotron-math-v2", env=env)

    assert (done.returncode, done.stdout.split()[0]) == (0, "identical"), done.stdout + done.stderr
    assert [one for one in hub.requests if one.method not in ("GET", "HEAD")] == []


def test_a_recipe_without_a_token_says_so(root: Path, env: dict[str, str], corpusmill: Corpusmill) -> None:
    recipe = root / "recipes" / "mine.yaml"
    (root / "recipes" / "other.yaml").write_text(
        recipe.read_text().replace("name: mine", "name: other").replace("-pools", "-others")
    )

    done = corpusmill("run", "other", "--data", root, env={**env, "HF_TOKEN": ""})

    assert done.returncode == 2
    assert "HF_TOKEN: it isn't set; set it to a token with write access" in done.stderr


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("left", [6, 9, 14, 17])
def test_killed_for_good_the_same_command_goes_on(
    root: Path, hub: KillingHub, env: dict[str, str], started: Started, left: int, answered: bool
) -> None:
    repo = f"loopback/killed-{left}-{answered}".lower()
    pools = root / "nemotron" / "mine" / "candidate_pools" / "nemotron-agentic-v1"
    words = ["nemotron", "publish", repo, pools, "--allow-unknown-licences"]
    hub.requests.clear()
    for stored in (hub.folder / OBJECTS).iterdir():  # what others published: it would not be sent
        stored.unlink()

    hub.left, hub.answered, hub.victim = left, answered, (first := started(*words, env=env))
    first.communicate(timeout=120)
    hub.victim = None
    assert first.returncode == -signal.SIGKILL
    _, wrong = (second := started(*words, env=env)).communicate(timeout=240)
    assert second.returncode == 0, wrong

    folder = hub.folder / "datasets" / repo
    assert all(
        (folder / path.relative_to(pools)).read_bytes() == path.read_bytes() for path in pools.rglob("*.parquet")
    )
    sent = [one.path for one in hub.requests if one.method == "PUT" and one.status == 200 and "/upload/" in one.path]
    assert len(sent) == len(set(sent)) > 0
    titles = [json.loads(line)["title"] for line in (folder / ".commits.jsonl").read_text().splitlines()]
    assert len(titles) == len(set(titles)) == 2


def test_what_would_be_sent_is_told_and_not_sent(
    root: Path, hub: KillingHub, env: dict[str, str], corpusmill: Corpusmill
) -> None:
    pools, words = root / "nemotron/mine/candidate_pools/nemotron-agentic-v1", ["nemotron", "publish"]

    done = corpusmill(*words, "loopback/tried", pools, "--dry-run", env=env)

    assert done.returncode == 0 and "will be made, private" in done.stdout and "commit 2 of 2" in done.stdout
    assert not (hub.folder / "datasets" / "loopback" / "tried").exists()
