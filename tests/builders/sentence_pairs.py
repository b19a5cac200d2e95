"""Synthetic sentence pairs, or those of the real news tests."""

import datetime
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from real_samples import sample

from pipeline_assets.corpus.parallel_text.sample import SampleSource
from pipeline_assets.corpus.parallel_text.translation_files import TranslationFile

SOURCE = SampleSource(dataset="wmt/wmt14", revision="a" * 40, splits=("train", "validation"))
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
_SYLLABLES = [consonant + vowel for consonant in "bcdfglmnprstv" for vowel in ("a", "é", "in", "ou", "eur")]


def synthetic_pair(number: int) -> dict[str, str]:
    """Build a pair of 3 to 20 random words and its number."""
    dice = random.Random(number)
    words = ["".join(dice.choices(_SYLLABLES, k=dice.randint(1, 3))) for _ in range(dice.randint(3, 20))]
    return {"fr": f"{' '.join(words)} {number}.", "en": f"{' '.join(word[::-1] for word in words)} {number}."}


def real_or_synthetic_rows(rows: int, real: bool) -> list[dict[str, str]]:
    """Return synthetic rows, or the first rows of WMT14 fr-en's validation split."""
    if not real:
        return [synthetic_pair(number) for number in range(rows)]
    with open(sample("parallel/wmt14_fr-en_validation.jsonl"), "rb") as file:
        return [json.loads(next(file))["translation"] for _ in range(rows)]


def lines_file(path: Path, rows: Sequence[dict[str, object]]) -> TranslationFile:
    """Write a file of JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return TranslationFile(path.name, lambda: path)


def translation_lines(path: Path, pairs: Sequence[dict[str, str]]) -> TranslationFile:
    return lines_file(path, [{"translation": pair} for pair in pairs])


def translation_parquet(path: Path, pairs: Sequence[dict[str, str]], row_group_size: int = 50) -> TranslationFile:
    pq.write_table(pa.table({"translation": list(pairs)}), path, row_group_size=row_group_size)
    return TranslationFile(path.name, lambda: path)
