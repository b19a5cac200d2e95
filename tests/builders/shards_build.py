"""Token shards of a few documents and of synthetic rows."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pack_build import Doc, write_shards

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.shards.recipe import SHARDS_STAGE, ShardsRecipe
from pipeline_assets.corpus.shards.shard_corpus import shard_corpus
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import write_durably
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import OutputFile, StagingDir

KIND = "stage_a/token_shards"


def by_model(model: Path) -> TokenizerFile:
    """Return the tokenizer of a SentencePiece model."""
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    return TokenizerFile(FileTokenizerRecipe(family="sentencepiece", sha256=sha256, end_of_document="</s>"), model)


def manual(texts: Sequence[str], source: str = "manual") -> list[Doc]:
    """Turn texts into documents."""
    return [Doc(source, f"{source}-{number}", text) for number, text in enumerate(texts)]


def shard_documents(
    folder: Path,
    documents: Sequence[Doc],
    tokenizer: TokenizerFile,
    settings: RunSettings | None = None,
    shard_size: int = 7,
    **changes: Any,
) -> Artifact:
    """Build token shards of documents, written to shards of `shard_size`."""
    recipe = ShardsRecipe.model_validate({"seq_len": 16, "rows_per_shard": 5} | changes)
    shards = write_shards(folder / "corpus", documents, shard_size)
    own = settings or RunSettings()
    return build_target(
        target(recipe), folder, lambda building: shard_corpus(building, shards, recipe, tokenizer, own), False, {}
    )


def target(recipe: ShardsRecipe, name: str = "shards") -> Target:
    return Target(unknown_kind(KIND, SHARDS_STAGE), name, Path("stage_a", name), {"shards": recipe.content()})


def seal_rows(root: Path, name: str, rows: NDArray[Any], rows_per_shard: int = 5) -> Artifact:
    """Seal rows as token shards without documents."""
    recipe = ShardsRecipe(seq_len=rows.shape[1], rows_per_shard=rows_per_shard)

    def make(building: StagingDir) -> BuildResult:
        files = []
        for number, start in enumerate(range(0, len(rows), rows_per_shard)):
            path, own = f"shard_{number:05d}.npy", rows[start : start + rows_per_shard]
            np.save(building.path(path), np.ascontiguousarray(own))
            data = building.path(path).read_bytes()
            sha256 = write_durably(building.path(path), data)
            files.append(OutputFile(path, len(own), len(data), sha256, sha256))
        ends = int((rows == 1).sum())
        counts = {"documents": ends, "cut_documents": 0, "tokens": rows.size, "sequences": len(rows)}
        decisions = {
            "dtype": rows.dtype.name,
            "seq_len": rows.shape[1],
            "end_of_document": 1,
            "vocabulary_size": 60_000,
            "tokenizer_sha256": "0" * 64,
        }
        licences = {"license_tokens": {"cc0-1.0": rows.size}, "remainder_tokens": 0}
        return BuildResult(files, counts | licences, decisions)

    return build_target(target(recipe, name), root, make, True, {})


def copy_set(folder: Path, root: Path) -> Path:
    """Copy a sealed set into a root and make it writable."""
    copy = shutil.copytree(folder, root / "copy")
    for path in (copy, *copy.iterdir()):
        path.chmod(0o755)
    return copy


def numbered_rows(first: int, rows: int, seq_len: int = 4) -> NDArray[np.uint16]:
    """Number rows from `first` on: all tokens of a row are its number."""
    return np.repeat(np.arange(first, first + rows, dtype=np.uint16)[:, None], seq_len, axis=1)
