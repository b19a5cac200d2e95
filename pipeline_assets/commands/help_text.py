"""Format of help texts.

An example is one line, which can be pasted. An option is shown with the type of one value.
"""

import inspect
from typing import Any, get_args

from typer.core import TyperGroup, TyperOption

_EXAMPLE = "Example: "


class CommandGroup(TyperGroup):
    """Group of commands whose help ends with an example in one line."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_epilog(formatter, self.epilog)


def write_epilog(formatter: Any, epilog: str | None) -> None:
    """Write the end of a help text, with its example in one line of any length.

    A wrapped command cannot be pasted, in particular not if it is broken at the hyphen of an option.
    """
    text, _, example = inspect.cleandoc(epilog or "").partition(_EXAMPLE)
    if text.strip():
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text.strip())
    if example:
        formatter.write(f"\n  {_EXAMPLE}{' '.join(example.split())}\n")


def name_value_type(option: TyperOption) -> None:
    """Show a list option by the type of its values, and a number without `range`.

    Its help states that it is repeatable, and its bounds follow the help.
    """
    described = option.type_descriptor
    if option.metavar is None and described.is_list and not described.is_choice:
        [value_type] = get_args(described.annotation)
        option.metavar = f"<{value_type.__name__.lower()}>"
    elif option.metavar is None and described.is_ranged:
        option.metavar = f"<{described.ranged_type_name}>"
