"""A score shard on another machine: what is there is found, what is cut off is made anew, the rest is refused."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from crash_points import killed_at
from forgery import flip
from refusals import refusal
from tiny_scoring import rows_of, save_whole_model, scorer_of, write_pool

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
class Far:
    """Another machine, and what it is asked.

    Attributes:
        here: where the same pool and model lie on this machine.
    """

    asked: Request
    files: Path
    scores: Path
    here: Path

    def score(self, asked: Request | None = None) -> bytes:
        receipt = score_remote(asked or self.asked, self.files, self.scores)
        return (self.scores / receipt.files[0].path).read_bytes()

    def left(self) -> list[str]:
        """The endings of what lies among the scores."""
        return sorted(path.suffix for path in self.scores.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """Files of a hub that are there: a tiny model, and a pool of which a shard is asked, of many batches."""
    folder = tmp_path_factory.mktemp("far")
    write_pool(folder / "hub" / "datasets" / "me" / "pools", rows_of(ROWS), POOL)
    save_whole_model(folder / "hub" / "models" / "me" / "tiny")
    with LoopbackHub(folder / "hub") as hub:
        files = HubFiles(folder / "cache", endpoint=hub.endpoint)
        pools, model = (_listed(one, name) for one, name in ((files, "me/pools"), (files.for_models(), "me/tiny")))
        there = replace(files, cache=folder / "files")
        fetch_files({"pools": describe_file_set(pools), "models": {"sha256:tiny": describe_file_set(model)}}, there)
    recipe = ScoringRecipe(batch_tokens=150)
    work = ScoreWork("pools/train", recipe, pools, model, "sha256:tiny", rows=ROWS, text_bytes=1000)
    job = ScoreJob("00000-000000000", POOL, Path("not here"), tuple(range(0, ROWS, 2)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(folder))
        yield Far(build_shard_request(work, job, None), folder / "files", folder / "scores", folder / "hub")


def _listed(hub: HubFiles, name: str) -> HubFileSet:
    commit = hub.resolve(name)
    return HubFileSet(name, commit, {file.path: file for file in hub.list_files(name, commit)})


@pytest.fixture
def far(fetched: Far, tmp_path: Path) -> Far:
    return replace(fetched, scores=tmp_path / "scores")


@pytest.fixture(scope="module")
def expected(fetched: Far, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the same shard comes to on this machine."""
    folder = StagingView(tmp_path_factory.mktemp("here"))
    job = ScoreJob("00000-000000000", POOL, fetched.here / "datasets/me/pools" / POOL, tuple(range(0, ROWS, 2)))
    receipt = score_shard(job, WHOLE_SHARD, folder, scorer_of(fetched.here / "models/me/tiny", batch_tokens=150))
    return folder.path(receipt.files[0].path).read_bytes()


def test_it_has_the_bytes_of_this_machine_and_what_is_asked_again_be_it_of_another_commit_is_not_scored_again(
    far: Far, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_another = {**far.asked, "pools": {**far.asked["pools"], "revision": "1" * 40, "name": "you/pools"}}
    assert is_fetched(far.asked, far.files)
    assert far.score() == expected

    monkeypatch.setattr(nll, "_batch_nll", Mock(side_effect=AssertionError))

    assert [far.score(), far.score(of_another)] == [expected] * 2
    assert far.left() == [".json", ".parquet"]


@pytest.mark.parametrize("how", [flip, Path.unlink])
@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_what_is_damaged_there_is_scored_again(
    far: Far, expected: bytes, suffix: str, how: Callable[[Path], None]
) -> None:
    far.score()
    [path] = far.scores.rglob(f"*{suffix}")
    how(path)

    assert far.score() == expected
    assert far.left() == [".json", ".parquet"]


def test_scores_are_whole_or_not_there_whenever_the_machine_goes(far: Far) -> None:
    """It goes before each step on the disk, from the first to the last."""

    def make(folder: StagingView) -> Receipt:
        with DurableFile(folder.path("made")) as file:
            file.write(b"scores")
        return Receipt([OutputFile.uncompressed("made", 1, file)], {})

    for step in itertools.count(1):
        scores = far.scores / str(step)
        was_killed = killed_at(step, lambda: load_or_score(far.asked, scores, make)) is not None  # noqa: B023

        receipt = load_or_score(far.asked, scores, make)
        assert (scores / receipt.files[0].path).read_bytes() == b"scores"
        if not was_killed:
            break
    assert step > 10


def test_what_ends_again_and_again_before_it_is_done_is_given_up(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(far, scores=far.scores / "before").score()  # loads the model, in whatever order the tests run
    with monkeypatch.context() as patched:
        patched.setattr(nll, "_batch_nll", Mock(side_effect=MemoryError))
        for _ in range(3):
            with pytest.raises(MemoryError):
                far.score()

    line = refusal(far.score, RetryableError)

    assert line.startswith("shard 00000-000000000 of pools/train: 3 attempts ended before they finished")
    far.score()  # who asks once more may try again


def test_files_that_are_not_there_are_named(far: Far, tmp_path: Path) -> None:
    nowhere = replace(far, files=tmp_path / "empty")

    assert not is_fetched(far.asked, nowhere.files)
    line = refusal(nowhere.score, RetryableError)
    assert line.startswith("me/pools@") and "not fetched to the machine that scores" in line


def test_an_app_of_another_version_and_another_gpu_than_was_asked_are_refused(far: Far) -> None:
    stage = {"name": "nemotron_nll_scores", "version": 9}
    recipe = {**far.asked["recipe"], "device": "cuda", "dtype": "bfloat16"}

    version = refusal(lambda: far.score({**far.asked, "stage": stage}), UsageError)
    gpu = refusal(lambda: far.score({**far.asked, "gpu": "H100!", "recipe": recipe}), UsageError)

    assert "deploy the app again" in version and "expected H100!, got no GPU" in gpu
