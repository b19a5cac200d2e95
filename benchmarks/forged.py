"""Matrix of forged manifests, whose digests and seals fit again.

    python benchmarks/forged.py --changes 5             # of each manifest in the golden data roots

A manifest whose files are unchanged but whose recipe differs is the manifest of another artifact, and intact as such.
The artifacts that were built from it have its digest, so `verify --upstream` of these must notice the change. The last
artifacts of a chain are left out, as are provenance and the paths and sizes of files, which another test forges.
"""

import argparse
import copy
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence import table, write_result
from measure import PROJECT, machine_line

sys.path.extend(str(PROJECT / "tests" / folder) for folder in ("builders", "harness"))

from fuzz_edits import ODD_VALUES
from healing_set import verify
from root_changes import refit_manifest
from sealed_roots import unpack_latest

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import MANIFEST_FILE

IDENTITY = ("stage", "recipe", "inputs", "tokenizer", "decisions", "counts", "files")


def upstream_digests(manifest: dict[str, Any]) -> set[str]:
    return {entry["digest"] for entry in manifest["identity"]["inputs"]}


def forge(manifest: dict[str, Any], dice: random.Random) -> tuple[str, bytes]:
    """Change one value of the identity; return the changed part's name, and the file."""
    changed = copy.deepcopy(manifest)
    part = dice.choice([name for name in IDENTITY if changed["identity"][name]])
    parent, key = dice.choice([*_values(changed["identity"], part)])
    old = parent[key]
    parent[key] = (
        old[:-1] + ("0" if old[-1] != "0" else "1") if isinstance(old, str) and old else dice.choice(ODD_VALUES)
    )
    if parent[key] == old:
        parent[key] = "x"
    return part, refit_manifest(json.dumps(changed).encode("utf-8", "surrogatepass"))


def _values(parent: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    value = parent[key]
    if isinstance(value, dict | list) and value:
        for inner in value if isinstance(value, dict) else range(len(value)):
            yield from _values(value, inner)
    else:
        yield parent, key


def is_noticed(folder: Path, root: Path) -> bool:
    """Check whether `verify --upstream` refuses an artifact or finds a fault."""
    try:
        return not verify(folder, root).verdict.startswith("intact")
    except InputError:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Forge manifests, and verify what was built from them")
    parser.add_argument("--changes", type=int, default=5, help="of each manifest")
    parser.add_argument("--seed", default="0")
    options = parser.parse_args()
    started = time.monotonic()
    logging.disable(logging.WARNING)
    print(f"{machine_line()}\n", flush=True)
    counts: dict[str, Counter[str]] = {part: Counter() for part in IDENTITY}
    with tempfile.TemporaryDirectory() as scratch:
        for root in sorted(unpack_latest(Path(scratch)).iterdir()):
            manifests = {path: json.loads(path.read_bytes()) for path in sorted(root.rglob(MANIFEST_FILE))}
            for path, manifest in manifests.items():
                downstream = [
                    other for other, found in manifests.items() if manifest["digest"] in upstream_digests(found)
                ]
                if not downstream:
                    continue
                if is_noticed(downstream[0].parent, root):
                    sys.exit(f"{downstream[0]}: not intact before its upstream is forged")
                dice, data = random.Random(f"{options.seed} {path.relative_to(scratch)}"), path.read_bytes()
                path.chmod(0o644)
                for _ in range(options.changes):
                    part, content = forge(manifest, dice)
                    path.write_bytes(content)
                    by_itself = is_noticed(path.parent, root)
                    noticed = by_itself or is_noticed(downstream[0].parent, root)
                    counts[part].update({"changes": 1, "by itself": by_itself, "noticed": noticed})
                    if not noticed:
                        print(f"unnoticed: {path.relative_to(scratch)}, {part}", file=sys.stderr, flush=True)
                path.write_bytes(data)
    rows: list[dict[str, str | int]] = [
        {
            "changed part": part,
            "changes": found["changes"],
            "noticed by `verify`": found["by itself"],
            "noticed by `verify --upstream` of a user": found["noticed"] - found["by itself"],
            "unnoticed": found["changes"] - found["noticed"],
        }
        for part, found in counts.items()
        if found
    ]
    print("\n".join(table(rows)))
    changes, unnoticed = (sum(int(row[key]) for row in rows) for key in ("changes", "unnoticed"))
    write_result("forged", cases=changes, failures=unnoticed, rows=rows, seconds=time.monotonic() - started)
    print(json.dumps({"benchmark": "forged", "changes": changes, "unnoticed": unnoticed}))
    sys.exit(1 if unnoticed else 0)


if __name__ == "__main__":
    main()
