"""Flows that stage2.py compares, each in one process.

    python stage2_flows.py mixture ROOT     the system's filtered, deduplicated and token_shards
    python stage2_flows.py bare ROOT        read, identify languages, encode, write, with the bare libraries

Each prints the number of kept documents.
"""

import io
import json
import sys
import tempfile
from pathlib import Path

MIXTURE, MODEL = "bench", "model.model"
KINDS = ("stage2/filtered", "stage2/deduplicated", "stage2/token_shards")
MIN_CHARACTERS, MAX_CHARACTERS, MIN_PROBABILITY = 200, 8000, 0.96


def mixture(root: Path) -> None:
    import os

    from pipeline_assets.build.run import Run
    from pipeline_assets.spine import durable
    from pipeline_assets.spine.artifact import open_artifact
    from pipeline_assets.systems.stage2_mixture import Stage2Recipe

    recipe = Stage2Recipe.read(root / "recipes" / f"{MIXTURE}.yaml")
    targets = [target for target in recipe.targets() if target.kind.name in KINDS]
    for target in targets:
        durable.remove(root / target.folder)
    for target in targets:
        target.kind.build(target, Run.from_settings(root, os.environ, workers=0))
    print(open_artifact(root / targets[-1].folder).manifest.identity.counts["documents"])


def bare(root: Path) -> None:
    """Identify the language of each text, encode kept ones, and write lines and ids."""
    import numpy as np
    import sentencepiece
    import zstandard
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(root / MODEL))
    kept = 0
    with tempfile.TemporaryDirectory() as out:
        for shard in sorted((root / "stage2" / MIXTURE / "raw_corpus" / "manuals" / "shards").glob("*.zst")):
            runs = []
            with (
                open(shard, "rb") as file,
                open(Path(out, shard.name), "wb") as target,
                zstandard.ZstdCompressor(level=3).stream_writer(target) as writer,
            ):
                for line in io.BufferedReader(
                    zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
                ):
                    text = json.loads(line)["text"]
                    if MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
                        code, score = identifier.classify(text)
                        if code == "en" and score >= MIN_PROBABILITY:
                            kept += 1
                            writer.write(line)
                            runs.append(np.array([*pieces.encode(text), pieces.eos_id()], np.uint16))
            if runs:
                np.save(Path(out, f"{shard.name}.npy"), np.concatenate(runs))
    print(kept)


if __name__ == "__main__":
    {"mixture": mixture, "bare": bare}[sys.argv[1]](Path(sys.argv[2]))
