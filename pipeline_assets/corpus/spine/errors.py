"""The errors that a user's input, or the world, can cause, each one line: what, where, what to do next."""


class InputError(Exception):
    """Something the user gave, or the world around the build, is wrong. The command line prints it without a traceback.

    Args:
        what: what is wrong, with both values where two disagree.
        where: the file, row, recipe key or address.
        fix: the next step, as an instruction.
    """

    def __init__(self, what: str, where: object, fix: str) -> None:
        super().__init__(what, where, fix)
        self.what = what
        self.where = str(where)
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str, str]]:
        return type(self), (self.what, self.where, self.fix)


class Obstacle(InputError):
    """Something in the way (network, disk, rights, another builder): once it is gone, the same command goes on."""


class UsageError(InputError):
    """The question itself is wrong (an option, a recipe key, a name): exit status 2 rather than 1."""
