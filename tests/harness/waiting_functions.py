"""The Modal app's own functions, held back until a file `go` appears next to their folders."""

import time
import warnings

import transformers.modeling_utils

from modal_jobs import nll_scoring
from pipeline_assets.corpus.scoring import load_model, nll, remote_shard

assert load_model and nll and remote_shard and transformers.modeling_utils  # loaded once, before processes are forked

warnings.simplefilter("ignore", UserWarning)  # no volume is mounted where a function runs here


def score(asked: str) -> str:
    while not (nll_scoring.SCORES_FOLDER.parent / "go").exists():
        time.sleep(0.005)
    return nll_scoring.score.local(asked)


def fetch(asked: str) -> str:
    return nll_scoring.fetch.local(asked)
