"""Flows that packing.py measures: Document shards in, a packed set out.

    python packing_flows.py STRATEGY FOLDER WORKERS ROWS

Each builds the set with its index and table of documents in FOLDER/built/packed, which is kept, and prints its tokens
and rows.
"""

import datetime
import json
import shutil
import sys
from pathlib import Path

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.packing.pack_corpus import pack_corpus
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.opening import open_staging_dir

SEQ_LEN = 2048


def pack(strategy: str, folder: Path, workers: int, rows: int) -> None:
    recipe = PackRecipe.model_validate(
        {
            "seq_len": SEQ_LEN,
            "num_seqs": rows,
            "strategy": strategy,
            "seed": 1,
            "weights": {"text": "1"},
            "max_epochs": {"every_source": "1"},
            "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
            "boundaries": True,
        }
    )
    counts = json.loads((folder / "rows.json").read_text())
    shards = [CorpusShard(name, name, folder / name, counts[name], "text", 0) for name in sorted(counts)]
    target = folder / "built" / "packed"
    shutil.rmtree(target.parent, ignore_errors=True)
    with open_staging_dir(target, {}) as building:
        now = datetime.datetime.now(datetime.UTC)
        content = pack_corpus(building, shards, recipe, TokenizerFile(recipe.tokenizer), RunSettings(workers), now)
        files = [*content.files, *content.labels]
        stage = StageVersion("benchmark", 1)
        identity = Identity(
            stage, {}, [], None, content.decisions, content.counts, [file.content for file in content.files]
        )
        building.seal(Manifest("made/packed", "benchmark", identity, [file.stored for file in files], {}))
    print(content.counts["tokens"], content.counts["rows"])


if __name__ == "__main__":
    pack(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
