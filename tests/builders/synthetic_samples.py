"""Synthetic samples with the file names and shapes of the real ones."""

import json
import random
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

_STOP_WORDS = ["the", "of", "and", "to", "in", "that", "with", "have", "is", "was", "for", "it"]
_PARTS = ["bar", "del", "fin", "gor", "hal", "jun", "kel", "lom"]
_PARTS += ["mir", "nor", "pas", "qui", "ros", "sul", "tem", "vor"]
_WORDS = [first + second for first in _PARTS for second in _PARTS]
_MARKUP = ["Jade () is a river.", "<br>A line break.", "It is <math>formula_1</math> long.", "{| border"]
_KANA = "あいうえおかきくけこさしすせそたちつてと日本語森川山空海花雨雪月火水木金土"
PAGES = 20  # of each Wikipedia file, the title alone on every fifth


def sentence(draw: random.Random) -> str:
    """Return 5 to 18 words, a third of them common, and a full stop."""
    words = [draw.choice(_STOP_WORDS if draw.random() < 0.35 else _WORDS) for _ in range(draw.randint(5, 18))]
    return f"{' '.join(words).capitalize()}{draw.choice('...!?')}"


def paragraphs(draw: random.Random, count: int = 4) -> str:
    return "\n".join(" ".join(sentence(draw) for _ in range(draw.randint(2, 4))) for _ in range(count))


def web_page(draw: random.Random) -> str:
    """Return a text that filters keep, or one with a fault that they drop or repair."""
    text = paragraphs(draw)
    faults: list[Callable[[], str]] = [
        lambda: sentence(draw),
        lambda: f"{text}\n" * 3,
        lambda: text.replace(".", ""),
        lambda: f"{text}\nHome\nAll rights reserved\nUse of cookies",
        lambda: f"{text}\nfunction f() {{ return 1; }}",
        lambda: "\n".join(f"• {sentence(draw)}" for _ in range(12)),
        lambda: f"{text}\nWrite to {draw.choice(_WORDS)}@example.com or 8.8.8.8 [1][citation needed]",
        lambda: "# " * 80 + text,
    ]
    return draw.choice(faults)() if draw.random() < 0.5 else text


def japanese_page(draw: random.Random) -> str:
    return "\n".join("".join(draw.choices(_KANA, k=draw.randint(10, 60))) + "。" for _ in range(draw.randint(2, 8)))


def write_samples(folder: Path) -> Path:
    """Write synthetic files of web texts and Wikipedia pages; return the folder."""
    draw = random.Random(2)
    _write_lines(folder / "fineweb" / "fineweb_edu_texts.jsonl", ({"text": paragraphs(draw)} for _ in range(150)))
    _write_lines(folder / "fineweb" / "fineweb_v1_300_partial.jsonl", ({"text": web_page(draw)} for _ in range(300)))
    _write_lines(folder / "fineweb" / "fineweb2_jpn_100.jsonl", ({"text": japanese_page(draw)} for _ in range(100)))
    for name in ("c4/c4_rows", "redpajama/arxiv", "redpajama/cc_2023-06_refined", "redpajama/stack_exchange_70"):
        rows = ({"text": web_page(draw), "meta": {"n": number, "url": None}} for number in range(30))
        _write_lines(folder / f"{name}.jsonl", rows)
    for name in ("en_doc/AA/wiki_00", "en_doc/AB/wiki_00", "en_stub/AA/wiki_00", "zh_doc/AA/wiki_18"):
        _write(folder / "wikipedia" / name, "".join(_doc(name, *page) for page in _wikipedia_pages(draw)))
    for name in ("en_json/AA/wiki_00", "vi_json_revid/AA/wiki_00"):
        _write_lines(folder / "wikipedia" / name, (_json_page(name, *page) for page in _wikipedia_pages(draw)))
    return folder


def _wikipedia_pages(draw: random.Random) -> Iterable[tuple[int, str, str]]:
    """Yield number, title and text of pages.

    Four of five have a text, and a line of markup in turn.
    """
    for number in range(PAGES):
        lines = [] if number % 5 == 4 else [paragraphs(draw), _MARKUP[number % 5], sentence(draw)]
        yield number, f"Page & {number}", "\n".join(lines)


def _doc(name: str, number: int, title: str, text: str) -> str:
    wiki = name[:2]
    is_stub = name.startswith("en_stub")  # escaped, and without the address of the wiki
    url = f"?curid={number}" if is_stub else f"https://{wiki}.wikipedia.org/wiki?curid={number}"
    body = escape(text, quote=False) if is_stub else text
    return f'<doc id="{number}" url="{url}" title="{escape(title)}">\n{escape(title)}\n\n{body}\n\n</doc>\n'


def _json_page(name: str, number: int, title: str, text: str) -> dict[str, str]:
    page = {"id": str(number), "url": f"https://{name[:2]}.wikipedia.org/wiki?curid={number}"}
    return page | {"title": title, "text": text} | ({"revid": str(1000 + number)} if "revid" in name else {})


def _write_lines(path: Path, rows: Iterable[dict[str, object]]) -> None:
    _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
