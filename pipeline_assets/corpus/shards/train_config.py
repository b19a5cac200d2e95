"""YAML configuration of a trainer that reads token shards."""

import glob
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE_KEY
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError

_SHARED_DECISIONS = ("dtype", "seq_len", "vocabulary_size")


def train_config(folders: Mapping[str, Path], weights: Mapping[str, str], root: Path) -> str:
    """Return a trainer's configuration for sealed token shards, as YAML.

    `folders` and `weights` map each corpus to its folder and its weight. Manifests may contain relative tokenizer
    paths; their base is `root`, the data root.

    Raises:
        InputError: Shards are not sealed, or their tokenizers, dtypes or row lengths differ.
    """
    corpora, shared = dict[str, Any](), list[dict[str, Any]]()
    for corpus, folder in folders.items():
        manifest = open_artifact(folder).manifest
        counts, decisions = manifest.identity.counts, manifest.identity.decisions
        file = root / str(manifest.provenance[TOKENIZER_FILE_KEY])
        tokenizer = decisions["tokenizer"] | {"path": str(file.absolute())}
        end = {"eos_id": decisions["end_of_document"]}
        shared.append({name: decisions[name] for name in _SHARED_DECISIONS} | end | {"tokenizer": tokenizer})
        if shared[-1] != shared[0]:
            what = f"tokenizer, dtype or row length of {corpus} differs from {next(iter(folders))}"
            raise InputError(what, folder, "build both with one recipe")
        corpora[corpus] = {
            "glob": glob.escape(str(folder.absolute())) + "/shard_*.npy",
            "weight": float(Fraction(weights[corpus])),
            "sequences": counts["sequences"],
            "tokens": counts["tokens"],
            "digest": manifest.digest,
        }
    return yaml.safe_dump({**shared[0], "corpora": corpora}, sort_keys=False, allow_unicode=True, width=120)
