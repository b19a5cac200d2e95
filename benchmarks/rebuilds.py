"""Matrix of rebuilds of every kind, with other run settings.

    python benchmarks/rebuilds.py                       # about five minutes

The artifacts are those of the crash cases, and each kind is among them. A rebuild has two workers, another compression
level and one download at a time. It is a failure if its digest, or the content of any file, differs.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from evidence import table, write_result
from measure import PROJECT, machine_line

sys.path.extend(str(PROJECT / "tests" / folder) for folder in ("builders", "harness"))

from crash_cases import open_sources, without_git

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.scoring.toy_model import write_toy_model
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import rebuild


def main() -> None:
    argparse.ArgumentParser(description="Build every kind of artifact again with other settings").parse_args()
    started = time.monotonic()
    logging.disable(logging.WARNING)
    print(f"{machine_line()}\n", flush=True)
    rows: list[dict[str, str | int]] = []
    with without_git(), open_sources() as sources, tempfile.TemporaryDirectory() as folder:
        write_toy_model(sources.model)
        run = Run(Path(folder), RunSettings(), sources.offline, publishes=False)
        other = replace(run, settings=RunSettings(2, "spawn", zstd_level=19, fetch_threads=1))
        for recipe in (sources.healing, sources.stage_a, sources.nemotron, sources.stage2, sources.parallel_text):
            targets = recipe.targets()
            for target in targets:
                target.kind.build(target, run)
            done = [rebuild(run.root / target.folder, other, SYSTEMS.kinds) for target in targets]
            identical = sum(result.is_identical for result in done)
            rows.append({"system": recipe.system, "artifacts": len(targets), "identical": identical})
            print(f"{recipe.system}: {identical} of {len(targets)}", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    artifacts, identical = (sum(int(row[key]) for row in rows) for key in ("artifacts", "identical"))
    write_result(
        "rebuilds", cases=artifacts, failures=artifacts - identical, rows=rows, seconds=time.monotonic() - started
    )
    print(json.dumps({"benchmark": "rebuilds", "artifacts": artifacts, "identical": identical}))
    sys.exit(1 if identical < artifacts else 0)


if __name__ == "__main__":
    main()
