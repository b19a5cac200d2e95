"""A score shard on another machine, between two folders that outlive it: files of hubs, and scores.

What is asked is JSON. The sha256 of what decides the scores names what is made: `SPLIT/DIGEST.parquet`, with a receipt
beside it, or, until it is done, a journal of its batches. Whoever asks again gets what is there, so that a machine that
is taken away costs one batch.
"""

import functools
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.scoring.launcher import FilesOfHub, ScoreJob, ScoreWork
from pipeline_assets.corpus.scoring.recipe import SCORES_STAGE, ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer, made_by, score_shard
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, UsageError, bare
from pipeline_assets.corpus.spine.files import file_sha256
from pipeline_assets.corpus.spine.manifest import sha256_of
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import WHOLE

Asked = dict[str, Any]
_MOST_BEGINNINGS = 3  # without a batch between them
_OF_A_SPLIT = {"max_rows", "shard_rows", "rescored"}  # keys that choose rows, and change no score
_DEPLOY = "deploy the app again, from the same version of corpusmill"


class BatchJournal:
    """The batches of a score shard that are done: a file to which a line is added for each, and for each time that
    somebody begins. What goes on after a machine was taken away loses the batch that it had in hand, and no other.

    Each line has the CRC-32 of what it says before it. A line that is torn or damaged ends what the file says: it is
    cut off there, and goes on.

    Attributes:
        begun: how often somebody began since the last batch was done, this time included.
    """

    def __init__(self, path: Path, saved: Callable[[], None]) -> None:
        """
        Args:
            saved: called after each batch, when its line is in the file: what else it takes to keep it.
        """
        self._path, self._saved = path, saved
        self._found: dict[tuple[int, ...], list[float | None]] = {}
        self.begun = 1
        durable.make_folder(path.parent)
        data = path.read_bytes() if path.exists() else b""
        good = 0
        for line in data.splitlines(keepends=True):
            said = _said(line)
            if said is None:
                break
            good += len(line)
            if "rows" in said:
                self._found[tuple(said["rows"])] = said["nll_sums"]
            self.begun = said["begun"] + 1 if "begun" in said else 1
        # Two may write it, if one was forgotten.
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.ftruncate(self._descriptor, good)
        self._add({"begun": self.begun})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def known(self, rows: Sequence[int]) -> list[float | None] | None:
        """The sums of a batch of these rows, if it was done before."""
        return self._found.get(tuple(rows))

    def add(self, rows: Sequence[int], nll_sums: Sequence[float | None]) -> None:
        """A batch is done."""
        self._add({"rows": list(rows), "nll_sums": list(nll_sums)})

    def count_anew(self) -> None:
        """Forgets how often somebody began."""
        self._add({"begun": 0})

    def _add(self, said: dict[str, Any]) -> None:
        text = json.dumps(said).encode()
        durable.append(self._descriptor, self._path, b"%08x %b\n" % (zlib.crc32(text), text))
        durable.fsync(self._descriptor, self._path)
        self._saved()


def _said(line: bytes) -> dict[str, Any] | None:
    crc, _, text = line.removesuffix(b"\n").partition(b" ")
    is_whole = line.endswith(b"\n") and crc == b"%08x" % zlib.crc32(text)
    return dict(json.loads(text)) if is_whole else None


def files_asked(files: FilesOfHub) -> Asked:
    """Files that are to be fetched."""
    listed = [[file.path, file.size, file.digest] for file in files.files.values()]
    return {"name": files.name, "revision": files.revision, "files": listed}


def fetch_asked(work: ScoreWork, kernels: Sequence[str]) -> Asked:
    """All that the shards of a split read.

    Args:
        kernels: that a model takes from a hub, each `owner/name@commit`.
    """
    assert work.pools is not None and work.model is not None
    return {
        "pools": files_asked(work.pools),
        "models": {work.model_digest: files_asked(work.model)}
        | {one: dict(zip(("name", "revision"), one.split("@"), strict=True)) for one in kernels},
    }


def shard_asked(work: ScoreWork, job: ScoreJob, gpu: str | None, kernels: Sequence[str] = ()) -> Asked:
    """A shard that is to be scored.

    Args:
        gpu: its model, such as H100, H100! or A100-80GB; None for no GPU.
        kernels: as of `fetch_asked`.
    """
    assert work.pools is not None
    recipe = {name: value for name, value in work.recipe.content().items() if name not in _OF_A_SPLIT}
    return {
        "stage": vars(SCORES_STAGE),
        "split": work.split,
        "model": work.model_digest,
        "kernels": list(kernels),
        "recipe": recipe,
        "gpu": gpu,
        "pools": files_asked(replace(work.pools, files={job.pool_file: work.pools.files[job.pool_file]})),
        "pool_file": job.pool_file,
        "name": job.name,
        "rows": list(job.row_numbers),
        "batch_rows": job.batch_rows,
    }


def fetch_files(asked: Asked, hub: HubFiles) -> None:
    """Files into the cache of a hub, those that aren't there yet, each checked against its hash.

    Raises:
        InputError: from the hub.
    """
    _fetch(asked["pools"], hub)
    for key, model in asked["models"].items():
        if "files" not in model:
            listed = hub.of_models().list_files(model["name"], model["revision"])
            model = {**model, "files": [[file.path, file.size, file.digest] for file in listed]}
        _fetch(model, hub.of_models())
        durable.write_durably(_listed(key, hub.cache), json.dumps(model).encode())


