"""Write the files that are generated from constraints.txt, for uv.

`[tool.uv] constraint-dependencies` of pyproject.toml contains the same versions. requirements.lock contains those of
the demo's installation with the hashes of their files, and no address of an index, as uv.lock would.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
EXPORT = (
    "export -q --extra languages --extra tokenizers --no-emit-project --no-header --no-annotate -o requirements.lock"
)


def constraint_table(constraints: str) -> str:
    """Return the TOML array of all versions in the text of constraints.txt."""
    versions = [line for line in constraints.splitlines() if line and not line.startswith("#")]
    return "constraint-dependencies = [\n" + "".join(f"    {json.dumps(version)},\n" for version in versions) + "]"


if __name__ == "__main__":
    table = constraint_table((PROJECT / "constraints.txt").read_text())
    settings = PROJECT / "pyproject.toml"
    settings.write_text(re.sub(r"constraint-dependencies = \[.*?\]", table, settings.read_text(), flags=re.DOTALL))
    subprocess.run([Path(sys.executable).parent / "uv", *EXPORT.split()], cwd=PROJECT, check=True)
