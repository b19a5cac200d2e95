"""Start of processes that refuse pandas or pause at a rename.

Python imports this module first, in every process whose PYTHONPATH has its folder. The stack of the import is appended
to a file, because some libraries, such as pyarrow, ignore the ImportError. A process that loads a publication with
`datasets` may import pandas, because `datasets` does.
"""

import os
import sys
import traceback
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from paused_renames import Hold

NOTES = os.environ.get("REFUSED_IMPORTS")
REFUSED = "pandas"


class Refusal:
    """Finder and loader of the refused module, which polars may find but not load."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        loader: Any = self
        return ModuleSpec(name, loader) if name == REFUSED and "datasets" not in sys.modules else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation to Python."""

    def exec_module(self, module: object) -> None:
        stack = "".join(line for line in traceback.format_stack()[:-1] if "importlib" not in line)
        with open(str(NOTES), "a") as notes:  # several processes may append
            notes.write(f"{REFUSED} was imported by {sys.argv}:\n{stack}\n")
        raise ImportError(f"{REFUSED} is refused in tests")


if NOTES is not None:
    sys.meta_path.insert(0, Refusal())
if (part := os.environ.get("HELD_RENAMES")) is not None:
    files = (os.environ.get(name) for name in ("HELD_AFTER", "HELD_UNTIL"))
    sys.addaudithook(Hold(part, *(None if file is None else Path(file) for file in files)))
