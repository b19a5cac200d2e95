"""A score shard on another machine, between two folders that outlive it: files of hubs, and scores.

What is asked is JSON. The sha256 of what decides the scores names what is made: `SPLIT/DIGEST.parquet`, with a receipt
beside it. Whoever asks again gets what is there: a machine that is taken away costs the shard that it had in hand.
"""

import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.scoring.launcher import HubFileSet, ScoreJob, ScoreWork
from pipeline_assets.corpus.scoring.recipe import SCORES_STAGE, ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer, score_shard, scoring_environment
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RecipeKey, RetryableError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.stage import WHOLE
from pipeline_assets.spine.staging import Receipt, StagingView

Request = dict[str, Any]
_MAX_ATTEMPTS = 3  # of a shard that is not done
_OF_A_SPLIT = {"max_rows", "shard_rows", "rescored"}  # keys that choose rows, and change no score
_DEPLOY = "deploy the app again, from the same version of corpusmill"


def files_request(files: HubFileSet) -> Request:
    """Files that are to be fetched."""
    listed = [[file.path, file.size, file.digest] for file in files.files.values()]
    return {"name": files.name, "revision": files.revision, "files": listed}


def fetch_request(work: ScoreWork) -> Request:
    """All that the shards of a split read."""
    assert work.pools is not None and work.model is not None
    return {"pools": files_request(work.pools), "models": {work.model_digest: files_request(work.model)}}


def shard_request(work: ScoreWork, job: ScoreJob, gpu: str | None) -> Request:
    """A shard that is to be scored.

    Args:
        gpu: its model, such as H100, H100! or A100-80GB; None for no GPU.
    """
    assert work.pools is not None
    recipe = {name: value for name, value in work.recipe.content().items() if name not in _OF_A_SPLIT}
    return {
        "stage": vars(SCORES_STAGE),
        "split": work.split,
        "model": work.model_digest,
        "recipe": recipe,
        "gpu": gpu,
        "pools": files_request(replace(work.pools, files={job.pool_file: work.pools.files[job.pool_file]})),
        "pool_file": job.pool_file,
        "name": job.name,
        "rows": list(job.row_numbers),
        "batch_rows": job.batch_rows,
    }


def fetch_files(asked: Request, hub: HubFiles) -> None:
    """Files into the cache of a hub, those that aren't there yet, each checked against its hash.

    Raises:
        InputError: from the hub.
    """
    _fetch(asked["pools"], hub)
    for key, model in asked["models"].items():
        _fetch(model, hub.for_models())
        durable.write_durably(_listed(key, hub.cache), json.dumps(model).encode())


def _fetch(asked: Request, hub: HubFiles) -> None:
    for entry in asked["files"]:
        hub.fetch(asked["name"], asked["revision"], HubFile(*entry))


def is_fetched(asked: Request, files: Path) -> bool:
    """Whether what a shard reads is there."""
    pools, [entry] = asked["pools"], asked["pools"]["files"]
    missing = HubFiles(files).count_missing_bytes(pools["name"], HubFile(*entry), 0, entry[1])
    return not missing and _listed(asked["model"], files).exists()


def _listed(model: str, files: Path) -> Path:
    """What says which files a model has; it is there when they are."""
    return files / f"model-{canonical_sha256(model).rpartition(':')[2]}.json"


def score_remote(asked: Request, files: Path, scores: Path) -> Receipt:
    """A shard of scores, in the folder `scores`: its receipt, whose path is below that.

    Args:
        files: where `fetch_files` put them.
    Raises:
        UsageError: it was asked by another version, or runs on another GPU.
        RetryableError: the files aren't there; or as `kept`.
        InputError: as `score_shard`.
    """
    if asked["stage"] != vars(SCORES_STAGE):
        raise UsageError(f"it has {SCORES_STAGE}, and was asked for {asked['stage']}", "the app on Modal", _DEPLOY)
    recipe = ScoringRecipe.from_content(asked["recipe"])
    means = scoring_environment(recipe)
    if asked["gpu"] is not None and asked["gpu"].strip("!+").partition("-")[0].upper() not in means["device"].upper():
        fix = f"{_DEPLOY}, and set CORPUSMILL_MODAL_GPU alike; H100! keeps Modal from giving an H200"
        raise UsageError(f"it runs on {means['device']}, and not on {asked['gpu']}", RecipeKey("scoring.device"), fix)

    def make(folder: StagingView) -> Receipt:
        pools, [entry] = asked["pools"], asked["pools"]["files"]
        pool = _verified_file(HubFiles(files), pools["name"], pools["revision"], HubFile(*entry))
        job = ScoreJob(asked["name"], asked["pool_file"], pool, tuple(asked["rows"]), asked["batch_rows"])
        name, weights = _linked(asked["model"], files)
        try:
            return score_shard(job, WHOLE, folder, Scorer(asked["model"], recipe, weights))
        except InputError as error:
            error.replace_text(str(weights), name)
            raise

    return load_or_score(asked, scores, make, means)


