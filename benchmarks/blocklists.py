"""Benchmark of lists and scores against sets of Python and fastText.

    python benchmarks/blocklists.py --mb 20 --entries 300000

Searches the texts of the demo corpus for listed words, looks up the domains of URLs, and scores texts with a small
classifier. Each result is proven equal to its peer: a regular expression with a set of strings, or fastText in
six digits. Prints megabytes or URLs per CPU second, their ratio, and the bytes of both forms of the list.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
from measure import machine_line
from pages import installed_pieces

from pipeline_assets.corpus.filters.blocklist import BlocklistFilter
from pipeline_assets.corpus.filters.classifier import label_probabilities, load_classifier
from pipeline_assets.corpus.filters.filter import Candidate
from pipeline_assets.corpus.filters.recipe import BlocklistRecipe
from pipeline_assets.corpus.filters.text_batch import join_texts

_WORD = re.compile(r"\w+")


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of the fastest of three runs, and the result."""
    work()
    took = []
    for _ in range(3):
        start = time.process_time()
        result = work()
        took.append(time.process_time() - start)
    return min(took), result


def main() -> None:
    parser = argparse.ArgumentParser(description="Texts and URLs → entries of lists; texts → scores")
    parser.add_argument("--mb", type=float, default=10)
    parser.add_argument("--entries", type=int, default=300_000)
    options = parser.parse_args()
    texts = [text for text in islice(installed_pieces(), 20_000) if "\0" not in text]
    size, kept = 0, []
    for text in texts:
        if size < options.mb * 1e6:
            kept.append(text)
            size += len(text.encode())
    words = [f"listedword{number}" for number in range(options.entries)]
    domains = [f"host{number}.example" for number in range(options.entries)]
    urls = [f"https://www.host{number * 7}.example/page/{number}" for number in range(20_000)]
    figures: dict[str, tuple[float, float, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, entries in (("words", words), ("domains", domains)):
            Path(temporary, name).write_text("\n".join(entries), encoding="utf-8")
        lists = {name: {"x": {"path": f"{temporary}/{name}"}} for name in ("words", "domains")}
        by_word, by_domain = (BlocklistFilter(BlocklistRecipe.model_validate({name: lists[name]})) for name in lists)
        word_set, domain_set = set(words), set(domains)
        documents = [Candidate(text.encode(), {}) for text in kept]
        pages = [Candidate(b"", {"url": url}) for url in urls]

        def found(blocklist: BlocklistFilter, candidates: list[Candidate]) -> list[bool]:
            [(_, entries)] = blocklist._find_matches(candidates)
            return [entry is not None for entry in entries]

        def plain_words() -> list[bool]:
            folded = (document.text.decode().casefold() for document in documents)
            return [any(word in word_set for word in _WORD.findall(text)) for text in folded]

        def plain_domains() -> list[bool]:
            hosts = (url.partition("://")[2].partition("/")[0].lower().split(".") for url in urls)
            return [any(".".join(host[first:]) in domain_set for first in range(len(host))) for host in hosts]

        ours, theirs = seconds(lambda: found(by_word, documents)), seconds(plain_words)
        figures["words, MB/s"] = size / 1e6 / ours[0], size / 1e6 / theirs[0], float(ours[1] == theirs[1])
        ours, theirs = seconds(lambda: found(by_domain, pages)), seconds(plain_domains)
        figures["domains, URLs/s"] = len(urls) / ours[0], len(urls) / theirs[0], float(ours[1] == theirs[1])
        training = Path(temporary, "training")
        training.write_text("__label__a the and of\n__label__b import return\n" * 500, encoding="utf-8")
        model = fasttext.train_supervised(str(training), dim=100, wordNgrams=2, bucket=200_000, thread=1, verbose=0)
        model.save_model(f"{temporary}/model.bin")
        labels, classifier = load_classifier(Path(temporary, "model.bin"))
        lines = [" ".join(text.split()) for text in kept]
        batch = join_texts([line.encode() for line in lines])
        ours = seconds(lambda: label_probabilities(batch, classifier)[:, labels.index("__label__a")])
        theirs = seconds(
            lambda: [dict(map(reversed, model.f.predict(f"{line}\n", 2, 0.0, "strict"))) for line in lines]
        )
        scores = np.array([prediction["__label__a"] for prediction in theirs[1]]) - 1e-5
        is_equal = float(np.abs(scores - ours[1]).max() < 1e-5)
        figures["scores, MB/s"] = size / 1e6 / ours[0], size / 1e6 / theirs[0], is_equal
    if not all(equal for _, _, equal in figures.values()):
        sys.exit(f"results differ: {figures}")
    table = by_word._words[0][1]
    flat, plain = sum(array.nbytes for array in table), sys.getsizeof(word_set) + sum(map(sys.getsizeof, word_set))
    print(machine_line())
    print(f"{'':16} {'corpusmill':>12} {'peer':>12} {'ratio':>6}")
    for name, (own, peer, _) in figures.items():
        print(f"{name:16} {own:12,.0f} {peer:12,.0f} {own / peer:6.2f}")
    print(f"{'bytes of words':16} {flat:12,} {plain:12,} {plain / flat:6.2f}")
    print(json.dumps({"figures": figures, "bytes": [flat, plain]}))


if __name__ == "__main__":
    main()
