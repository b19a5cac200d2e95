"""A snapshot before it is taken: exact where the footers are, within bounds where they aren't."""

import random
from collections.abc import Callable, Mapping
from pydoc_data.topics import topics

import pyarrow as pa
import pytest

from pipeline_assets.corpus.planning.outcome import outcomes
from pipeline_assets.corpus.planning.snapshot_forecast import SnapshotForecast, forecast_snapshot
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.plan import bytes_to_fetch, plan_snapshot
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.systems.healing import HealingRecipe
from resources.loopback_hub import LoopbackHub

RULES = {"rules": ["int_score >= 3"], "language": "en"}
WORDS = " ".join(topics.values()).split()


def pages(first: int, rows: int, least_score: int = 3) -> pa.Table:
    """Texts of 200 words out of Python's help; every fifth page has the least score, the others 4."""
    numbers = range(first, first + rows)
    texts = [" ".join(random.Random(number).choices(WORDS, k=200)) for number in numbers]
    scores = [least_score if number % 5 == 0 else 4 for number in numbers]
    columns = {"text": texts, "id": [f"page-{number}" for number in numbers], "int_score": scores}
    return pa.table(columns | {"language": ["en"] * rows})


@pytest.fixture
def forecast(
    publish: Callable[..., str], healing_recipe: Callable[..., HealingRecipe], hub_files: HubFiles
) -> Callable[..., SnapshotForecast]:
    def made(tables: Mapping[str, pa.Table], record: TrackRecord | None = None, **changes: object) -> SnapshotForecast:
        recipe = healing_recipe(
            publish(tables, 100), {"rules": ["int_score >= 3"], "language": "en", **changes}
        ).snapshot
        plan = plan_snapshot(hub_files, recipe, threads=2, log_every_s=60)
        return forecast_snapshot(plan, recipe, bytes_to_fetch(hub_files, recipe, plan), record or TrackRecord())

    return made


def test_rows_that_surely_pass_are_documents_but_for_a_few_bad_ones(forecast: Callable[..., SnapshotForecast]) -> None:
    planned = forecast({"a.parquet": pages(0, 400), "b.parquet": pages(400, 400)}, amount={"documents": 450})

    assert planned.rows == 450
    assert planned.documents.bounds == (446, 450, 450)  # 1 % may be bad or repeated


def test_rows_that_surely_fail_are_none(forecast: Callable[..., SnapshotForecast]) -> None:
    planned = forecast({"a.parquet": pages(0, 200)}, rules=["int_score >= 9"])

    assert planned.documents.bounds == (0, 0, 0)
    assert planned.text_bytes.bounds == planned.stored_bytes.bounds == (0, 0, 0)


def test_the_text_is_what_the_column_holds(forecast: Callable[..., SnapshotForecast]) -> None:
    table = pages(0, 400)
    text_bytes = sum(len(text.encode()) for text in table.column("text").to_pylist())

    planned = forecast({"a.parquet": table})

    assert planned.source_text_bytes == pytest.approx(text_bytes, rel=0.03)  # page headers are counted too
    assert planned.text_bytes.low <= text_bytes <= planned.text_bytes.high


def test_an_earlier_snapshot_by_the_same_rules_narrows_what_the_footers_leave_open(
    forecast: Callable[..., SnapshotForecast], take: Callable[..., Artifact]
) -> None:
    tables = {f"{number}.parquet": pages(1000 * number, 300, least_score=1) for number in range(3)}
    earlier = take(tables, 100, amount={"documents": 300}, **RULES).manifest

    alone = forecast(tables, amount={"documents": 600})
    taught = forecast(tables, TrackRecord(snapshots=[earlier]), amount={"documents": 600})
    elsewhere = forecast(tables, TrackRecord(snapshots=[earlier]), amount={"documents": 600}, language=None)

    assert alone.documents.bounds == elsewhere.documents.bounds == (0, 300, 600)  # of 1, 2, 3 and 4 two pass
    assert taught.documents.low < 480 < taught.documents.high
    assert taught.documents.likely == 480
    assert taught.documents.high - taught.documents.low < 140
    assert taught.documents.basis == "as in earlier snapshots of the dataset"


def test_what_bounds_settle_no_earlier_snapshot_changes(
    forecast: Callable[..., SnapshotForecast], take: Callable[..., Artifact]
) -> None:
    worse = take({"a.parquet": pages(0, 300, least_score=1)}, 100, **RULES).manifest

    planned = forecast({"b.parquet": pages(1000, 300)}, TrackRecord(snapshots=[worse]), files=["b.parquet"])

    assert planned.documents.likely == 300


def test_the_manifest_holds_the_plan_beside_what_it_came_to(take: Callable[..., Artifact], hub: LoopbackHub) -> None:
    tables = {f"{number}.parquet": pages(1000 * number, 500) for number in range(4)}

    snapshot = take(tables, 100, amount={"documents": 1234}, **RULES)

    found = {outcome.figure: outcome for outcome in outcomes(snapshot.manifest)}
    planned = {name: outcome.planned for name, outcome in found.items() if outcome.planned is not None}
    assert planned.keys() >= {"bytes_fetched", "rows", "documents", "text_bytes", "bytes", "build_seconds"}
    assert found["bytes_fetched"].real == planned["bytes_fetched"].likely
    assert found["rows"].real == planned["rows"].likely == 1234
    for name in ("documents", "text_bytes", "bytes", "peak_disk_bytes"):
        assert planned[name].low <= (found[name].real or -1) <= planned[name].high, name
    provenance = snapshot.manifest.provenance
    fetched = provenance["bytes_fetched_to_plan"] + provenance["bytes_fetched"]
    assert fetched == sum(request.bytes_sent for request in hub.requests)


def test_the_plan_has_no_part_in_the_digest(take: Callable[..., Artifact]) -> None:
    tables = {f"{number}.parquet": pages(1000 * number, 900) for number in range(2)}

    first, cached = take(tables, 100), take(tables, 100, root="again")

    assert first.manifest.digest == cached.manifest.digest
    assert first.manifest.provenance["planned"]["bytes_fetched"]["likely"] > 0
    assert cached.manifest.provenance["planned"]["bytes_fetched"]["likely"] == 0
