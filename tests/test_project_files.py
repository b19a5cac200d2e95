"""Project files agree with the code and with the packages that they name."""

import hashlib
import re
from pathlib import Path

from pipeline_assets.systems.registry import KINDS

PROJECT = Path(__file__).parents[1]
# Published with the text at apache.org/licenses/LICENSE-2.0.txt.
APACHE_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_licence_is_the_standard_text() -> None:
    assert hashlib.sha256((PROJECT / "LICENSE").read_bytes()).hexdigest() == APACHE_SHA256


def test_the_changelog_names_every_change_of_a_stage_version() -> None:
    """Replay the changelog from its oldest version: the result is the version of every kind."""
    sections = (PROJECT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    versions: dict[str, int] = {}

    for section in reversed(sections):
        for kind, old, new in re.findall(r"^- `([\w/]+)` (?:(\d+) → )?(\d+)\b", section, re.MULTILINE):
            assert versions.get(kind) == (int(old) if old else None), f"{section.split()[0]}: {kind} {old} → {new}"
            versions[kind] = int(new)

    assert sections[0].startswith("Unreleased\n")
    assert versions == {name: kind.stage.version for name, kind in KINDS.items()}
