"""Texts in known languages, the same ones every time: of the samples beside the checkout, of spaCy's example sentences
and of Python's own modules. No language is guessed: it is the source's, or a translator's.
"""

import ast
import html
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

PROJECT = Path(__file__).parents[1]
DATA = PROJECT.parent / "shared" / "data"
MOST = 500  # of one source and kind
Kind = Literal["document", "short", "mixed", "code"]


@dataclass(frozen=True)
class LabelledText:
    """A text whose language is known.

    Attributes:
        code: ISO 639-1, or 639-3 where that has none; of a mixed text the language of two thirds of it.
        kind: a document of several sentences; a sentence or two; a text of two languages; a Python module, whose words
            are English.
    """

    text: str
    code: str
    kind: Kind


def missing() -> str | None:
    """What the set can't be made without, and how to get it; None where all is there."""
    if not (DATA / "parallel").is_dir():
        return f"there are no samples in {DATA}"
    try:
        metadata.version("spacy")
    except metadata.PackageNotFoundError:
        return "spaCy is not installed: its example sentences are in the extra `peers`"
    return None


def labelled_texts() -> list[LabelledText]:
    """All of them, in one order."""
    documents = {code: [*texts] for code, texts in _documents()}
    shorts = {code: [*texts] for code, texts in _shorts(documents)}
    examples = _examples()
    for code, sentences in examples.items():
        documents[code] = documents.get(code, []) + [" ".join(group) for group in _groups(sentences, 4)]
        shorts[code] = shorts.get(code, []) + sentences
    return [
        *(LabelledText(text, code, "document") for code, texts in documents.items() for text in texts),
        *(LabelledText(text, code, "short") for code, texts in shorts.items() for text in texts),
        *(LabelledText(text, code, "mixed") for code, text in _mixed(documents)),
        *(LabelledText(text, "en", "code") for text in _modules()),
    ]


def _documents() -> Iterator[tuple[str, list[str]]]:
    web = ("fineweb/fineweb_v1_300_partial", "fineweb/fineweb_edu_texts", "c4/c4_rows", "redpajama/cc_2023-06_refined")
    news = {code: list(_groups(_news(code), 8))[:MOST] for code in ("en", "fr")}
    pages = [*_pages("en_doc/AA/wiki_00"), *_pages("en_doc/AB/wiki_00")]
    english = [text for name in web for text in _texts(DATA / f"{name}.jsonl")]
    yield "en", [*english, *pages, *_posts(), *("\n".join(group) for group in news["en"])]
    yield "fr", ["\n".join(group) for group in news["fr"]]
    yield "zh", _pages("zh_doc/AA/wiki_18")
    yield "ja", _texts(DATA / "fineweb" / "fineweb2_jpn_100.jsonl")


def _shorts(documents: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    for code in ("en", "fr"):
        yield code, _news(code)[5::20][:MOST]
    for code in ("zh", "ja"):
        sentences = [sentence for text in documents[code] for sentence in re.findall("[^。\n]{10,60}。", text)]
        yield code, sentences[:: max(1, len(sentences) // MOST)][:MOST]


def _mixed(documents: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Two thirds of the characters in one language, then one third in the other."""
    english = itertools.cycle(text for text in documents["en"] if len(text) > 1000)
    for code in (code for code in documents if code != "en"):
        for text, partner in zip(documents[code][:10], english, strict=False):
            part = min(len(text), len(partner)) // 2
            yield code, f"{text[: 2 * part]}\n{partner[:part]}"
            yield "en", f"{partner[: 2 * part]}\n{text[:part]}"


def _examples() -> dict[str, list[str]]:
    """spaCy's sentences of 67 languages, read without loading it; in runs of four, which are documents, of most."""
    found = {}
    for file in sorted(metadata.files("spacy") or (), key=str):
        parts = file.parts
        if parts[:2] == ("spacy", "lang") and parts[3:] == ("examples.py",):
            tree = ast.parse(Path(file.locate()).read_text(encoding="utf-8"))
            lists = [node.value for node in tree.body if isinstance(node, ast.Assign)]
            found[{"nb": "no", "kmr": "ku"}.get(parts[2], parts[2])] = [*ast.literal_eval(lists[0])]
    found.pop("xx")  # several languages
    return found


def _modules() -> list[str]:
    """The beginnings of the modules of the standard library."""
    paths = sorted(Path(os.__file__).parent.glob("*.py"))
    return [path.read_text(encoding="utf-8")[:4000] for path in paths][:MOST]


def _news(code: str) -> list[str]:
    name = {"en": "eng", "fr": "fra"}[code]
    paths = [DATA / "parallel" / f"newstest{year}.{name}" for year in (2013, 2014)]
    return [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def _texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_bytes().splitlines()][:MOST]


def _pages(name: str) -> list[str]:
    dump = (DATA / "wikipedia" / name).read_text(encoding="utf-8")
    pages = re.findall(r"<doc [^>]*>\n(.*?)\n</doc>", dump, re.DOTALL)
    return [page for page in pages if len(page.encode()) > 600][:MOST]


def _posts() -> list[str]:
    """Questions and answers about beer, without their tags."""
    path = DATA / "stackexchange" / "beer.stackexchange.com" / "Posts.xml"
    bodies = [row.get("Body", "") for row in ElementTree.parse(path).getroot()]
    texts = [html.unescape(re.sub("<[^>]*>", "", body)).strip() for body in bodies]
    return [text for text in texts if len(text) > 300][:MOST]


def _groups(sentences: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (sentences[start : start + size] for start in range(0, len(sentences) - size + 1, size))
