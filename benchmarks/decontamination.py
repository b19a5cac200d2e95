"""Benchmark of decontamination against Python n-gram sets and datatrove.

    python benchmarks/decontamination.py --shards FOLDER --documents 15000 --slow-documents 1000

Each flow runs in one process. corpusmill reads shards, decides by item (half of an item's 13-grams, or a short item as
a whole), and writes the kept documents, the evidence and the manifest durably. The peers only report the documents that
contain a 13-gram, and write nothing. datatrove reads fewer documents. The start (imports, compiled code, the index of
the items) is measured on one document and subtracted.

Items are passages of the documents with their words shuffled, so that only planted documents contain them. A hundred
items begin with 15 unshuffled words of a document, as an item quotes a licence or a proverb, which is not a leak. Every
tenth document gets a leak, and the kinds of leaks alternate. Before speeds are compared, corpusmill must have found
every leak that its rule covers, and nothing else.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from corpus import link_shards, write_shards
from measure import Measured, machine_line, measure

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.partial_documents import RAW_DECODER, encode_with_text
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import StagingDir

FAST, SLOW = ("corpusmill", "corpusmill, 2 workers", "Python set"), ("datatrove",)
_EVERY, _ITEMS, _SHARD_DOCUMENTS = 10, 2_000, 2_500
_QUOTING, _QUOTE_WORDS = 100, 15
_WORD_CHARACTERS = 20  # enough text to draw one word


@dataclass(frozen=True)
class Kind:
    """Kind of leak: the items' lengths in words, and how a document quotes an item.

    The rule finds a leak only if `is_expected`.
    """

    words: tuple[int, int]
    plant: Callable[[list[str], random.Random], str]
    is_expected: bool = True


def _disguised(words: list[str], draw: random.Random) -> str:
    return "".join(word.swapcase() + draw.choice([" ", "\n", " – ", ", "]) for word in words)


def _in_two_places(words: list[str], draw: random.Random) -> str:
    part = len(words) * 3 // 5
    return f"{' '.join(words[:part])}. Something else stands in between. {' '.join(words[-part:])}"


KINDS: Mapping[str, Kind] = {
    "whole": Kind((30, 70), lambda words, _: " ".join(words)),
    "disguised": Kind((30, 70), _disguised),
    "three quarters": Kind((40, 70), lambda words, _: " ".join(words[: len(words) * 3 // 4])),
    "in two places": Kind((50, 70), _in_two_places),
    "short": Kind((8, 12), lambda words, _: " ".join(words)),
    "a third": Kind((50, 70), lambda words, _: " ".join(words[: len(words) // 3]), is_expected=False),
}


@dataclass(frozen=True)
class Planted:
    """Size of a corpus, and the kind of leak in each document that has one."""

    megabytes: float
    leaks: Mapping[str, str]


def draw_items(lines: Sequence[bytes], draw: random.Random) -> dict[str, list[list[str]]]:
    """Draw the words of items by kind of leak; `quoting` items are not planted."""
    texts = [msgspec.json.decode(line)["text"] for line in lines]
    count = (_ITEMS - _QUOTING) // len(KINDS)
    items = {name: [_item(texts, kind.words, 0, draw) for _ in range(count)] for name, kind in KINDS.items()}
    return items | {"quoting": [_item(texts, (50, 70), _QUOTE_WORDS, draw) for _ in range(_QUOTING)]}


def plant(folder: Path, lines: Sequence[bytes], items: Mapping[str, list[list[str]]], draw: random.Random) -> Planted:
    """Seal a corpus of the documents with a leak in every tenth, and write the items."""
    planted, leaks = list(lines), dict[str, str]()
    for number in range(_EVERY - 1, len(planted), _EVERY):
        name = list(KINDS)[len(leaks) % len(KINDS)]
        row = msgspec.json.decode(planted[number])
        before, blank, after = row["text"].partition(" ")
        leak = KINDS[name].plant(draw.choice(items[name]), draw)
        planted[number] = encode_with_text(RAW_DECODER.decode(planted[number]), f"{before} {leak}{blank}{after}")
        leaks[row["doc_id"]] = name
    texts = [
        {"id": f"{name} {number}", "text": " ".join(item)} for name in items for number, item in enumerate(items[name])
    ]
    (folder / "items").mkdir(parents=True)
    (folder / "items" / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    target = Target(unknown_kind("made/documents", StageVersion("made", 1)), "documents", Path("corpora/documents"), {})
    build_target(target, folder, lambda building: _write(building, planted), False, {})
    return Planted(sum(map(len, planted)) / 1e6, leaks)


def _first_lines(sources: Sequence[Path], documents: int) -> list[bytes]:
    lines: list[bytes] = []
    for source in sources:
        for block in read_line_blocks(source):
            lines += block.splitlines()[: documents - len(lines)]
            if len(lines) == documents:
                return lines
    sys.exit(f"--documents must be at most {len(lines):,}, the documents of the input, got {documents:,}")


def _item(texts: Sequence[str], size: tuple[int, int], quoted_words: int, draw: random.Random) -> list[str]:
    """Draw words that have only letters, which are words by any flow's rule."""
    while True:
        text, count = draw.choice(texts), draw.randint(*size)
        start = draw.randrange(len(text))
        words = text[start : start + _WORD_CHARACTERS * count].split()[1:-1]
        rest = [word for word in words[quoted_words:] if word.isalpha()][: count - quoted_words]
        if all(map(str.isalpha, words[:quoted_words])) and len(rest) == count - quoted_words:
            draw.shuffle(rest)
            return words[:quoted_words] + rest


