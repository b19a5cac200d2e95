"""The YAML at the head of a dataset card: what a hub and `datasets` know configs, splits, columns and licence by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import yaml

from pipeline_assets.corpus.publishing.card_split import licence_metadata

DEFAULT = "default"  # the config of a dataset that has but one
# `datasets`, size_categories.json: from a thousand on, each is ten times the one before.
_SIZES = ["n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B"]


@dataclass(frozen=True)
class ConfigSplit:
    """A split of a config: its name on the hub, the pattern of its files, rows, bytes as stored and of the pages
    uncompressed, an estimate of what loading takes.
    """

    name: str
    pattern: str
    rows: int
    bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True)
class CardConfig:
    """A config of a dataset.

    Attributes:
        data_files: paths of each split.
        info: what `datasets` calls `dataset_info`.
    """

    name: str
    data_files: Sequence[Mapping[str, Any]]
    info: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, splits: Sequence[ConfigSplit], fields: Iterable[pa.Field] = ()) -> "CardConfig":
        """One whose rows are counted, so that `datasets` counts them when it loads a split.

        Args:
            fields: its columns; none where the files alone say them.
        """
        features = features_of(fields)
        info = {
            **({"features": features} if features else {}),
            "splits": [
                {"name": split.name, "num_bytes": split.uncompressed_bytes, "num_examples": split.rows}
                for split in splits
            ],
            "download_size": sum(split.bytes for split in splits),
            "dataset_size": sum(split.uncompressed_bytes for split in splits),
        }
        return cls(name, [{"split": split.name, "path": split.pattern} for split in splits], info)


def card_metadata(
    title: str,
    licences: Mapping[str | None, int],
    tags: Sequence[str],
    configs: Sequence[CardConfig],
    rows: int,
    sources: Sequence[str] = (),
    gate: Mapping[str, Any] | None = None,
) -> str:
    """The YAML at the head of a card, with the lines around it.

    Args:
        licences: see `licence_metadata`.
        configs: none where there are no rows.
        sources: datasets of the hub that the rows are of.
        gate: what whoever wants to read agrees to, as the hub's cards say it.
    """
    infos = [
        config.info if config.name == DEFAULT else {"config_name": config.name, **config.info} for config in configs
    ]
    metadata = {
        "pretty_name": title,
        **licence_metadata(licences),
        "task_categories": ["text-generation"],
        "size_categories": [_SIZES[min(max(len(str(rows)) - 3, 0), len(_SIZES) - 1)]],
        **({"source_datasets": [*sources]} if sources else {}),
        "tags": tags,
        **(gate or {}),
    }
    if configs:
        metadata["configs"] = [{"config_name": one.name, "data_files": one.data_files} for one in configs]
        metadata["dataset_info"] = infos if len(infos) > 1 or configs[0].name != DEFAULT else infos[0]
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=120)}---\n\n"


def type_name(kind: pa.DataType) -> str:
    """A column's type as `datasets` names it, of a list that of its values."""
    if pa.types.is_list(kind):
        return type_name(kind.value_type)
    return "float64" if pa.types.is_float64(kind) else str(kind)


def features_of(fields: Iterable[pa.Field]) -> list[dict[str, Any]]:
    """Columns as the YAML of a card names them."""
    return [{"name": field.name, **_feature(field.type)} for field in fields]


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"struct": features_of(kind)}
    return {"list" if pa.types.is_list(kind) else "dtype": type_name(kind)}
