"""Made-up English, nobody's work and about nothing: what the demo's sources say where nothing real may be copied."""

from random import Random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ADJECTIVES = _words(
    "old new quiet narrow broad distant early late common rare bright dark heavy light northern southern wooden "
    "stone shallow deep gentle steep busy empty"
)
_NOUNS = _words(
    "harbour valley market bridge orchard mill library garden river forest workshop station tower school museum "
    "lighthouse quarry canal chapel meadow theatre railway brewery courtyard"
)
_VERBS = _words(
    "supplied joined served crossed sheltered replaced resembled followed surrounded outlived inspired faced "
    "divided fed overlooked financed rebuilt repaired welcomed attracted"
)
_ENDINGS = (
    "after the second winter",
    "for nearly forty years",
    "until the road was moved",
    "in spite of the floods",
    "long before the census",
    "according to several letters",
    "as the guild had asked",
    "without any public money",
    "during the dry summers",
    "near the eastern border",
    "on the advice of its council",
    "with stone from the coast",
    "while the ferry still ran",
    "because the harvest failed",
    "at the end of the century",
    "to the surprise of visitors",
)
_SYLLABLES = ("Ash", "Brack", "Cold", "Dun", "Elder", "Fen", "Gran", "Harrow", "Ivel", "Kings", "Long", "Mar")
_ENDS = ("mere", "wick", "ford", "ley", "holm", "stead", "combe", "thorpe")


def sentence(draw: Random) -> str:
    """Eleven words or more; hardly ever the same one twice."""
    first, second = draw.choice(_ADJECTIVES), draw.choice(_ADJECTIVES)
    subject, verb, thing = draw.choice(_NOUNS), draw.choice(_VERBS), draw.choice(_NOUNS)
    return f"The {first} {subject} {verb} the {second} {thing} {draw.choice(_ENDINGS)}."


def paragraphs(draw: Random, count: int, sentences: int = 5) -> list[str]:
    """Paragraphs of so many sentences each."""
    return [" ".join(sentence(draw) for _ in range(sentences)) for _ in range(count)]


def place_name(number: int) -> str:
    """The name of a place; numbers below 96 have different ones."""
    return _SYLLABLES[number % len(_SYLLABLES)] + _ENDS[number // len(_SYLLABLES) % len(_ENDS)]
