"""Print the requirements of the project with the extras of the command line."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
if unknown := sorted(set(sys.argv[1:]) - set(extras)):
    sys.exit(f"EXTRAS must be of {', '.join(sorted(extras))}; got {', '.join(unknown)}")
print(*project["dependencies"], *(requirement for extra in sys.argv[1:] for requirement in extras[extra]), sep="\n")
