"""Sentence pairs for tests: made ones, or those of the real news tests."""

import datetime
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from samples import sample

from pipeline_assets.corpus.parallel_text.draw import write_sample
from pipeline_assets.corpus.parallel_text.pairs import TranslationFile
from pipeline_assets.corpus.parallel_text.sample import MANIFEST, SampleRecipe, SampleSource
from pipeline_assets.corpus.parallel_text.token_cache import EncodeRecipe, write_cache
from pipeline_assets.corpus.spine.staging import StagingDir, open_building
from pipeline_assets.corpus.spine.target import BuildResult

SOURCE = SampleSource(dataset="wmt/wmt14", revision="a" * 40, splits=("train", "validation"))
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
_SYLLABLES = [consonant + vowel for consonant in "bcdfglmnprstv" for vowel in ("a", "é", "in", "ou", "eur")]


def made_row(number: int) -> dict[str, str]:
    """A pair of 3 to 20 words of its own, its number among them."""
    dice = random.Random(number)
    words = ["".join(dice.choices(_SYLLABLES, k=dice.randint(1, 3))) for _ in range(dice.randint(3, 20))]
    return {"fr": f"{' '.join(words)} {number}.", "en": f"{' '.join(word[::-1] for word in words)} {number}."}


def real_or_made_rows(rows: int, real: bool) -> list[dict[str, str]]:
    """Return made rows, or the first ones of the validation split of WMT14 fr-en."""
    if not real:
        return [made_row(number) for number in range(rows)]
    with open(sample("parallel/wmt14_fr-en_validation.jsonl"), "rb") as file:
        return [json.loads(next(file))["translation"] for _ in range(rows)]


def lines_file(path: Path, rows: Sequence[dict[str, object]]) -> TranslationFile:
    """A file of JSON lines, each row as it is given."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return TranslationFile(path.name, lambda: path)


def translation_lines(path: Path, pairs: Sequence[dict[str, str]]) -> TranslationFile:
    return lines_file(path, [{"translation": pair} for pair in pairs])


def translation_parquet(path: Path, pairs: Sequence[dict[str, str]], row_group_size: int = 50) -> TranslationFile:
    pq.write_table(pa.table({"translation": list(pairs)}), path, row_group_size=row_group_size)
    return TranslationFile(path.name, lambda: path)


def draw_sample(files: Sequence[TranslationFile], folder: Path, **keys: object) -> Path:
    """Draw a sample of French and English into a folder, unsealed, and return its manifest."""
    recipe = SampleRecipe.of({"languages": {"src": "fr", "tgt": "en"}, **keys}, "the test")
    return _written(folder, lambda building: write_sample(building, files, recipe, SOURCE, NOON)) / MANIFEST


def encode(manifest: Path, model: Path | None, folder: Path, **keys: object) -> Path:
    """Write the token cache of a sample to a folder, unsealed."""
    pinned = {} if model is None else {"model_sha256": hashlib.sha256(model.read_bytes()).hexdigest()}
    recipe = EncodeRecipe.of(pinned | keys, "the test")
    return _written(folder, lambda building: write_cache(building, manifest, recipe, model))


def _written(folder: Path, write: Callable[[StagingDir], BuildResult]) -> Path:
    with open_building(folder, {}) as building:
        result = write(building)
        for file in (*result.files, *result.labels):
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(building.path(file.path), folder / file.path)
    return folder
