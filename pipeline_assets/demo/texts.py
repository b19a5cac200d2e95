"""Generated texts of the demo: sentences from tables of words, seeded by names."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from pipeline_assets.corpus.reservoir import SplitMix64

_VOCABULARY = """
old, new, quiet, narrow, broad, distant, early, late, common, rare, bright, dark, heavy, light, northern, southern,
wooden, stone, shallow, deep, gentle, steep, busy, empty

harbour, valley, market, bridge, orchard, mill, library, garden, river, forest, workshop, station, tower, school,
museum, lighthouse, quarry, canal, chapel, meadow, theatre, railway, brewery, courtyard

supplied, joined, served, crossed, sheltered, replaced, resembled, followed, surrounded, outlived, inspired, faced,
divided, fed, overlooked, financed, rebuilt, repaired, welcomed, attracted

after the second winter, for nearly forty years, until the road was moved, in spite of the floods,
long before the census, according to several letters, as the guild had asked, without any public money,
during the dry summers, near the eastern border, on the advice of its council, with stone from the coast,
while the ferry still ran, because the harvest failed, at the end of the century, to the surprise of visitors

Ash, Brack, Cold, Dun, Elder, Fen, Gran, Harrow, Ivel, Kings, Long, Mar

mere, wick, ford, ley, holm, stead, combe, thorpe
"""
_ADJECTIVES, _NOUNS, _VERBS, _PHRASES, _PLACE_STARTS, _PLACE_ENDS = (
    " ".join(words.split()).split(", ") for words in _VOCABULARY.split("\n\n")
)
_FOREIGN_TEXTS = (
    "Am Morgen lag der Nebel noch über dem Hafen, und die Fischer warteten auf besseres Wetter. Niemand wusste, wann "
    "das Schiff aus dem Norden kommen würde. Die Wirtin glaubte kein Wort davon und stellte das Brot auf den Tisch.",
    "Le marché ouvrait chaque samedi avant le lever du soleil, et les paysans arrivaient de toute la vallée. On y "
    "vendait des pommes et du fromage. Personne ne se souvenait de l'année où la halle avait été construite.",
    "La biblioteca del pueblo estaba junto al río, en una casa que antes había sido un molino. Cada tarde llegaban los "
    "niños para escuchar los cuentos de la maestra. Cuando llovía mucho, había que subir los libros al otro piso.",
)
_VOWEL_TABLE = str.maketrans("aeiou", "éouia")


class Chooser(SplitMix64):
    """SplitMix64 generator that chooses items."""

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Seed a generator with the first 8 bytes of a name's sha256."""
        return cls(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]))

    def choice(self, items: Sequence[str]) -> str:
        return items[self.draw_below(len(items))]


@dataclass(frozen=True)
class DemoPage:
    """A text at a URL; the URL's hash determines the page's id, date and scores."""

    url: str
    text: str
    title: str = ""
    licence: str | None = None

    @property
    def url_hash(self) -> bytes:
        return hashlib.sha256(self.url.encode()).digest()

    def variant(self, mark: str, text: str) -> Self:
        """Copy the page with a new text, and append `?<mark>` to its URL."""
        return replace(self, url=f"{self.url}?{mark}", text=text)


def pages(site: str, count: int, licences: Sequence[str | None] = (None,)) -> list[DemoPage]:
    """Generate pages of 700 to 2,700 characters; every fortieth has 8,000 or more."""
    result = []
    for number in range(count):
        rng = Chooser.from_name(f"{site} {number}")
        place, year, metres = place_name(rng.draw_below(96)), 1700 + rng.draw_below(320), rng.draw_below(2000)
        lead = (
            f"{place} lies at {metres} metres. Since {year} the Ångström family has had its café, in the Château Row."
        )
        length = 25 + rng.draw_below(40) if number % 40 == 39 else 2 + rng.draw_below(6)
        url, text = f"https://{site}.example/{place.lower()}/{number}", "\n\n".join([lead, *paragraphs(rng, length)])
        result.append(DemoPage(url, text, place, licences[number % len(licences)]))
    return result


def place_name(number: int) -> str:
    """Return the name of a place; the names of the numbers 0 to 95 are distinct."""
    return _PLACE_STARTS[number % len(_PLACE_STARTS)] + _PLACE_ENDS[number // len(_PLACE_STARTS) % len(_PLACE_ENDS)]


def sentence(rng: Chooser) -> str:
    """Generate a sentence of at least eleven words; equal sentences are rare."""
    order = (_ADJECTIVES, _ADJECTIVES, _NOUNS, _VERBS, _NOUNS, _PHRASES)
    first, second, subject, verb, thing, ending = map(rng.choice, order)
    return f"The {first} {subject} {verb} the {second} {thing} {ending}."


def paragraphs(rng: Chooser, count: int, sentences: int = 5) -> list[str]:
    return [" ".join(sentence(rng) for _ in range(sentences)) for _ in range(count)]


def unwanted_pages(site: str, permutation_number: int) -> list[DemoPage]:
    """Generate pages that filters drop: three in other languages, and a short one.

    The foreign pages are in German, French and Spanish. Each has three sentences; `permutation_number` (0 to 5) selects
    their order. The short page is one English sentence.
    """
    orders = (list(itertools.permutations(text.rstrip(".").split(". "))) for text in _FOREIGN_TEXTS)
    odd = [f"{'. '.join(permutations[permutation_number])}." for permutations in orders]
    odd.append(sentence(Chooser.from_name(f"{site} odd")))
    return [DemoPage(f"https://{site}.example/odd/{number}", text, "Odd") for number, text in enumerate(odd)]


def translate(english: str) -> str:
    """Turn a sentence into generated "French", in which vowels are replaced."""
    return english.lower().translate(_VOWEL_TABLE).capitalize()


def reword(text: str) -> str:
    """Return a near duplicate of a text: one word differs, a paragraph is added."""
    return f"{text.replace(' the ', ' that ', 1)}\n\nSo they say."


def quote(text: str) -> str:
    """Return a text with two generated paragraphs before it, and two after it."""
    rng = Chooser.from_name(text)
    return "\n\n".join([*paragraphs(rng, 2), text, *paragraphs(rng, 2)])


def python_module(number: int) -> str:
    """Generate a Python module of 1,000 to 3,000 characters."""
    rng, functions = Chooser.from_name(f"module {number}"), list[str]()
    for place in range(8 + rng.draw_below(8)):
        name, minimum = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}_{place}", rng.draw_below(1000)
        body = f"return [value for value in values if value > {minimum}]"
        functions.append(f'def {name}(values):\n    """{sentence(rng)}"""\n    {body}\n')
    return "\n\n".join(functions)
