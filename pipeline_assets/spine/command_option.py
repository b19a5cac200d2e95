"""Command-line options that sections declare for their keys."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """Command-line option for a key of a section.

    Attributes:
        help: Text in `--help`.
        name: Name without `--`. Default (None): the key's name with hyphens instead of underscores.
        default: Default value. `...` means the default of the recipe key; None means that the command sets the default.
        other_names: Further names, with `--`.
    """

    help: str
    name: str | None = None
    default: object = ...
    other_names: tuple[str, ...] = ()
