"""Scoring of a shard on another machine.

The machine reads hub files from one persistent folder and writes scores to another. Requests are JSON. The scores of a
request are stored as `SPLIT/DIGEST.parquet`, with a receipt; the digest is the sha256 of everything that determines the
scores. An equal request returns the stored scores, so a preempted machine loses only its current shard.
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
from pipeline_assets.corpus.scoring.pool_selection import is_harmony_pool
from pipeline_assets.corpus.scoring.recipe import SCORES_STAGE, ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer, score_shard, scoring_environment
from pipeline_assets.spine import durable
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.errors import InputError, RecipeKey, RetryableError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import Receipt, StagingView

Request = dict[str, Any]
_MAX_ATTEMPTS = 3  # attempts per shard that started and did not finish
_ROW_CHOICE_KEYS = {"max_rows", "shard_rows", "rescored"}  # recipe keys that choose rows and change no score
_DEPLOY_FIX = "deploy the app again, from the same version of corpusmill"


def describe_file_set(file_set: HubFileSet) -> Request:
    """Return the part of a request that lists the files of a set."""
    entries = [[file.path, file.size, file.digest] for file in file_set.files.values()]
    return {"name": file_set.repo, "revision": file_set.revision, "files": entries}


def build_fetch_request(work: ScoreWork) -> Request:
    """Build the request to fetch all files that the score shards of a split read."""
    assert work.pool_files is not None and work.model_files is not None
    models = {work.model_digest: describe_file_set(work.model_files)}
    return {"pools": describe_file_set(work.pool_files), "models": models}


def build_shard_request(work: ScoreWork, job: ScoreJob, gpu: str | None) -> Request:
    """Build the request to score a shard; `gpu` is a GPU model, or None for a CPU."""
    assert work.pool_files is not None
    pool_file = {job.pool_file: work.pool_files.files[job.pool_file]}
    recipe = {name: value for name, value in work.recipe.content().items() if name not in _ROW_CHOICE_KEYS}
    return {
        "stage": vars(SCORES_STAGE),
        "split": work.split,
        "model": work.model_digest,
        "recipe": recipe,
        "gpu": gpu,
        "pools": describe_file_set(replace(work.pool_files, files=pool_file)),
        "pool_file": job.pool_file,
        "name": job.name,
        "rows": list(job.row_numbers),
        "batch_rows": job.max_batch_rows,
    }


def fetch_files(request: Request, hub: HubFiles) -> None:
    """Fetch the requested files that the cache lacks; check their hashes."""
    _fetch_file_set(request["pools"], hub)
    for model_digest, model in request["models"].items():
        _fetch_file_set(model, hub.for_models())
        durable.write_durably(_listing_path(model_digest, hub.cache), json.dumps(model).encode())


def _fetch_file_set(file_set: Mapping[str, Any], hub: HubFiles) -> None:
    for entry in file_set["files"]:
        hub.fetch(file_set["name"], file_set["revision"], HubFile(*entry))


def is_fetched(request: Request, files_folder: Path) -> bool:
    """Check whether `fetch_files` fetched all files of a shard's request."""
    pools, [entry] = request["pools"], request["pools"]["files"]
    missing = HubFiles(files_folder).count_missing_bytes(pools["name"], HubFile(*entry), 0, entry[1])
    return not missing and _listing_path(request["model"], files_folder).exists()


def _listing_path(model_digest: str, files_folder: Path) -> Path:
    """Return the path of a model's file listing, which `fetch_files` writes last."""
    return files_folder / f"model-{canonical_sha256(model_digest).rpartition(':')[2]}.json"


def score_remote(request: Request, files_folder: Path, scores_folder: Path) -> Receipt:
    """Score a shard, or load its stored scores, and return its receipt.

    `files_folder` is the folder that `fetch_files` filled; paths in the receipt are relative to `scores_folder`.

    Raises:
        UsageError: The request is from a different version, or this machine has a different GPU.
        RetryableError: A file was not fetched, or three earlier attempts ended early.
    """
    if request["stage"] != vars(SCORES_STAGE):
        what = f"expected a request for {SCORES_STAGE}, got {request['stage']}"
        raise UsageError(what, "the app on Modal", _DEPLOY_FIX)
    recipe, gpu = ScoringRecipe.from_content(request["recipe"]), request["gpu"]
    environment = scoring_environment(recipe)
    if gpu is not None and gpu.strip("!+").partition("-")[0].upper() not in environment["device"].upper():
        fix = f"{_DEPLOY_FIX}, and set the same CORPUSMILL_MODAL_GPU; with H100! Modal never uses an H200"
        raise UsageError(f"expected {gpu}, got {environment['device']}", RecipeKey("scoring.device"), fix)

    def score(folder: StagingView) -> Receipt:
        pools, [entry] = request["pools"], request["pools"]["files"]
        pool_path = _verify_file(HubFiles(files_folder), pools["name"], pools["revision"], HubFile(*entry))
        job = ScoreJob(request["name"], request["pool_file"], pool_path, tuple(request["rows"]), request["batch_rows"])
        name, weights = _link_model(request["model"], files_folder)
        try:
            scorer = Scorer(request["model"], recipe, weights, is_harmony=is_harmony_pool([pool_path]))
            return score_shard(job, WHOLE_SHARD, folder, scorer)
        except InputError as error:
            error.replace_text(str(weights), name)
            raise

    return load_or_score(request, scores_folder, score, environment)


