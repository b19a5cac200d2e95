"""Benchmark of showing a build in the Dagster UI: CPU seconds per artifact.

    python benchmarks/shown.py --sources 18

The recipe has small folders, with all stages of each. `run` builds and writes nothing to Dagster; the sensor reports
sealed artifacts; the job builds and reports in one Dagster run; a scan without news is the daemon's usual work.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import PROJECT, machine_line
from roots import run_command

sys.path.insert(0, str(PROJECT))


def write_recipe(root: Path, sources: int) -> None:
    """Write folders of two notes each, and a recipe that filters and reports them."""
    sections = []
    for number in range(sources):
        folder = root / "notes" / f"{number:04d}"
        folder.mkdir(parents=True)
        for note in range(2):
            (folder / f"{note}.txt").write_text(f"Note {note} of folder {number}, which is about nothing much.\n")
        sections.append({"kind": "local", "source": f"n{number:04d}", "path": str(folder), "files": ["*.txt"]})
    (root / "recipes").mkdir()
    recipe = {"name": "many", "system": "stage_a", "sources": sections}
    (root / "recipes" / "many.yaml").write_text(json.dumps(recipe))


def cpu_s(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=18)
    options = parser.parse_args()
    import dagster as dg

    from pipeline_assets.code_location import build_definitions
    from pipeline_assets.instance import open_instance
    from pipeline_assets.sealed_sensor import report_sealed_artifacts, sealed_artifacts_sensor
    from pipeline_assets.systems.registry import SYSTEMS
    from resources.store import Hub, Store, Tokenizer

    print(machine_line())
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        for root in (Path(first), Path(second)):
            write_recipe(root, options.sources)
        root = Path(first)
        artifacts = len(SYSTEMS.read_recipe(root / "recipes" / "many.yaml").targets())
        figures["run"] = run_command("run", "many", "--data", root, "--workers", 0)[0]
        figures["run, all up to date"] = run_command("run", "many", "--data", root)[0]
        report = root / "stage_a" / "many" / "report" / "many"
        figures["rebuild"] = run_command("rebuild", report, "--upstream", "--workers", 0)[0]
        build_definitions(root).resolve_asset_graph()  # warm-up: excludes one-time loading
        figures["definitions"] = cpu_s(lambda: build_definitions(root).resolve_asset_graph())
        recipes, _ = SYSTEMS.load_recipes(root)
        with open_instance(root) as instance:
            cursors: list[str | None] = [None]

            def tick(sensor: dg.SensorDefinition) -> None:
                with dg.build_sensor_context(instance=instance, cursor=cursors[-1]) as context:
                    cursors.append(sensor.evaluate_tick(context).cursor)

            report_sealed_artifacts(recipes[:0], root, instance)  # warm-up: excludes one-time loading
            figures["first report"] = cpu_s(lambda: report_sealed_artifacts(recipes, root, instance))
            tick(sealed_artifacts_sensor(recipes, root))
            sensor = sealed_artifacts_sensor(recipes, root)
            figures["scan without news"] = cpu_s(lambda: tick(sensor))
            observer = next(
                sensor for sensor in build_definitions(root).sensors or [] if sensor.name == "external_sources"
            )

            def scan_sources() -> None:
                with dg.build_sensor_context(instance=instance, resources={"hub": Hub()}) as context:
                    observer.evaluate_tick(context)

            figures["scan of sources"] = cpu_s(scan_sources)
        with open_instance(Path(second)) as instance:
            job = build_definitions(Path(second)).resolve_job_def("many")
            resources = {"store": Store(workers=0), "hub": Hub(), "tokenizer": Tokenizer()}
            quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
            figures["job"] = cpu_s(
                lambda: job.execute_in_process(instance=instance, resources=resources, run_config=quiet)
            )
    print(f"{options.sources:,} sources, {artifacts:,} artifacts\n\n| | CPU s | CPU s per artifact |\n|---|---|---|")
    for name, seconds in figures.items():
        print(f"| {name} | {seconds:.2f} | {seconds / artifacts:.3f} |")
    print(json.dumps({"benchmark": "shown", "artifacts": artifacts, "cpu_s": figures}))


if __name__ == "__main__":
    main()
