"""Raw sources: which bytes of which files a source is made of, each by its hash. No byte is copied."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_files import SourceFile, open_source
from pipeline_assets.corpus.readers.source_folder import SourceFolder, as_provenance
from pipeline_assets.corpus.snapshot.fetch import fetch_snapshot
from pipeline_assets.corpus.snapshot.plan import hub_inputs
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import Obstacle
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.progress import Progress
from pipeline_assets.corpus.spine.target import Content

RAW_STAGE = StageVersion("raw", 1)


def raw_of_hub(hub: HubFiles, recipe: SnapshotRecipe, fetch_threads: int, log_every_s: float) -> Content:
    """The listing at the commit, and the row groups that are drawn, fetched into the cache.

    Raises:
        InputError: from the hub.
    """
    plan, _, fetched = fetch_snapshot(hub, recipe, fetch_threads, log_every_s)
    inputs = hub_inputs(recipe, plan)
    counts = {"files": plan.files, "row_groups": len(plan.pieces), "rows": plan.rows}
    return Content([], counts, {"dumps": plan.dumps()}, outside=inputs, provenance=fetched)


def raw_of_folder(source: SourceFolder, root: Path, settings: EngineSettings) -> Content:
    """The files of a folder, hashed.

    Args:
        root: data root, below which the folder may lie.
        settings: as many files are read at a time as there are workers.

    Raises:
        UsageError: no such folder, or a pattern that matches no file.
        InputError: a file can't be read, or changes meanwhile.
    """
    folder = source.below(root)
    files = folder.files()
    provenance = as_provenance(folder, files, root.absolute())
    digests = _digests(files, settings)
    again = folder.files()
    if again != files or as_provenance(folder, again, root.absolute()) != provenance:
        raise Obstacle("files changed while they were hashed", folder.path, "let nothing write there, run again")
    inputs = [
        {"name": file.name, "digest": f"sha256:{digest}", "bytes": file.bytes}
        for file, digest in zip(files, digests, strict=True)
    ]
    counts = {"files": len(files), "bytes": sum(file.bytes for file in files)}
    return Content([], counts, {}, outside=inputs, provenance=provenance)


def _digests(files: Sequence[SourceFile], settings: EngineSettings) -> list[str]:
    size = sum(file.bytes for file in files)
    progress = Progress(settings.title("hash"), size, "bytes", settings.log_every_s)
    digests = []
    pool = ThreadPoolExecutor(max(settings.workers, 1))
    try:
        for file, digest in zip(files, pool.map(_digest, files), strict=True):
            digests.append(digest)
            progress.add(file.bytes, {})
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return digests


def _digest(file: SourceFile) -> str:
    with open_source(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]
