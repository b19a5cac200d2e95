"""Score shards on another machine: reuse, repair and refusals."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from crash_points import kill_at
from forgery import flip
from refusals import refusal
from tiny_scoring import build_rows, build_scorer, save_whole_model, write_pool

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring import nll
from pipeline_assets.corpus.scoring.launcher import HubFileSet, ScoreJob, ScoreWork
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.remote_shard import (
    Request,
    build_shard_request,
    describe_file_set,
    fetch_files,
    is_fetched,
    load_or_score,
    score_remote,
)
from pipeline_assets.corpus.scoring.score_shard import score_shard
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView

ROWS = 12
POOL = "candidates_a/train-00000-of-00001.parquet"


@dataclass(frozen=True)
class RemoteMachine:
    """Another machine, and the request that it gets."""

    request: Request
    files: Path
    scores: Path
    hub: Path  # has the same pool and model on this machine

    def score(self, request: Request | None = None) -> bytes:
        receipt = score_remote(request or self.request, self.files, self.scores)
        return (self.scores / receipt.files[0].path).read_bytes()

    def list_suffixes(self) -> list[str]:
        """List the suffixes of the score files."""
        return sorted(path.suffix for path in self.scores.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteMachine]:
    """Fetch a tiny model from a hub, and a pool with a shard of many batches."""
    folder = tmp_path_factory.mktemp("far")
    write_pool(folder / "hub" / "datasets" / "me" / "pools", build_rows(ROWS), POOL)
    save_whole_model(folder / "hub" / "models" / "me" / "tiny")
    with LoopbackHub(folder / "hub") as hub:
        files = HubFiles(folder / "cache", endpoint=hub.endpoint)
        pools, model = (list_set(repo, name) for repo, name in ((files, "me/pools"), (files.for_models(), "me/tiny")))
        cached = replace(files, cache=folder / "files")
        fetch_files({"pools": describe_file_set(pools), "models": {"sha256:tiny": describe_file_set(model)}}, cached)
    recipe = ScoringRecipe(batch_tokens=150)
    work = ScoreWork("pools/train", recipe, pools, model, "sha256:tiny", rows=ROWS, text_bytes=1000)
    job = ScoreJob("00000-000000000", POOL, Path("not here"), tuple(range(0, ROWS, 2)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(folder))
        yield RemoteMachine(build_shard_request(work, job, None), folder / "files", folder / "scores", folder / "hub")


def list_set(hub: HubFiles, name: str) -> HubFileSet:
    commit = hub.resolve(name)
    return HubFileSet(name, commit, {file.path: file for file in hub.list_files(name, commit)})


@pytest.fixture
def far(fetched: RemoteMachine, tmp_path: Path) -> RemoteMachine:
    return replace(fetched, scores=tmp_path / "scores")


@pytest.fixture(scope="module")
def expected(fetched: RemoteMachine, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Score the same shard on this machine."""
    folder = StagingView(tmp_path_factory.mktemp("here"))
    job = ScoreJob("00000-000000000", POOL, fetched.hub / "datasets/me/pools" / POOL, tuple(range(0, ROWS, 2)))
    receipt = score_shard(job, WHOLE_SHARD, folder, build_scorer(fetched.hub / "models/me/tiny", batch_tokens=150))
    return folder.path(receipt.files[0].path).read_bytes()


def test_remote_scores_equal_local_ones_and_are_reused_even_for_another_commit(
    far: RemoteMachine, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_request = {**far.request, "pools": {**far.request["pools"], "revision": "1" * 40, "name": "you/pools"}}
    assert is_fetched(far.request, far.files)
    assert far.score() == expected

    monkeypatch.setattr(nll, "_batch_nll", Mock(side_effect=AssertionError))

    assert [far.score(), far.score(other_request)] == [expected] * 2
    assert far.list_suffixes() == [".json", ".parquet"]


@pytest.mark.parametrize("damage", [flip, Path.unlink])
@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_damaged_remote_scores_are_scored_again(
    far: RemoteMachine, expected: bytes, suffix: str, damage: Callable[[Path], None]
) -> None:
    far.score()
    [path] = far.scores.rglob(f"*{suffix}")
    damage(path)

    assert far.score() == expected
    assert far.list_suffixes() == [".json", ".parquet"]


def test_scores_are_complete_or_absent_whenever_the_machine_dies(far: RemoteMachine) -> None:
    """It dies before each step on the disk, from the first to the last."""

    def score(folder: StagingView) -> Receipt:
        with DurableFile(folder.path("made")) as file:
            file.write(b"scores")
        return Receipt([OutputFile.uncompressed("made", 1, file)], {})

    for step in itertools.count(1):
        scores = far.scores / str(step)
        was_killed = kill_at(step, lambda: load_or_score(far.request, scores, score)) is not None  # noqa: B023

        receipt = load_or_score(far.request, scores, score)
        assert (scores / receipt.files[0].path).read_bytes() == b"scores"
        if not was_killed:
            break
    assert step > 10


def test_shard_is_given_up_after_three_unfinished_attempts(far: RemoteMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(far, scores=far.scores / "before").score()  # loads the model, in whatever order the tests run
    with monkeypatch.context() as patched:
        patched.setattr(nll, "_batch_nll", Mock(side_effect=MemoryError))
        for _ in range(3):
            with pytest.raises(MemoryError):
                far.score()

    line = refusal(far.score, RetryableError)

    assert line.startswith("shard 00000-000000000 of pools/train: 3 attempts ended before they finished")
    far.score()  # the next request tries again


def test_missing_files_are_named(far: RemoteMachine, tmp_path: Path) -> None:
    without_files = replace(far, files=tmp_path / "empty")

    assert not is_fetched(far.request, without_files.files)
    line = refusal(without_files.score, RetryableError)
    assert line.startswith("me/pools@") and "not fetched to the machine that scores" in line


def test_app_of_another_version_and_unexpected_gpu_are_refused(far: RemoteMachine) -> None:
    stage = {"name": "nemotron_nll_scores", "version": 9}
    recipe = {**far.request["recipe"], "device": "cuda", "dtype": "bfloat16"}

    version = refusal(lambda: far.score({**far.request, "stage": stage}), UsageError)
    gpu = refusal(lambda: far.score({**far.request, "gpu": "H100!", "recipe": recipe}), UsageError)

    assert "deploy the app again" in version and "expected H100!, got no GPU" in gpu
