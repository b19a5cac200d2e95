"""Trainer configuration for token shards, as YAML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError

_SAME = ("dtype", "seq_len", "vocabulary_size")


def train_config(folders: Mapping[str, Path], weights: Mapping[str, str], root: Path) -> str:
    """
    Args:
        folders: of sealed shards, by corpus.
        weights: by corpus.
        root: the data root.
    Raises:
        InputError: shards are not sealed, or of different tokenizers or lengths.
    """
    corpora, said = dict[str, Any](), list[dict[str, Any]]()
    for corpus, folder in folders.items():
        manifest = open_artifact(folder).manifest
        counts, decisions = manifest.identity.counts, manifest.identity.decisions
        file = root / str(manifest.provenance[TOKENIZER_FILE])
        tokenizer = decisions["tokenizer"] | {"path": str(file.absolute())}
        end = {"eos_id": decisions["end_of_document"]}
        said.append({name: decisions[name] for name in _SAME} | end | {"tokenizer": tokenizer})
        if said[-1] != said[0]:
            what = f"{corpus} was encoded otherwise than {next(iter(folders))}"
            raise InputError(what, folder, "build both by one recipe")
        corpora[corpus] = {
            "glob": str(folder.absolute() / "shard_*.npy"),
            "weight": float(weights[corpus]),
            "sequences": counts["sequences"],
            "tokens": counts["tokens"],
            "digest": manifest.digest,
        }
    return yaml.safe_dump({**said[0], "corpora": corpora}, sort_keys=False, allow_unicode=True, width=120)
