"""Functions of the Modal app that wait for a file `go` next to their folders."""

import time
import warnings

import transformers.modeling_utils

from modal_jobs import nll_scoring
from pipeline_assets.corpus.scoring import load_model, nll, remote_shard

assert load_model and nll and remote_shard and transformers.modeling_utils  # loaded once, before processes are forked

warnings.simplefilter("ignore", UserWarning)  # no volume is mounted where a function runs here


def score(argument: str) -> str:
    while not (nll_scoring.SCORES_FOLDER.parent / "go").exists():
        time.sleep(0.005)
    return nll_scoring.score.local(argument)


def fetch(argument: str) -> str:
    return nll_scoring.fetch.local(argument)
