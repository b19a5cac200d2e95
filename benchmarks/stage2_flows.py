"""Flows that stage2.py compares, each in one process.

    python stage2_flows.py mixture ROOT     the system's filtered, deduplicated and token_shards
    python stage2_flows.py bare ROOT        read, drop by length, encode, write, with the bare libraries

Each prints the number of kept documents.
"""

import io
import sys
import tempfile
from pathlib import Path

MIXTURE, MODEL = "bench", "model.model"
KINDS = ("stage2/filtered", "stage2/deduplicated", "stage2/token_shards")
MIN_CHARACTERS, MAX_CHARACTERS = 200, 8000


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
    """Drop texts by length, encode the others in batches, and write lines and ids."""
    import msgspec
    import numpy as np
    import sentencepiece
    import zstandard

    class Row(msgspec.Struct, gc=False):
        text: str

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(root / MODEL))
    decoder, documents = msgspec.json.Decoder(Row), 0
    with tempfile.TemporaryDirectory() as out:
        for shard in sorted((root / "stage2" / MIXTURE / "raw_corpus" / "manuals" / "shards").glob("*.zst")):
            with (
                open(shard, "rb") as file,
                open(Path(out, shard.name), "wb") as target,
                zstandard.ZstdCompressor(level=3).stream_writer(target) as writer,
                open(Path(out, f"{shard.name}.bin"), "wb") as ids,
            ):
                lines = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
                while block := lines.readlines(1 << 20):
                    texts = [row.text for row in decoder.decode_lines(b"".join(block))]
                    kept = [n for n, text in enumerate(texts) if MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS]
                    writer.write(b"".join(block[n] for n in kept))
                    for run in pieces.encode([texts[n] for n in kept], add_eos=True, num_threads=1):
                        np.array(run, np.uint16).tofile(ids)
                    documents += len(kept)
    print(documents)


if __name__ == "__main__":
    {"mixture": mixture, "bare": bare}[sys.argv[1]](Path(sys.argv[2]))
