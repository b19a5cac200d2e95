"""Benchmark of the UI's queries and the services' memory, with 100,000 events.

    python benchmarks/server.py --minutes 60

Starts the services of docker/run_local.sh on a made data root of four recipes with 200 sources each, reports an event
of eleven assets, and copies the events in PostgreSQL for all 200 partitions. Then four clients send the queries of the
UI's pages without a pause, while sensors and daemons run. Prints the median and the 95th percentile of each query, and
the memory of each service. The exit status is 1 if a service grows by more than `--growth-mib` after the first third
of the time, when caches are filled.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy
import yaml
from measure import machine_line

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "harness"))

from services import Services

RECIPES, SOURCES, ASSETS, EVENTS, CLIENTS = 4, 200, 11, 100_000, 4
FIRST = "s000"  # the first source
SERVICES = ("webserver", "daemon", "code")
_SAMPLE_EVERY_S = 5.0
_QUERIES = Path(__file__).with_name("server_queries.graphql").read_text()
QUERIES = dict(re.findall(r"^(?=query (\w+))(query .*?^\})$", _QUERIES, re.MULTILINE | re.DOTALL))


def write_root(root: Path) -> list[list[str]]:
    """Write the sources and recipes; return the keys of partitioned assets."""
    sources = []
    for number in range(SOURCES):
        name = f"s{number:03}"
        (root / "sources" / name).mkdir(parents=True)
        (root / "sources" / name / "rows.jsonl").write_text(json.dumps({"text": f"Text {number} of a source."}))
        section = {"kind": "local", "source": name, "path": f"sources/{name}", "files": ["*.jsonl"], "domain": "text"}
        sources.append(
            section | {"columns": {"text": "text"}, "license_tag": "cc0-1.0", "filters": {"length": {"min_words": 2}}}
        )
    (root / "recipes").mkdir()
    for number in range(RECIPES):
        recipe = {"system": "stage_a", "name": f"corpus_{number}", "sources": sources, "dedup": {}}
        (root / "recipes" / f"corpus_{number}.yaml").write_text(yaml.safe_dump(recipe))
    artifacts = ("raw", "normalized", "filtered")
    return [["stage_a", f"corpus_{number}", name] for number in range(RECIPES) for name in artifacts][:ASSETS]


def fill(services: Services, keys: Sequence[Sequence[str]]) -> int:
    """Report and copy a materialization of each asset; return the number of events."""
    environment = services.environment()
    os.environ.update(
        {name: value for name, value in environment.items() if name.startswith(("DAGSTER_", "CORPUSMILL_"))}
    )
    metadata = {
        "documents": 40,
        "seconds": 1.5,
        "digest": "sha256:" + 64 * "0",
        "preview": dg.MetadataValue.md("| a |\n|---|"),
    }
    with dg.DagsterInstance.get() as instance:
        for key in keys:
            instance.report_runless_asset_event(
                dg.AssetMaterialization(dg.AssetKey(list(key)), partition=FIRST, metadata=metadata)
            )
    login = {name: environment[f"DAGSTER_PG_{name}"] for name in ("USER", "PASSWORD", "HOST", "PORT", "DB")}
    address = "postgresql+psycopg2://{USER}:{PASSWORD}@{HOST}:{PORT}/{DB}".format(**login)
    event, partition = (
        f"replace({name}, '{FIRST}', 's' || lpad(source::text, 3, '0'))" for name in ("event", "partition")
    )
    selected = f"run_id, {event}, dagster_event_type, timestamp, asset_key, {partition}"
    copies = EVENTS // (len(keys) * SOURCES)
    chosen = "dagster_event_type = 'ASSET_MATERIALIZATION'"
    with sqlalchemy.create_engine(address).begin() as database:
        command = f"""INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, asset_key, partition)
            SELECT {selected} FROM event_logs, generate_series(0, {SOURCES - 1}) source, generate_series(0, {copies})
            WHERE {chosen} ORDER BY timestamp"""
        database.execute(sqlalchemy.text(command))
        return int(database.execute(sqlalchemy.text(f"SELECT count(*) FROM event_logs WHERE {chosen}")).scalar_one())


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process and its children, in MiB."""
    total, children = 0.0, [pid]
    with contextlib.suppress(OSError):
        children += [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    for process in children:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return total


def growth_mib(samples: Sequence[float]) -> float:
    """Return the growth from the second third of the samples to the last, by medians."""
    third = len(samples) // 3
    return statistics.median(samples[-third:]) - statistics.median(samples[third : 2 * third])


def load(
    services: Services, keys: Sequence[Sequence[str]], seconds: float
) -> tuple[Mapping[str, list[float]], Mapping[str, list[float]]]:
    """Send queries for a time; return their seconds and the services' memory in MiB."""
    times: dict[str, list[float]] = defaultdict(list)
    deadline, failures = time.monotonic() + seconds, list[BaseException]()

    def send(client: int) -> None:
        turn = client
        while time.monotonic() < deadline and not failures:
            for name, query in QUERIES.items():
                variables: dict[str, Any] = {}
                if "$path" in query:
                    variables["path"] = keys[turn % len(keys)]
                if "$keys" in query:
                    variables["keys"] = [{"path": key} for key in keys]
                began = time.perf_counter()
                try:
                    services.query(query, **variables)
                except BaseException as error:
                    failures.append(error)
                    return
                times[name].append(time.perf_counter() - began)
            turn += 1

    clients = [threading.Thread(target=send, args=(client,)) for client in range(CLIENTS)]
    for client in clients:
        client.start()
    memory: dict[str, list[float]] = defaultdict(list)
    while any(client.is_alive() for client in clients):
        for name in SERVICES:
            memory[name].append(memory_mib(services.pid(name)))
        time.sleep(_SAMPLE_EVERY_S)
    if failures:
        raise failures[0]
    return times, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="duration of the load")
    parser.add_argument("--growth-mib", type=float, default=48, help="growth of a service that is too much")
    arguments = parser.parse_args()
    print(machine_line())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        keys = write_root(root)
        with Services(root, {}) as services:
            print(f"{len(keys)} assets × {SOURCES} partitions, {fill(services, keys):,} events")
            times, memory = load(services, keys, arguments.minutes * 60)
    for name, seconds in times.items():
        p95 = sorted(seconds)[int(len(seconds) * 0.95)]
        print(f"{name:24} {len(seconds):6,} queries, median {statistics.median(seconds):.3f} s, p95 {p95:.3f} s")
    growths = {name: growth_mib(samples) for name, samples in memory.items()}
    for name, samples in memory.items():
        print(f"{name:24} {samples[0]:.0f} MiB at first, {max(samples):.0f} at most, growth {growths[name]:+.1f}")
    print(json.dumps({"minutes": arguments.minutes, "growth_mib": growths}))
    sys.exit(any(growth > arguments.growth_mib for growth in growths.values()))


if __name__ == "__main__":
    main()
