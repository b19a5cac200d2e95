"""The errors that a user's input, or the world, can cause, each one line: what, where, what to do next."""


class InputError(Exception):
    """Something the user gave, or the world around the build, is wrong. The command line prints it without a traceback.

    Args:
        what: what is wrong, with both values where two disagree.
        where: the file, row, recipe key or address.
        fix: the next step, as an instruction.
        key: the recipe key to change, dotted; `what` and `fix` have it in backticks. None where it is no key's fault.
    """

    def __init__(self, what: str, where: object, fix: str, key: str | None = None) -> None:
        super().__init__(what, where, fix)
        self.what = what
        self.where = str(where)
        self.fix = fix
        self.key = key

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str, str, str | None]]:
        return type(self), (self.what, self.where, self.fix, self.key)


class Obstacle(InputError):
    """Something in the way (network, disk, rights, another builder): once it is gone, the same command goes on."""


class UsageError(InputError):
    """The question itself is wrong (an option, a recipe key, a name): exit status 2 rather than 1."""


def install_hint(extra: str) -> str:
    """The command that installs an optional part of the program. No package index has it: its own folder does.

    Args:
        extra: as `pyproject.toml` names it.
    """
    return f"in the project's folder run .venv/bin/python -m pip install -c constraints.txt -e '.[{extra}]'"
