"""Benchmark of recall: similar pairs with both documents kept.

    python benchmarks/edited_copies.py --shards FOLDER --documents 50000

Documents are pieces of 2,000 characters; every seventh is an earlier one with up to a twentieth of its words edited.
Sets of Python strings find all similar pairs, so that the number of missed pairs is known, not estimated.
"""

import argparse
import itertools
import math
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import msgspec
from corpus import link_shards, write_shards
from dedup import write_sample
from dedup_flows import RENSA_DROPPED, THRESHOLD, load, shingles
from measure import machine_line, measure

from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks

_CHARACTERS, _MIN_CHARACTERS, _MAX_PIECES = 2_000, 500, 10
_MAX_EDITED = 0.05  # largest share of edited words: such a pair has a similarity of about 0.6


def pieces(sources: Sequence[Path]) -> list[str]:
    """Return distinct pieces of documents, at most ten of each."""
    texts: dict[str, None] = {}
    for block in itertools.chain.from_iterable(map(read_line_blocks, sources)):
        for line in block.splitlines():
            text = msgspec.json.decode(line)["text"]
            starts = range(0, min(len(text) - _MIN_CHARACTERS, _MAX_PIECES * _CHARACTERS), _CHARACTERS)
            texts.update(dict.fromkeys(text[start : start + _CHARACTERS] for start in starts))
    return list(texts)


def with_edited_copies(originals: Sequence[str], documents: int) -> list[str]:
    """Return up to `documents` texts, every seventh an edited copy of an earlier one."""
    chance = random.Random(1)
    texts: list[str] = []
    for original in chance.sample(originals, min(len(originals), documents - documents // 7)):
        texts.append(original)
        if len(texts) % 7 == 6:
            words = chance.choice(texts).split(" ")
            for number in chance.sample(range(len(words)), int(len(words) * chance.uniform(0, _MAX_EDITED))):
                words[number] = f"edited{chance.randrange(10_000)}"
            texts.append(" ".join(words))
    return texts


def write(texts: Sequence[str], folder: Path) -> float:
    """Write the texts as Document shards with their numbers as ids; return megabytes."""
    whole = folder.with_name(f"{folder.name}-whole.jsonl.zst")
    with JsonlZstWriter(whole, 3) as writer:
        for number, text in enumerate(texts):
            document = Document(
                text, "edited", "web", str(number), "psf-2.0", "", Meta.from_mapping("made", number, {})
            )
            writer.write_lines(msgspec.json.encode(document) + b"\n", 1)
    return write_sample([whole], folder, len(texts))


def similar_pairs(texts: Sequence[str], threshold: Fraction) -> Iterator[tuple[int, int, Fraction]]:
    """Yield all pairs at the threshold or above, with their Jaccard similarities.

    Sets of that similarity share one of their rarest shingles (AllPairs, Bayardo et al. 2007).
    """
    sets = [shingles(text) for text in texts]
    frequencies = Counter(itertools.chain.from_iterable(sets))
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for number, own in enumerate(sets):
        rarest = sorted(own, key=lambda shingle: (frequencies[shingle], shingle))
        candidates: set[int] = set()
        for shingle in rarest[: len(own) - math.ceil(threshold * len(own)) + 1]:
            candidates.update(holders[shingle])
            holders[shingle].append(number)
        for other in candidates:
            shared = len(own & sets[other])
            similarity = Fraction(shared, len(own) + len(sets[other]) - shared)
            if similarity >= threshold:
                yield other, number, similarity


def dropped_by_corpusmill(result: Path) -> list[str]:
    lines = itertools.chain.from_iterable(map(bytes.splitlines, read_line_blocks(result / DECISIONS_FILE)))
    return [row["doc_id"] for row in map(msgspec.json.decode, lines) if row["decision"] != "kept"]


def dropped_by_rensa(result: Path) -> list[str]:
    return (result / RENSA_DROPPED).read_text().split()


def main() -> None:
    parser = argparse.ArgumentParser(description="Similar pairs, and those with both documents kept")
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--mb", type=int, default=160, help="megabytes of text without --shards")
    parser.add_argument("--shards", type=Path, help="folder of Document shards to read instead")
    options = parser.parse_args()
    script = Path(__file__).with_name("dedup_flows.py")
    with tempfile.TemporaryDirectory() as temporary:
        source, folder = Path(temporary, "source"), Path(temporary, "edited")
        source.mkdir()
        paths, _, _ = link_shards(options.shards, source) if options.shards else write_shards(source, options.mb)
        texts = with_edited_copies(pieces(paths), options.documents)
        megabytes = write(texts, folder)
        pairs = list(similar_pairs([row.text for row in load(folder)], Fraction(THRESHOLD)))
        print(f"{machine_line()}; {len(texts):,} documents, {megabytes:.0f} MB\n")
        print("| flow | documents, dropped | pairs of 0.8 or more | both kept | pairs of 0.7 or more | both kept |")
        print("|---" * 6 + "|")
        for name, read_dropped in (("corpusmill", dropped_by_corpusmill), ("rensa", dropped_by_rensa)):
            printed = measure(script, [name, str(folder)], 1).printed
            dropped = {int(doc_id) for doc_id in read_dropped(folder / "result")}
            cells = [name, printed]
            for threshold in (Fraction("0.8"), Fraction(THRESHOLD)):
                similar = [pair for *pair, similarity in pairs if similarity >= threshold]
                cells += [f"{len(similar):,}", f"{sum(dropped.isdisjoint(pair) for pair in similar):,}"]
            print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
