"""Scorer in plain torch: all logits of one row at a time, in float64."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
import transformers

from pipeline_assets.corpus.scoring.token_rows import TokenRow


@torch.inference_mode()
def reference_nll(network: Any, rows: Sequence[TokenRow]) -> list[float]:
    """Sum the NLL of each row's tokens in the loss."""
    return [sum(tokens) for tokens in reference_token_nll(network, rows)]


@torch.inference_mode()
def reference_token_nll(network: Any, rows: Sequence[TokenRow]) -> list[list[float]]:
    """Return the NLL of each token in the loss, row by row."""
    found = []
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))
        logits = network(input_ids=ids[None], use_cache=False).logits[0].double()
        log_p = torch.log_softmax(logits, -1)
        found.append([-log_p[place - 1, row.ids[place]].item() for place in np.flatnonzero(row.in_loss)])
    return found


def reference_model(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
