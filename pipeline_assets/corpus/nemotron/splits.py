"""The Nemotron datasets and their splits: the one list of partitions.

Names are those of the hub. Files, columns and row counts are in no list here: they are found at the pinned revision.
Another dataset, such as one that is Harmony text already, comes by a recipe that names it; `corpusmill nemotron` builds
it, since Dagster's partitions are this list.
"""

import re

SPLITS: dict[str, tuple[str, ...]] = {
    "nvidia/Nemotron-Math-v2": ("high_part00", "high_part01", "high_part02", "medium", "low"),
    "nvidia/Nemotron-Math-Proofs-v1": ("lean",),
    "nvidia/Nemotron-Science-v1": ("MCQ", "RQA"),
    "nvidia/Nemotron-Agentic-v1": ("interactive_agent", "tool_calling"),
    "nvidia/Nemotron-Instruction-Following-Chat-v1": ("chat_if", "structured_outputs"),
}
_UNFIT = re.compile(r"[^a-z0-9_.-]+")


def dataset_key(dataset: str) -> str:
    """How partitions and folders call a dataset: its name without the owner, in lower case."""
    return _UNFIT.sub("-", dataset.rpartition("/")[2].lower()).strip("-.")


def partition_key(dataset: str, split: str) -> str:
    """`nemotron-math-v2/high_part00`."""
    return f"{dataset_key(dataset)}/{split}"


PARTITION_KEYS: tuple[str, ...] = tuple(
    partition_key(dataset, split) for dataset, splits in SPLITS.items() for split in splits
)
