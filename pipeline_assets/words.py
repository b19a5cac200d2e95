"""What is typed, before the parser sees it: short names, settings that go with every command, values without their
option. It loads next to nothing, so that the command line starts at once.
"""

import os
from collections.abc import Collection, Iterable

from pipeline_assets.corpus.spine.errors import UsageError

# Settings of a run that every command takes, before its name or after it: it is the variable of the same setting.
_SETTINGS = {
    "--workers": "CORPUSMILL_WORKERS",
    "--cpu-threads": "CORPUSMILL_WORKERS",
    "--faiss-gpu": "CORPUSMILL_FAISS_GPU",
    "--log-every": "CORPUSMILL_LOG_EVERY",
    "--verbose": "CORPUSMILL_VERBOSE",
    "--launcher": "CORPUSMILL_LAUNCHER",
    "--cost-limit": "CORPUSMILL_MODAL_COST_LIMIT",
}
_NO_NUMBERS = ("--launcher", "--cost-limit")
_OTHER_NAMES = {"--similarity": "--threshold"}


def without_settings(words: Iterable[str], own: Collection[str] = (), leading: bool = False) -> list[str]:
    """The words but for settings, which become variables, and options by the names that the command knows.

    Args:
        own: options that the command has itself: they stay.
        leading: whether only those are meant that stand before everything else, a data root among them.
    Raises:
        UsageError: a setting that is no number.
    """
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, separator, value = word.partition("=")
        if name not in own and _OTHER_NAMES.get(name) in own:
            name = _OTHER_NAMES[name]
            word = name + separator + value
        if word == "--" or (leading and rest):
            return [*rest, word, *waiting]
        if leading and name == "--data":
            os.environ["CORPUSMILL_DATA"] = value if separator else next(waiting, "")
        elif name in own or name not in _SETTINGS:
            rest.append(word)
        elif name == "--verbose":
            os.environ[_SETTINGS[name]] = "1"
        else:
            value = value if separator else next(waiting, "")
            if not value or value.startswith("--"):
                raise UsageError("it has no value", name, f"write {name} and what it is to be")
            if name not in _NO_NUMBERS and not value.isdecimal():
                raise UsageError(f"it is {value!r}", name, "give a whole number")
            os.environ[_SETTINGS[name]] = value
    return rest


def in_full(words: list[str], groups: Collection[str], commands: Collection[str]) -> list[str]:
    """The words with the group of a command whose own name was typed: `dedup --input` is `stage-a dedup --input`.

    Args:
        groups: one of which may be a command's name too.
        commands: in full, `stage-a dedup`.
    """
    name, after = "".join(words[:1]), words[1:2]
    is_group = name in groups and (not after or not after[0].startswith("-") or after[0] in ("-h", "--help"))
    found = [command for command in commands if command.partition(" ")[2] == name]
    if not name or is_group or name in commands or not found:
        return words
    meant = next((command for command in found if command.startswith("stage-a ")), found[0])
    return [*meant.split(), *words[1:]]  # of two `normalize` that of stage A


def each_with_its_option(words: list[str], repeatable: Collection[str]) -> list[str]:
    """The words with the option before each of its values: `--input a b` is `--input a --input b`, as a shell leaves a
    pattern that it has read.
    """
    told: list[str] = []
    option = None
    for place, word in enumerate(words):
        if word.startswith("-") and word != "-":
            option = word if word in repeatable else None
        elif option is not None and place and words[place - 1] != option:
            told.append(option)
        told.append(word)
    return told