def load_or_score(
    request: Request,
    scores_folder: Path,
    score: Callable[[StagingView], Receipt],
    environment: Mapping[str, str] | None = None,
) -> Receipt:
    """Return the receipt of stored scores, or call `score` and store its scores.

    Stored scores are named by a digest of request and `environment`. The digest covers the pool file's name and hash,
    not its commit: a file that two commits contain is scored once. If three earlier attempts ended without
    scores, raise RetryableError; the next call tries again.
    """
    [[_, _, pool]] = request["pools"]["files"]  # a file's hash without its commit: equal files are scored once
    digest = canonical_sha256({**request, "pools": pool, "means": environment}).rpartition(":")[2]
    name = f"{request['split']}/{digest}.parquet"
    scores_file = scores_folder / name
    receipt_file, attempts_file = (scores_file.with_suffix(suffix) for suffix in (".json", ".begun"))
    finished = _finished_receipt(scores_file, receipt_file)
    if finished is not None:
        return finished
    attempts = attempts_file.stat().st_size if attempts_file.exists() else 0  # one byte per attempt
    if attempts >= _MAX_ATTEMPTS:
        durable.remove(attempts_file)
        what = f"{attempts} attempts ended before they finished"
        fix = "look at the app's log; if memory is short, lower `batch_tokens`, or use another GPU"
        raise RetryableError(what, f"shard {request['name']} of {request['split']}", fix)
    durable.make_folder(scores_file.parent)
    durable.write_durably(attempts_file, b"." * (attempts + 1))
    with tempfile.TemporaryDirectory() as scratch:
        receipt = score(StagingView(Path(scratch)))
        [file] = receipt.files
        durable.write_durably(scores_file, Path(scratch, file.path).read_bytes())
    receipt = Receipt([replace(file, path=name)], receipt.counts, {**receipt.notes, "name": request["name"]})
    durable.write_durably(receipt_file, receipt.to_bytes())
    durable.remove(attempts_file)
    return receipt


def _finished_receipt(scores_file: Path, receipt_file: Path) -> Receipt | None:
    """Return the receipt of finished scores; delete both files if they do not match."""
    receipt = Receipt.from_bytes(receipt_file.read_bytes()) if receipt_file.exists() else None
    if receipt is not None and scores_file.exists() and file_sha256(scores_file) == receipt.files[0].sha256:
        return receipt
    for path in (receipt_file, scores_file):
        durable.remove(path)
    return None


@functools.cache
def _link_model(model_digest: str, files_folder: Path) -> tuple[str, Path]:
    """Link a model's files into a new folder; return NAME@REVISION and the folder."""
    listing_path = _listing_path(model_digest, files_folder)
    if not listing_path.exists():
        raise _not_fetched_error(model_digest)
    with errors_as_damage(listing_path, "listing of a model"):
        listing = json.loads(listing_path.read_bytes())
        name, revision, listed = listing["name"], listing["revision"], listing["files"]
    hub, folder = HubFiles(files_folder).for_models(), Path(tempfile.mkdtemp(prefix="model-"))
    for path, size, digest in listed:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(_verify_file(hub, name, revision, HubFile(path, size, digest)))
    return f"{name}@{revision}", folder


@functools.cache
def _verify_file(hub: HubFiles, name: str, revision: str, file: HubFile) -> Path:
    """Check a fetched file's hash, once per process, and return the file's path."""
    if hub.count_missing_bytes(name, file, 0, file.size):
        raise _not_fetched_error(f"{name}@{revision}:{file.path}")
    return hub.fetch(name, revision, file).path.absolute()


def _not_fetched_error(where: str) -> RetryableError:
    return RetryableError("not fetched to the machine that scores", where, "run the same command again")
