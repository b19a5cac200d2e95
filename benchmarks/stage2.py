"""Benchmark of a stage 2 mixture against the bare libraries that it needs.

    python benchmarks/stage2.py [--shards FOLDER] [--runs 3]

FOLDER contains `.jsonl.zst` of Documents; by default, installed programs and documentation are the input. They are cut
into pieces as long as web pages, 3,000 characters or a paragraph more. The mixture has one source. It drops repeated
windows, texts below 200 and over 8,000 characters, then exact and near duplicates, and encodes and shards the rest. The
bare flow reads blocks of lines, drops texts by their length, encodes a batch at a time, and writes lines and ids. It
finds neither windows nor duplicates, hashes and syncs nothing. filters.py measures the language filter apart.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from corpus import write_shards
from measure import machine_line, measure
from stage2_flows import KINDS, MAX_CHARACTERS, MIN_CHARACTERS, MIXTURE, MODEL

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.stage2_mixture import Stage2Recipe

_VOCABULARY = 12_000
_PIECE = 3000
_NEAR = {"threshold": "0.8", "max_compared": 100}
_MINHASH = {"shingle_words": 5, "permutations": 112, "bands": 14, "rows": 8, "seed": 1}


def cut(shards: Path, to: Path) -> None:
    """Cut the texts into pieces with ids of their own, one file per shard."""
    to.mkdir(parents=True)
    for shard in sorted(shards.glob("*.jsonl.zst")):
        with open(to / f"{shard.name.partition('.')[0]}.jsonl", "wb") as file:
            for block in read_line_blocks(shard):
                for row in map(json.loads, block.splitlines()):
                    for number, piece in enumerate(pieces(row["text"])):
                        line = {"text": piece, "doc_id": f"{row['doc_id']}-{number}"}
                        file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def pieces(text: str) -> Iterator[str]:
    piece = ""
    for paragraph in text.split("\n\n"):
        piece += paragraph + "\n\n"
        if len(piece) >= _PIECE:
            yield piece
            piece = ""
    if piece.strip():
        yield piece


def prepare(root: Path, shards: Path) -> int:
    """Build the raw corpus and a tokenizer; return the bytes of text."""
    cut(shards, root / "pieces")
    section = {
        "kind": "local",
        "source": "manuals",
        "path": str(root / "pieces"),
        "files": ["*.jsonl"],
        "columns": {"text": "text", "id": "doc_id", "created_at": None, "license": None},
        "license_tag": "gfdl-1.3",
        "filters": {
            "windows": {},
            "length": {"min_characters": MIN_CHARACTERS, "max_characters": MAX_CHARACTERS},
        },
    }
    whole = {"manuals": "1"}
    content = {
        "system": "stage2",
        "name": MIXTURE,
        "sources": [section],
        "tokenizer": {"kind": "trained", "sources": whole, "sample_bytes": 8_000_000, "vocab_size": _VOCABULARY},
        "dedup": {"mode": "both", "scope": "global", "selection": "first", "near": _NEAR | {"minhash": _MINHASH}},
        "shards": {"sources": whole},
    }
    path = root / "recipes" / f"{MIXTURE}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    recipe = Stage2Recipe.read(path)
    for target in recipe.targets():
        if target.kind.name not in KINDS[1:] and target.kind.name != "stage2/inventory":
            target.kind.build(target, Run(root, RunSettings()))
    tokenizer = open_artifact(root / recipe.target("stage2/tokenizer").folder)
    shutil.copy(tokenizer.path(tokenizer.manifest.identity.decisions["model"]), root / MODEL)
    raw = open_artifact(root / recipe.target("stage2/raw_corpus", "manuals").folder)
    return int(raw.manifest.identity.counts["text_bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, help="folder of Document shards to read instead")
    parser.add_argument("--mb", type=int, default=60, help="megabytes of text without --shards")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    script = Path(__file__).with_name("stage2_flows.py")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if options.shards is None:
            (root / "made").mkdir()
            write_shards(root / "made", options.mb)
        size = prepare(root, options.shards or root / "made")
        own, bare = (measure(script, [flow, str(root)], options.runs) for flow in ("mixture", "bare"))
    print(f"{size / 1e6:.0f} MB of text, {machine_line()}")
    for name, result in (("mixture", own), ("bare libraries", bare)):
        figures = f"{result.cpu_s:7.1f} CPU s  {result.wall_s:7.1f} s  {result.peak_mb:6.0f} MiB"
        print(f"{name:15} {result.printed:>8} documents  {figures}")
    ratio = round(own.cpu_s / bare.cpu_s, 2)
    print(json.dumps({"benchmark": "stage2", "mb": round(size / 1e6), "cpu_to_ceiling": ratio}))


if __name__ == "__main__":
    main()
