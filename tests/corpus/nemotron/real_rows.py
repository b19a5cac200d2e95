"""Rows of the five datasets, made or real, and their origin."""

import json

from nemotron_hub import rows_of

from pipeline_assets.corpus.nemotron.sections import DOMAINS, RowOrigin

SPLITS = {
    "Nemotron-Math-v2": ["high_part00", "high_part01", "high_part02", "medium", "low"],
    "Nemotron-Math-Proofs-v1": ["lean"],
    "Nemotron-Science-v1": ["MCQ", "RQA"],
    "Nemotron-Agentic-v1": ["interactive_agent", "tool_calling"],
    "Nemotron-Instruction-Following-Chat-v1": ["chat_if", "structured_outputs"],
}
EVERY_SPLIT = [f"{dataset}/{split}" for dataset, splits in SPLITS.items() for split in splits]


def split_rows(name: str, real: bool) -> list[dict[str, object]]:
    """Return the three rows of `dataset/split`."""
    dataset, split = name.split("/")
    rows = [json.loads(line) for line in rows_of(f"nvidia/{dataset}", split, real).split(b"\n") if line]
    assert len(rows) == 3, f"{name} has {len(rows)} rows"
    return rows


def origin_of(name: str) -> RowOrigin:
    dataset, split = name.split("/")
    hub_name = f"nvidia/{dataset}"
    return RowOrigin(hub_name, "default", split, DOMAINS[hub_name], f"data/{split}.jsonl", "0" * 40)
