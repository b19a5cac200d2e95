"""The YAML at the head of a dataset card, by which a hub and `datasets` know splits, columns, licence and size."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.publishing.card_split import CardSplit
from pipeline_assets.corpus.publishing.hub_licences import licence_metadata
from pipeline_assets.corpus.publishing.hub_splits import files_pattern

# `datasets`, size_categories.json.
_SIZES = ["n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B"]


def card_metadata(
    title: str, splits: Sequence[CardSplit], names: Mapping[str, str], source: str | None, tags: Sequence[str]
) -> str:
    """The YAML, without the lines around it.

    `dataset_info` makes `datasets` count the rows of every split that it loads. Its bytes are those of the Parquet
    pages uncompressed, an estimate of what loading takes.

    Args:
        names: `hub_split_names` of the splits.
        source: the dataset of the hub that the rows are of; None where they are of none.
    """
    rows = sum(split.rows for split in splits)
    licences: Counter[str | None] = Counter()
    for split in splits:
        licences.update(split.licences)
    metadata = {
        "pretty_name": title,
        **licence_metadata(licences),
        "task_categories": ["text-generation"],
        "size_categories": [_size(rows)],
        **({"source_datasets": [source]} if source is not None else {}),
        "tags": list(tags),
        "configs": [
            {
                "config_name": "default",
                "data_files": [
                    {"split": names[split.name], "path": files_pattern(split.name, split.files)} for split in splits
                ],
            }
        ],
        "dataset_info": {
            "features": [{"name": field.name, **_feature(field.type)} for field in SCHEMA],
            "splits": [
                {"name": names[split.name], "num_bytes": split.uncompressed_bytes, "num_examples": split.rows}
                for split in splits
            ],
            "download_size": sum(split.bytes for split in splits),
            "dataset_size": sum(split.uncompressed_bytes for split in splits),
        },
    }
    return yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=120)


def type_name(kind: pa.DataType) -> str:
    """A column's type as `datasets` names it, of a list that of its values."""
    if pa.types.is_list(kind):
        return type_name(kind.value_type)
    return "float64" if pa.types.is_float64(kind) else str(kind)


def _feature(kind: pa.DataType) -> dict[str, Any]:
    return {"list" if pa.types.is_list(kind) else "dtype": type_name(kind)}


def _size(rows: int) -> str:
    """The size category: from a thousand on, each is ten times the one before."""
    return _SIZES[min(max(len(str(rows)) - 3, 0), len(_SIZES) - 1)]