def load_or_score(
    asked: Request, scores: Path, make: Callable[[StagingView], Receipt], environment: Mapping[str, str] | None = None
) -> Receipt:
    """What was made of this before, else what is made of it now: one file, by its digest, with a receipt beside it.

    Args:
        make: its receipt, of one file in a folder.
        environment: by which it is made.
    Raises:
        RetryableError: whoever began it ended, three times, before it was done. The next one may try again.
    """
    [[_, _, pool]] = asked["pools"]["files"]  # not the commit that has it: the same rows are paid for once
    digest = canonical_sha256({**asked, "pools": pool, "means": environment}).rpartition(":")[2]
    name = f"{asked['split']}/{digest}.parquet"
    made = scores / name
    receipt_file, begun_file = (made.with_suffix(suffix) for suffix in (".json", ".begun"))
    found = _finished(made, receipt_file)
    if found is not None:
        return found
    begun = begun_file.stat().st_size if begun_file.exists() else 0  # a byte for each time
    if begun >= _MAX_ATTEMPTS:
        durable.remove(begun_file)
        what = f"it was begun {begun} times, and ended before it was done"
        fix = "look at the app's log; memory may be short: lower `batch_tokens`, or take another GPU"
        raise RetryableError(what, f"shard {asked['name']} of {asked['split']}", fix)
    durable.make_folder(made.parent)
    durable.write_durably(begun_file, b"." * (begun + 1))
    with tempfile.TemporaryDirectory() as scratch:
        receipt = make(StagingView(Path(scratch)))
        [file] = receipt.files
        durable.write_durably(made, Path(scratch, file.path).read_bytes())
    receipt = Receipt([replace(file, path=name)], receipt.counts, {**receipt.notes, "name": asked["name"]})
    durable.write_durably(receipt_file, receipt.to_bytes())
    durable.remove(begun_file)
    return receipt


def _finished(made: Path, receipt: Path) -> Receipt | None:
    """What is there, whole; a part of it, or a damaged one, goes away."""
    found = Receipt.from_bytes(receipt.read_bytes()) if receipt.exists() else None
    if found is not None and made.exists() and file_sha256(made) == found.files[0].sha256:
        return found
    for path in (receipt, made):
        durable.remove(path)
    return None


@functools.cache
def _linked(model: str, files: Path) -> tuple[str, Path]:
    """A model, and a folder that has its files under their own names."""
    listed = _listed(model, files)
    if not listed.exists():
        raise _not_fetched(model)
    asked, folder = json.loads(listed.read_bytes()), Path(tempfile.mkdtemp(prefix="model-"))
    for path, size, digest in asked["files"]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        there = _verified_file(
            HubFiles(files).for_models(), asked["name"], asked["revision"], HubFile(path, size, digest)
        )
        (folder / path).symlink_to(there)
    return f"{asked['name']}@{asked['revision']}", folder


@functools.cache
def _verified_file(hub: HubFiles, name: str, revision: str, file: HubFile) -> Path:
    """A file that was fetched, its hash checked once in the life of the process."""
    if hub.count_missing_bytes(name, file, 0, file.size):
        raise _not_fetched(f"{name}@{revision}:{file.path}")
    return hub.fetch(name, revision, file).local.absolute()


def _not_fetched(what: str) -> RetryableError:
    return RetryableError("it was not fetched to where it is scored", what, "run the same command again")
