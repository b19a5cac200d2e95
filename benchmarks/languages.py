"""Texts → their languages: two detectors on the same texts, how fast, how right, and what an English corpus loses.

    python benchmarks/languages.py --runs 3

The texts are those of language_texts.py, on one core. Loading is measured on no texts and taken off. Each answers alike
in every run, or the benchmark ends. A detector's own threshold is the highest, in hundredths, that keeps 99.8 % of the
English documents; langdetect is agreed with where both, at their own, keep a text or both drop it.
"""

import argparse
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from language_texts import Kind, LabelledText, labelled_texts, missing
from measure import Measured, machine_line, measure

from pipeline_assets.corpus.filters.language import PACKAGES, UNDETERMINED, Language

USUAL = 0.85
LEAST_KEPT = 0.998
LICENCES = {"py3langid": "BSD", "langdetect": "MIT"}


@dataclass(frozen=True)
class Answers:
    """What one detector says of the texts, in their order.

    Attributes:
        known: the languages that are asked about when it is right.
    """

    texts: Sequence[LabelledText]
    languages: Sequence[Language]
    known: frozenset[str]

    def right(self, kind: Kind) -> float:
        """Share of a kind's texts in known languages that are said to be in theirs."""
        pairs = zip(self.texts, self.languages, strict=True)
        rights = [found.code == text.code for text, found in pairs if text.kind == kind and text.code in self.known]
        return sum(rights) / len(rights)

    def kept(self, threshold: float) -> list[bool]:
        """Whether each text stays in an English corpus."""
        return [found.code == "en" and found.score >= threshold for found in self.languages]

    def english_kept(self, threshold: float, kind: Kind) -> float:
        """Share of the English texts of a kind."""
        pairs = zip(self.texts, self.kept(threshold), strict=True)
        verdicts = [is_kept for text, is_kept in pairs if text.kind == kind and text.code == "en"]
        return sum(verdicts) / len(verdicts)

    def others_kept(self, threshold: float) -> str:
        """How many texts in other languages: documents and sentences, and mixed ones."""
        pairs = zip(self.texts, self.kept(threshold), strict=True)
        kinds = [text.kind for text, is_kept in pairs if is_kept and text.code != "en"]
        return f"{len(kinds) - kinds.count('mixed')} + {kinds.count('mixed')}"

    def own_threshold(self) -> float:
        """The highest, in hundredths, that keeps `LEAST_KEPT` of the English documents; 0 where none does."""
        scores = sorted(
            found.score if found.code == "en" else 0.0
            for text, found in zip(self.texts, self.languages, strict=True)
            if text.kind == "document" and text.code == "en"
        )
        may_go = math.floor(len(scores) * (1 - LEAST_KEPT))
        return math.floor(scores[may_go] * 100) / 100


def megabytes_on_disk(name: str) -> float:
    """Of a package's own files."""
    return sum(file.size or 0 for file in metadata.files(name) or ()) / 1e6


def compare_with_package(package: Sequence[tuple[str, float]], compiled: Sequence[Language]) -> tuple[int, float]:
    """Count the texts with letters in another language, and return the largest difference of their scores."""
    pairs = [pair for pair in zip(package, compiled, strict=True) if pair[1] != UNDETERMINED]
    codes = sum(code != language.code for (code, _), language in pairs)
    return codes, max(abs(score - language.score) for (_, score), language in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Texts → their languages")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if reason := missing():
        print(f"languages.py is skipped: {reason}")
        return
    texts = labelled_texts()
    script = Path(__file__).with_name("language_flows.py")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    figures: dict[str, Measured] = {}
    starts: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as temporary:
        given, empty = Path(temporary, "texts.jsonl"), Path(temporary, "empty.jsonl")
        given.write_text("".join(f"{json.dumps(text.text)}\n" for text in texts))
        empty.touch()
        for name in ("none", "package", *PACKAGES):
            starts[name] = measure(script, [name, str(empty)], options.runs)
            figures[name] = measure(script, [name, str(given)], options.runs)
    said = {name: [Language(*answer) for answer in json.loads(figures[name].printed)] for name in PACKAGES}
    known = frozenset.intersection(*(frozenset(found.code for found in said[name]) for name in PACKAGES))
    answers = {name: Answers(texts, said[name], known) for name in PACKAGES}
    own = {name: answers[name].own_threshold() for name in PACKAGES}
    megabytes = sum(len(text.text.encode()) for text in texts) / 1e6
    digest = hashlib.sha256(repr([(text.kind, text.code, text.text) for text in texts]).encode()).hexdigest()
    reading_s = figures["none"].cpu_s - starts["none"].cpu_s
    speeds = {
        name: megabytes / (figures[name].cpu_s - starts[name].cpu_s - reading_s) for name in ("package", *PACKAGES)
    }
    other_codes, max_difference = compare_with_package(json.loads(figures["package"].printed), said["py3langid"])
    counts = {kind: sum(text.kind == kind for text in texts) for kind in ("document", "short", "mixed", "code")}
    languages = len({text.code for text in texts})
    others = sum(text.code != "en" for text in texts)
    print(f"{machine_line()}; one process, median of {options.runs}, input {digest[:12]}")
    print(f"{len(texts):,} texts, {megabytes:.1f} MB, {counts}, {languages} languages, {others:,} not English")
    print(f"right: of {len(known & {text.code for text in texts})} languages, which both know\n")
    print(
        "| detector | licence | MB per CPU s | right: documents | short | mixed "
        "| English at 0.85 | others | own threshold | English | others | English, short | code "
        "| as langdetect | start, CPU s | MiB | disk, MB |\n|" + "---|" * 17
    )
    for name, answer in answers.items():
        least = own[name]
        same = [
            one == other
            for one, other in zip(answer.kept(least), answers["langdetect"].kept(own["langdetect"]), strict=True)
        ]
        print(
            f"| {name} {metadata.version(name)} | {LICENCES[name]} | {speeds[name]:.2f} "
            f"| {answer.right('document'):.4f} | {answer.right('short'):.4f} | {answer.right('mixed'):.4f} "
            f"| {answer.english_kept(USUAL, 'document'):.4f} | {answer.others_kept(USUAL)} | {least:.2f} "
            f"| {answer.english_kept(least, 'document'):.4f} | {answer.others_kept(least)} "
            f"| {answer.english_kept(least, 'short'):.4f} | {answer.english_kept(least, 'code'):.4f} "
            f"| {sum(same) / len(same):.4f} | {starts[name].cpu_s - starts['none'].cpu_s:.2f} "
            f"| {figures[name].peak_mb - figures['none'].peak_mb:.0f} | {megabytes_on_disk(name):.1f} |"
        )
    ratio = round(speeds["py3langid"] / speeds["package"], 1)
    print(
        f"\nThe package itself: {speeds['package']:.2f} MB per CPU s, the compiled kernel {ratio} times that; "
        f"{other_codes} texts in another language, scores at most {max_difference:.6f} apart"
    )
    to_langdetect = {name: round(speed / speeds["langdetect"], 1) for name, speed in speeds.items()}
    figures_json = {"thresholds": own, "speed_to_langdetect": to_langdetect, "speed_to_py3langid": ratio}
    print(json.dumps({"benchmark": "languages", **figures_json}))


if __name__ == "__main__":
    main()
