"""Seeded texts of the demo, which are the same on every machine and in every Python.

Words are drawn from the lists below by SplitMix64, started by the name of a text.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from pipeline_assets.corpus.reservoir import Dice

T = TypeVar("T")


def _words(text: str, separator: str = " ") -> list[str]:
    return " ".join(text.split()).split(separator)


_ADJECTIVES = _words("""
    old new quiet narrow broad distant early late common rare bright dark heavy light northern southern wooden
    stone shallow deep gentle steep busy empty""")
_NOUNS = _words("""
    harbour valley market bridge orchard mill library garden river forest workshop station tower school museum
    lighthouse quarry canal chapel meadow theatre railway brewery courtyard""")
_VERBS = _words("""
    supplied joined served crossed sheltered replaced resembled followed surrounded outlived inspired faced
    divided fed overlooked financed rebuilt repaired welcomed attracted""")
_ENDINGS = _words(
    """
    after the second winter, for nearly forty years, until the road was moved, in spite of the floods,
    long before the census, according to several letters, as the guild had asked, without any public money,
    during the dry summers, near the eastern border, on the advice of its council, with stone from the coast,
    while the ferry still ran, because the harvest failed, at the end of the century, to the surprise of visitors""",
    ", ",
)
_SYLLABLES = _words("Ash Brack Cold Dun Elder Fen Gran Harrow Ivel Kings Long Mar")
_ENDS = _words("mere wick ford ley holm stead combe thorpe")
_FOREIGN = (
    "Am Morgen lag der Nebel noch über dem Hafen, und die Fischer warteten auf besseres Wetter. Niemand wusste, wann "
    "das Schiff aus dem Norden kommen würde. Die Wirtin glaubte kein Wort davon und stellte das Brot auf den Tisch.",
    "Le marché ouvrait chaque samedi avant le lever du soleil, et les paysans arrivaient de toute la vallée. On y "
    "vendait des pommes et du fromage. Personne ne se souvenait de l'année où la halle avait été construite.",
    "La biblioteca del pueblo estaba junto al río, en una casa que antes había sido un molino. Cada tarde llegaban los "
    "niños para escuchar los cuentos de la maestra. Cuando llovía mucho, había que subir los libros al otro piso.",
)
_VOWELS = str.maketrans("aeiou", "éouia")


class Draw(Dice):
    """SplitMix64 as a source of choices."""

    @classmethod
    def named(cls, name: str) -> Self:
        """Start at the first 8 bytes of a name's sha256."""
        return cls(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]))

    def choice(self, things: Sequence[T]) -> T:
        return things[self.below(len(things))]


@dataclass(frozen=True)
class Page:
    """A text at an address, from which its id, date and scores are made."""

    url: str
    text: str

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.url.encode()).digest()


def page(site: str, number: int) -> Page:
    """Make a page of some 2,000 characters; every fortieth has over 10,000, none over 30,000."""
    draw = Draw.named(f"{site} {number}")
    place, year, metres = place_name(draw.below(96)), 1700 + draw.below(320), draw.below(2000)
    lead = f"{place} lies at {metres} metres. Since {year} the Ångström family has had its café, in the Château Row."
    count = 25 + draw.below(40) if number % 40 == 39 else 2 + draw.below(6)
    return Page(f"https://{site}.example/{place.lower()}/{number}", "\n\n".join([lead, *paragraphs(draw, count)]))


def place_name(number: int) -> str:
    """Name a place; numbers below 96 have different names."""
    return _SYLLABLES[number % len(_SYLLABLES)] + _ENDS[number // len(_SYLLABLES) % len(_ENDS)]


def sentence(draw: Draw) -> str:
    """Make a sentence of eleven words or more; hardly ever the same one twice."""
    first, second = draw.choice(_ADJECTIVES), draw.choice(_ADJECTIVES)
    subject, verb, thing = draw.choice(_NOUNS), draw.choice(_VERBS), draw.choice(_NOUNS)
    return f"The {first} {subject} {verb} the {second} {thing} {draw.choice(_ENDINGS)}."


def paragraphs(draw: Draw, count: int, sentences: int = 5) -> list[str]:
    """Make paragraphs of so many sentences each."""
    return [" ".join(sentence(draw) for _ in range(sentences)) for _ in range(count)]


def foreign_texts(order: int) -> list[str]:
    """Return a German, a French and a Spanish text; their sentences are in one of six orders."""
    orders = (list(itertools.permutations(text.rstrip(".").split(". "))) for text in _FOREIGN)
    return [f"{'. '.join(one[order])}." for one in orders]


def translated(english: str) -> str:
    """Turn a sentence into "French": each word always has the same translation."""
    return english.lower().translate(_VOWELS).capitalize()


def module(number: int) -> str:
    """Make a Python module of some 2,000 characters."""
    draw, functions = Draw.named(f"module {number}"), list[str]()
    for place in range(8 + draw.below(8)):
        name, least = f"{draw.choice(_VERBS)}_{draw.choice(_NOUNS)}_{place}", draw.below(1000)
        body = f"return [value for value in values if value > {least}]"
        functions.append(f'def {name}(values):\n    """{sentence(draw)}"""\n    {body}\n')
    return "\n\n".join(functions)
