"""Errors that user input or the environment causes, each with a one-line message."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline_assets.spine.visible import to_one_line

OptionFinder = Callable[[str], str | None]
"""Returns the command-line option for a dotted recipe key; None if the user wrote the key in a recipe file."""

# Recipe keys in messages are in backticks; so are columns of the input, always behind the word "column", and wrong
# keys of a file, behind "unknown key" or "got".
_KEY_IN_TEXT = re.compile(r"(?<!column )(?<!unknown key )(?<!got )`([a-z0-9_.]+)`(?: in the recipe)?")


@dataclass(frozen=True)
class RecipeKey:
    """Recipe key that an error is about: dotted, with list positions counted from 0.

    Errors print `file_and_line`, the key's place in the recipe file, or `name` if the place is unknown (empty).
    """

    name: str
    file_and_line: str = ""

    def __str__(self) -> str:
        return self.file_and_line or self.name


class InputError(Exception):
    """Wrong input, or a problem in the environment of a build.

    The command line prints the message without a traceback. Recipe keys in the message are in backticks, so that
    `name_keys` can replace them with command-line options.

    Attributes:
        what: The problem; for a mismatch, with both values.
        where: The file, row, recipe key or address, as text; empty if the error has no place.
        fix: The next step, as an instruction.
        key: Recipe key to correct; empty if the error is not about a key.
        others: Errors that were found together with this one.
    """

    def __init__(self, what: str, where: object, fix: str) -> None:
        place = "" if where is None else str(where) or "''"  # the user may have given an empty value
        super().__init__(what, place, fix)
        self.what, self.where, self.fix = what, place, fix
        self.key = where.name if isinstance(where, RecipeKey) else ""
        self.others: Sequence[InputError] = ()
        self._has_named_keys = False

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return to_one_line(f"{place}{self.what}; {self.fix}")

    def replace_text(self, old: str, new: str) -> None:
        """Replace text in the message, such as the path of a deleted folder."""
        self.what, self.where, self.fix = (text.replace(old, new) for text in (self.what, self.where, self.fix))

    def name_keys(self, recipe_file: object = None, find_option: OptionFinder | None = None) -> None:
        """Replace recipe keys in the message with command-line options.

        `find_option` returns the option for a key, or None. If `where` is a key without an option, `recipe_file` is put
        before the key. Only the first call has an effect.
        """
        if not self._has_named_keys:
            option = find_option(self.key) if find_option is not None and self.key else None
            if find_option is not None:
                self.what, self.fix = (_name_options(text, find_option) for text in (self.what, self.fix))
            if option is not None:
                self.where = "" if self.what.startswith(option) else option
            elif recipe_file is not None and self.where and self.where == self.key:
                self.where = f"{recipe_file}: {self.where}"
            self._has_named_keys = True
        for other in self.others:
            other.name_keys(recipe_file, find_option)


def _name_options(text: str, find_option: OptionFinder) -> str:
    return _KEY_IN_TEXT.sub(lambda match: find_option(match[1]) or match[0], text)


def combine_errors(errors: Sequence[InputError]) -> InputError:
    """Return the first error, with all other errors attached as `others`."""
    errors[0].others = errors[1:]
    return errors[0]


class ChangedFileError(InputError):
    """Error about a file whose hash is not the expected hash."""


class RetryableError(InputError):
    """Problem, such as a full disk; once it is solved, the same command works."""


class TransientError(RetryableError):
    """Problem that disappears with time, such as a busy hub or another builder."""


class DeniedError(RetryableError):
    """Denied access to one source; the other sources can be read."""


class UsageError(InputError):
    """Wrong option, recipe key or name; the exit status is 2 instead of 1."""


def one_line(error: BaseException | None, max_characters: int | None = None) -> str:
    """Return a library's error message on one line, cut to `max_characters` if set."""
    return to_one_line(" ".join(str(error).split()))[:max_characters]
