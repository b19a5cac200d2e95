"""The errors that a user's input, or the world, can cause, each one line: what, where, what to do next.

A message marks the recipe keys that it names, with `key`: whoever shows it knows whether the reader wrote a recipe, or
typed options.
"""

import re
from collections.abc import Callable, Sequence

from pipeline_assets.spine.visible import in_one_line

# Characters of private use, in an order that no name has.
_KEY = re.compile("\ue000([^\ue001]*)\ue001([^\ue001]*)\ue001([^\ue001]*)\ue001")
IN_RECIPE = "`{}` in the recipe"


def key(name: str, in_recipe: str = "`{}`", as_option: str = "{}") -> str:
    """A recipe key, to be named in a message.

    Args:
        name: dotted; positions in lists don't matter.
        in_recipe: what a reader of a recipe is told; `{}` stands for the key.
        as_option: what a reader is told who typed an option for it; `{}` stands for the option.
    """
    return f"\ue000{name}\ue001{in_recipe}\ue001{as_option}\ue001"


def bare(name: str) -> str:
    """The same without backticks: as a place, or before its value."""
    return key(name, "{}")


THE_RECIPE = key("", "the recipe", "the {}")


OptionOf = Callable[[str], str | None]


def no_option(name: str) -> None:
    """Of a recipe that somebody wrote, no key is an option."""


def named(text: str, option_of: OptionOf = no_option) -> str:
    """A text whose keys are named as its reader knows them: by the option for a key, where there is one."""

    def words(mark: re.Match[str]) -> str:
        option = option_of(mark[1])
        return mark[2].replace("{}", mark[1]) if option is None else mark[3].replace("{}", option)

    return _KEY.sub(words, text)


class InputError(Exception):
    """Something the user gave, or the world around the build, is wrong. The command line prints it without a traceback.

    Args:
        what: what is wrong, with both values where two disagree.
        where: the file, row, recipe key or address.
        fix: the next step, as an instruction.
    """

    def __init__(self, what: str, where: object, fix: str) -> None:
        super().__init__(what, str(where), fix)
        self.what, self.where, self.fix = map(named, self.args)
        self.others: Sequence[InputError] = ()  # found in the same look, to be mended with it

    def __str__(self) -> str:
        return in_one_line(f"{self.where}: {self.what}; {self.fix}")

    def relocate(self, place: str, to: str) -> None:
        """Tells of another place wherever it told of this one, such as a folder that is gone with the build."""
        self.args = tuple(text.replace(place, to) for text in self.args)
        self.what, self.where, self.fix = map(named, self.args)

    def name_keys(self, file: object = None, option_of: OptionOf = no_option) -> None:
        """Names recipe keys by options, as `named` does, and settles how the others are called: of the `file` that has
        them, where the message doesn't say it.
        """
        what, where, fix = self.args
        place = _KEY.match(where)
        if file is not None and place is not None and place[2] == "{}" and option_of(place[1]) is None:
            where = f"{file}: {where}"
        self.args = tuple(named(text, option_of) for text in (what, where, fix))
        self.what, self.where, self.fix = self.args
        for other in self.others:
            other.name_keys(file, option_of)


def combine_errors(errors: Sequence[InputError]) -> InputError:
    """The first of some errors, which carries the others."""
    errors[0].others = errors[1:]
    return errors[0]


class RetryableError(InputError):
    """Something in the way (network, disk, rights, another builder): once it is gone, the same command goes on."""


class TransientError(RetryableError):
    """What passes by itself: a hub that doesn't answer or asks to wait, another builder at work."""


class DeniedError(RetryableError):
    """One source that may not be read: the others can."""


class UsageError(InputError):
    """The question itself is wrong (an option, a recipe key, a name): exit status 2 rather than 1."""


def one_line(error: BaseException, characters: int | None = None) -> str:
    """What an error of a library says, for a line of ours: its white space as single blanks, and no more than so many
    characters of it.
    """
    return in_one_line(" ".join(str(error).split()))[:characters]
