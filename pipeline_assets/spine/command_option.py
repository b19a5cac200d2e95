"""Command-line options that sections declare for their keys."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """Command-line option for a key of a section.

    Attributes:
        help: Text in `--help`.
        name: Name without `--`; if None, the key with hyphens for underscores.
        default: Default value. None leaves the default to the command. `...` stands for the key's own default, if it
            has one.
        other_names: Further names, with `--`.
    """

    help: str
    name: str | None = None
    default: object = ...
    other_names: tuple[str, ...] = ()
