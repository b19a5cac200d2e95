"""Start of the processes of typed commands: an import of pandas fails, and its stack is appended to a file.

Python imports this module first, in every process whose PYTHONPATH has its folder. The file is needed because some
libraries, such as pyarrow, ignore the ImportError.
"""

import os
import sys
import traceback
from importlib.machinery import ModuleSpec
from typing import Any

NOTES = os.environ.get("REFUSED_IMPORTS")
REFUSED = "pandas"


class Refusal:
    """Finder and loader of the refused module; finding it is no import, and polars does so."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        loader: Any = self
        return ModuleSpec(name, loader) if name == REFUSED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation to Python."""

    def exec_module(self, module: object) -> None:
        stack = "".join(line for line in traceback.format_stack()[:-1] if "importlib" not in line)
        with open(str(NOTES), "a") as notes:  # several processes may append
            notes.write(f"{REFUSED} was imported by {sys.argv}:\n{stack}\n")
        raise ImportError(f"{REFUSED} is refused in tests")


if NOTES is not None:
    sys.meta_path.insert(0, Refusal())
