"""What earlier builds showed: read from their manifests, used where it fits, left out where it tells too little."""

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_assets.corpus.planning.rates import ANOTHER_MACHINE, Rates, at_work
from pipeline_assets.corpus.planning.track_record import TrackRecord, keep_calibration, read_track_record
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import Manifest

CALIBRATED = Rates(50e6, 40e6, 300e6, 1.5, "calibrated now")
MB = 1_000_000


@pytest.fixture
def split(split_of: Callable[..., Artifact]) -> Manifest:
    return split_of({f"page-{number}": f"some text of page {number}" for number in range(40)}, "data").manifest


@pytest.fixture
def snapshot(split: Manifest, tmp_path: Path) -> Manifest:
    [manifest] = read_track_record(tmp_path / "data").snapshots
    return manifest


def told(manifest: Manifest, **provenance: object) -> Manifest:
    """The manifest of a build of 100 MB by four workers, here, unless told otherwise."""
    settings = {"run_settings": {"workers": 4}, "source_text_bytes": 100 * MB, "encode_work_bytes": 100 * MB}
    return replace(manifest, provenance={**manifest.provenance, **settings, **provenance})


def record_of(snapshot: Manifest, split: Manifest, **provenance: object) -> TrackRecord:
    laps = {"seconds_of": {"convert": 2.0, "fetch": 4.0, "encode": 4.0, "merge": 0.0}}
    one, other = told(snapshot, **laps | provenance), told(split, **laps | provenance)
    return TrackRecord([one], [(other, one)], CALIBRATED)


class TestRates:
    """By builds where both kinds ran here, large and through, else as calibrated, else another machine's."""

    def test_work_by_seconds_and_workers_that_get_on_at_one_time(self, snapshot: Manifest, split: Manifest) -> None:
        rates = record_of(snapshot, split).rates()

        assert rates.convert == 100 * MB / 2.0 / at_work(4)
        assert rates.encode == 100 * MB / 4.0 / at_work(4)
        assert rates.basis == "as in earlier builds here"

    @pytest.mark.parametrize(
        "provenance",
        [
            {"host": "elsewhere"},
            {"adopted_shards": 3},
            {"source_text_bytes": MB},
            {"encode_work_bytes": MB},
            {"seconds_of": {}},
        ],
        ids=str,
    )
    def test_a_build_that_tells_too_little_is_left_out(
        self, snapshot: Manifest, split: Manifest, provenance: dict[str, object]
    ) -> None:
        assert record_of(snapshot, split, **provenance).rates() == CALIBRATED

    def test_the_latest_that_tells_enough_counts(self, snapshot: Manifest, split: Manifest) -> None:
        record = record_of(snapshot, split)
        small = told(snapshot, source_text_bytes=MB, seconds_of={"convert": 1.0})
        slow = told(snapshot, seconds_of={"convert": 200.0})

        rates = replace(record, snapshots=[small, *record.snapshots, slow]).rates()

        assert rates == record.rates()

    def test_without_anything_they_are_another_machines(self) -> None:
        assert TrackRecord().rates() == ANOTHER_MACHINE
        assert TrackRecord().built_rates() is None


class TestFetchRate:
    """Over all fetches that were large enough, unless the user knows better."""

    def test_bytes_by_seconds(self, snapshot: Manifest, split: Manifest) -> None:
        rate = record_of(snapshot, split, bytes_fetched=20 * MB).fetch_rate()

        assert rate is not None
        assert (rate.likely, rate.basis) == (5 * MB, "5.0 MB/s, as in earlier fetches here")

    @pytest.mark.parametrize("provenance", [{"bytes_fetched": MB}, {"bytes_fetched": 20 * MB, "host": "elsewhere"}])
    def test_it_is_unknown_where_too_little_was_fetched_here(
        self, snapshot: Manifest, split: Manifest, provenance: dict[str, object]
    ) -> None:
        assert record_of(snapshot, split, **provenance).fetch_rate() is None

    def test_the_stated_one_goes_before(self, snapshot: Manifest, split: Manifest) -> None:
        record = replace(record_of(snapshot, split, bytes_fetched=20 * MB), stated_fetch_rate=12.5 * MB)

        rate = record.fetch_rate()

        assert rate is not None
        assert (rate.likely, rate.basis) == (12.5 * MB, "100 Mbit/s, as stated")


class TestBytesPerToken:
    """Of the corpus itself where a split was made of it, else of its dataset, by the same tokenizer."""

    def test_it_is_that_of_earlier_splits(self, split: Manifest, snapshot: Manifest, tmp_path: Path) -> None:
        record = read_track_record(tmp_path / "data")
        tokenizer = str((split.identity.tokenizer or {})["sha256"])

        same = record.bytes_per_token("maker/pages", tokenizer, snapshot.digest)
        alike = record.bytes_per_token("maker/pages", tokenizer, None)

        ratio = split.provenance["text_bytes_encoded"] / split.provenance["tokens_encoded"]
        assert same is not None
        assert alike is not None
        assert same.likely == alike.likely == ratio
        assert alike.low < same.low < ratio < same.high < alike.high
        assert same.basis == f"{ratio:.2f} bytes a token, as in earlier splits of this snapshot"

    def test_another_dataset_or_tokenizer_tells_nothing(self, split: Manifest, tmp_path: Path) -> None:
        record = read_track_record(tmp_path / "data")
        tokenizer = str((split.identity.tokenizer or {})["sha256"])

        assert record.bytes_per_token("other/pages", tokenizer, None) is None
        assert record.bytes_per_token("maker/pages", "0" * 64, None) is None


class TestReading:
    """A folder of artifacts, whatever lies there."""

    def test_a_root_without_anything_is_an_empty_record(self, tmp_path: Path) -> None:
        assert read_track_record(tmp_path / "nowhere") == TrackRecord()

    def test_a_manifest_that_cannot_be_read_is_passed_over(self, split: Manifest, tmp_path: Path) -> None:
        damaged = tmp_path / "data" / "megatron" / "damaged"
        damaged.mkdir(parents=True)
        (damaged / "manifest.json").write_text("{}")

        assert [pair[0].digest for pair in read_track_record(tmp_path / "data").splits] == [split.digest]

    def test_a_calibration_is_kept_for_this_host(self, tmp_path: Path) -> None:
        keep_calibration(tmp_path, CALIBRATED)

        kept = read_track_record(tmp_path).calibration
        assert kept == replace(CALIBRATED, basis="calibrated earlier")

        path = tmp_path / "calibration.json"
        path.write_text(path.read_text().replace(json.dumps(socket.gethostname()), '"elsewhere"'))
        assert read_track_record(tmp_path).calibration is None

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"host": 1, "convert": 2}'])
    def test_a_calibration_that_is_none_is_passed_over(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "calibration.json").write_text(content)

        assert read_track_record(tmp_path).calibration is None
