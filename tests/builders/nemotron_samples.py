"""Real or synthetic rows of the five Nemotron datasets, with their origin."""

import json

from nemotron_hub import SPLITS, TEXTS, render_split

from pipeline_assets.corpus.nemotron.dataset_section import DOMAINS, RowOrigin

_NAMES = {dataset.removeprefix("nvidia/"): splits for dataset, splits in SPLITS.items() if dataset != TEXTS}
EVERY_SPLIT = [f"{dataset}/{split}" for dataset, splits in _NAMES.items() for split in splits]


def split_rows(name: str, real: bool) -> list[dict[str, object]]:
    """Return the three rows of `dataset/split`."""
    dataset, split = name.split("/")
    rows = [json.loads(line) for line in render_split(f"nvidia/{dataset}", split, real).split(b"\n") if line]
    assert len(rows) == 3, f"{name} has {len(rows)} rows"
    return rows


def row_origin(name: str) -> RowOrigin:
    dataset, split = name.split("/")
    hub_name = f"nvidia/{dataset}"
    return RowOrigin(hub_name, "default", split, DOMAINS[hub_name], f"data/{split}.jsonl", "0" * 40)