def _write(building: StagingDir, lines: Sequence[bytes]) -> BuildResult:
    files = []
    for number, first in enumerate(range(0, len(lines), _SHARD_DOCUMENTS)):
        name = f"shards/{number:05d}.jsonl.zst"
        own = lines[first : first + _SHARD_DOCUMENTS]
        with JsonlZstWriter(building.path(name), 3) as writer:
            writer.write_lines(b"".join(line + b"\n" for line in own), len(own))
        files.append(writer.output(name))
    return BuildResult(files, {"documents": len(lines)}, {})


def score_report(folder: Path, flow: str, leaks: Mapping[str, str]) -> tuple[dict[str, float], float]:
    """Return a flow's recall by kind of leak, and its precision."""
    reported = set(json.loads((folder / "found" / f"{flow}.json").read_text()))
    by_kind = {name: [doc_id in reported for doc_id, kind in leaks.items() if kind == name] for name in KINDS}
    return {name: sum(hits) / len(hits) for name, hits in by_kind.items()}, len(reported & leaks.keys()) / max(
        len(reported), 1
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Document shards → contaminated documents")
    parser.add_argument("--documents", type=int, default=15_000)
    parser.add_argument("--slow-documents", type=int, default=1_000)
    parser.add_argument("--mb", type=int, default=64, help="megabytes of text without --shards")
    parser.add_argument("--runs", type=int, default=3, help="runs of corpusmill; peers run once")
    parser.add_argument("--shards", type=Path, help="folder of Document shards to read instead")
    options = parser.parse_args()
    script = Path(__file__).with_name("decontamination_flows.py")
    starts: dict[str, Measured] = {}
    figures: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as temporary:
        source, fast, slow, single = (Path(temporary, name) for name in ("source", "fast", "slow", "single"))
        source.mkdir()
        paths, _, _ = link_shards(options.shards, source) if options.shards else write_shards(source, options.mb)
        lines, draw = _first_lines(paths, options.documents), random.Random(1)
        items = draw_items(lines, draw)
        sizes = {fast: options.documents, slow: options.slow_documents, single: 1}
        planted = {folder: plant(folder, lines[:count], items, draw) for folder, count in sizes.items()}
        recalls: dict[str, tuple[dict[str, float], float]] = {}
        for name in (*FAST, *SLOW):
            folder = slow if name in SLOW else fast
            starts[name] = measure(script, [name, str(single)], options.runs)
            figures[name] = measure(script, [name, str(folder)], options.runs if name.startswith("corpusmill") else 1)
            recalls[name] = score_report(folder, name, planted[folder].leaks)
    for name in ("corpusmill", "corpusmill, 2 workers"):
        if recalls[name] != ({kind: float(KINDS[kind].is_expected) for kind in KINDS}, 1.0):
            sys.exit(f"{name} missed a leak or reported a clean document: {recalls[name]}")
    megabytes = {name: planted[slow if name in SLOW else fast].megabytes for name in figures}
    speeds = {name: megabytes[name] / (figures[name].cpu_s - starts[name].cpu_s) for name in figures}
    print(f"{machine_line()}; {options.documents:,} documents, {_ITEMS:,} items, one process each\n")
    print(f"| flow | {' | '.join(KINDS)} | precision |\n" + "|---" * (len(KINDS) + 2) + "|")
    for name, (recall, precision) in recalls.items():
        print(f"| {name} | {' | '.join(f'{share:.1%}' for share in recall.values())} | {precision:.1%} |")
    print(
        "\n| flow | documents, contaminated | MB | start, CPU s | CPU s | MB per CPU s | corpusmill to it | peak MiB |"
    )
    print("|---" * 8 + "|")
    for name, speed in speeds.items():
        row, start = figures[name], starts[name].cpu_s
        print(
            f"| {name} | {row.printed} | {megabytes[name]:.0f} | {start:.1f} | {row.cpu_s - start:.2f} | {speed:.1f} "
            f"| {speeds['corpusmill'] / speed:.1f} | {row.peak_mb:.0f} |"
        )
    ratios = {name: round(speeds["corpusmill"] / speed, 2) for name, speed in speeds.items() if name != "corpusmill"}
    recall, precision = recalls["corpusmill"]
    print(
        json.dumps(
            {
                "benchmark": "decontamination",
                "documents": options.documents,
                "recall": recall,
                "precision": precision,
                "corpusmill_to": ratios,
            }
        )
    )


if __name__ == "__main__":
    main()
