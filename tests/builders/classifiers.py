"""Small fastText classifiers, trained with the reference implementation."""

from pathlib import Path
from typing import Any

import pytest

GOOD = "__label__hq the quick brown fox explains a theorem of the naïve кот"
BAD = "__label__cc buy now cheap pills 日本語 click here to buy"


def train(path: Path, *lines: str, **settings: Any) -> Any:
    """Train a classifier, write it to `path` and return it."""
    fasttext = pytest.importorskip("fasttext", reason="fasttext-community is in the extra `test`")
    texts = path.with_suffix(".txt")
    texts.write_text("\n".join(lines or [GOOD, BAD] * 50) + "\n", encoding="utf-8")
    model = fasttext.train_supervised(str(texts), thread=1, verbose=0, **{"dim": 8, "lr": 0.5, "epoch": 20} | settings)
    model.save_model(str(path))
    return model
