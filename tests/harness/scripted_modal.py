"""Modal on loopback with scripted functions, shared by all tests of a process."""

import atexit
import functools
import hashlib
import tempfile
from pathlib import Path

from modal_loopback import ModalOnLoopback

from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.scoring.launcher import HubFileSet, ScoreWork
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe


@functools.cache
def start_scripted_modal() -> ModalOnLoopback:
    functions = {name: f"scripted_functions:{name}" for name in ("fetch", "score")}
    modal = ModalOnLoopback(Path(tempfile.mkdtemp()), functions)
    atexit.register(modal.stop)
    return modal


def build_scripted_work(instructions: Path) -> ScoreWork:
    """Build the common part of scripted jobs; no two folders share a score."""
    files = HubFileSet(str(instructions), "0" * 40, {"pool.parquet": HubFile("pool.parquet", 1, "sha256:0")})
    digest = f"sha256:{hashlib.sha256(str(instructions).encode()).hexdigest()}"
    return ScoreWork("mine/train", ScoringRecipe(), files, files, digest, rows=10, text_bytes=1000)