def _fetch(asked: Asked, hub: HubFiles) -> None:
    for entry in asked["files"]:
        hub.fetch(asked["name"], asked["revision"], HubFile(*entry))


def is_fetched(asked: Asked, files: Path) -> bool:
    """Whether what a shard reads is there."""
    pools, [entry] = asked["pools"], asked["pools"]["files"]
    missing = HubFiles(files).bytes_missing(pools["name"], HubFile(*entry), 0, entry[1])
    return not missing and all(_listed(key, files).exists() for key in (asked["model"], *asked["kernels"]))


def _listed(model: str, files: Path) -> Path:
    """What says which files a model has, or a kernel; it is there when they are."""
    return files / f"model-{sha256_of(model).rpartition(':')[2]}.json"


def score_remote(asked: Asked, files: Path, scores: Path, saved: Callable[[], None]) -> Receipt:
    """A shard of scores, in the folder `scores`: its receipt, whose path is below that.

    Args:
        files: where `fetch_files` put them.
        saved: called when what was written is to be kept from now on.
    Raises:
        UsageError: it was asked by another version, or runs on another GPU.
        RetryableError: the files aren't there; or as `kept`.
        InputError: as `score_shard`.
    """
    if asked["stage"] != vars(SCORES_STAGE):
        raise UsageError(f"it has {SCORES_STAGE}, and was asked for {asked['stage']}", "the app on Modal", _DEPLOY)
    recipe = ScoringRecipe.from_content(asked["recipe"])
    means = made_by(recipe)
    if asked["gpu"] is not None and asked["gpu"].strip("!+").partition("-")[0].upper() not in means["device"].upper():
        fix = f"{_DEPLOY}, and set CORPUSMILL_MODAL_GPU alike; H100! keeps Modal from giving an H200"
        raise UsageError(f"it runs on {means['device']}, and not on {asked['gpu']}", bare("scoring.device"), fix)

    def make(folder: BuildFolder, journal: BatchJournal) -> Receipt:
        pools, [entry] = asked["pools"], asked["pools"]["files"]
        pool = _there(HubFiles(files), pools["name"], pools["revision"], HubFile(*entry))
        job = ScoreJob(asked["name"], asked["pool_file"], pool, tuple(asked["rows"]), asked["batch_rows"])
        if asked["kernels"]:
            linked = (f"{key.partition('@')[0]}={_linked(key, files)[1]}" for key in asked["kernels"])
            os.environ["LOCAL_KERNELS"] = ":".join(linked)
        name, weights = _linked(asked["model"], files)
        try:
            return score_shard(job, WHOLE, folder, Scorer(asked["model"], recipe, weights), journal)
        except InputError as error:
            error.move(str(weights), name)
            raise

    return kept(asked, scores, saved, make, means)


def kept(
    asked: Asked,
    scores: Path,
    saved: Callable[[], None],
    make: Callable[[BuildFolder, BatchJournal], Receipt],
    means: Mapping[str, str] | None = None,
) -> Receipt:
    """What was made of this before, else what is made of it now: one file, by its digest, with a receipt beside it.

    Args:
        make: its receipt, of one file in a folder; goes on by the journal.
        means: by which it is made.
    Raises:
        RetryableError: whoever began it ended, three times, before a batch was done. The next one may try again.
    """
    [[_, _, pool]] = asked["pools"]["files"]  # not the commit that has it: the same rows are paid for once
    digest = sha256_of({**asked, "pools": pool, "means": means}).rpartition(":")[2]
    name = f"{asked['split']}/{digest}.parquet"
    made = scores / name
    receipt_file, journal_file = (made.with_suffix(suffix) for suffix in (".json", ".journal"))
    found = _finished(made, receipt_file)
    if found is not None:
        return found
    with BatchJournal(journal_file, saved) as journal, tempfile.TemporaryDirectory() as scratch:
        if journal.begun > _MOST_BEGINNINGS:
            journal.count_anew()
            what = f"it was begun {_MOST_BEGINNINGS} times, and ended before a batch was done"
            fix = "look at the app's log; memory may be short: lower `batch_tokens`, or take another GPU"
            raise RetryableError(what, f"shard {asked['name']} of {asked['split']}", fix)
        receipt = make(BuildFolder(Path(scratch)), journal)
        [file] = receipt.files
        durable.write_durably(made, Path(scratch, file.path).read_bytes())
    receipt = Receipt([replace(file, path=name)], receipt.counts, {**receipt.notes, "name": asked["name"]})
    durable.write_durably(receipt_file, receipt.to_bytes())
    durable.remove(journal_file)
    saved()
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
    """A model or a kernel, and a folder that has its files under their own names."""
    listed = _listed(model, files)
    if not listed.exists():
        raise _not_fetched(model)
    asked, folder = json.loads(listed.read_bytes()), Path(tempfile.mkdtemp(prefix="model-"))
    for path, size, digest in asked["files"]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        there = _there(HubFiles(files).of_models(), asked["name"], asked["revision"], HubFile(path, size, digest))
        (folder / path).symlink_to(there)
    return f"{asked['name']}@{asked['revision']}", folder


@functools.cache
def _there(hub: HubFiles, name: str, revision: str, file: HubFile) -> Path:
    """A file that was fetched, its hash checked once in the life of the process."""
    if hub.bytes_missing(name, file, 0, file.size):
        raise _not_fetched(f"{name}@{revision}:{file.path}")
    return hub.fetch(name, revision, file).local.absolute()


def _not_fetched(what: str) -> RetryableError:
    return RetryableError("it was not fetched to where it is scored", what, "run the same command again")
