"""The real rows, which lie beside the checkout; tests that need them are skipped without."""

import json
from pathlib import Path

import pytest

from pipeline_assets.corpus.nemotron.sections import DOMAINS, RowOrigin

ROWS = Path(__file__).parents[4] / "shared" / "data" / "nemotron" / "rows"
needs_real_rows = pytest.mark.skipif(not ROWS.is_dir(), reason=f"there is no {ROWS}")

SPLITS = {
    "Nemotron-Math-v2": ["high_part00", "high_part01", "high_part02", "medium", "low"],
    "Nemotron-Math-Proofs-v1": ["lean"],
    "Nemotron-Science-v1": ["MCQ", "RQA"],
    "Nemotron-Agentic-v1": ["interactive_agent", "tool_calling"],
    "Nemotron-Instruction-Following-Chat-v1": ["chat_if", "structured_outputs"],
}
EVERY_SPLIT = [f"{dataset}/{split}" for dataset, splits in SPLITS.items() for split in splits]


def real_rows(name: str) -> list[dict[str, object]]:
    """The rows of `dataset/split`."""
    text = (ROWS / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def origin_of(name: str) -> RowOrigin:
    dataset, split = name.split("/")
    hub_name = f"nvidia/{dataset}"
    return RowOrigin(hub_name, "default", split, DOMAINS[hub_name], f"data/{split}.jsonl", "0" * 40)
