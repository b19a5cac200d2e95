"""What earlier builds below a data root showed: how fast this host worked, how much passed the rules, how many tokens
the text had. Read from their manifests; the latest measure is tried first, and what is too small to tell is left out.
"""

import json
import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from pipeline_assets.corpus.planning.estimate import Estimate, exactly
from pipeline_assets.corpus.planning.rates import ANOTHER_MACHINE, Rates, at_work
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import sealed_manifests
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.own_files import OwnFile

_CALIBRATION = "calibration.json"
_STAGES = ("snapshot", "text_selection", "megatron_split")  # a split is of a snapshot by its text manifest
_LARGE_ENOUGH = 32 << 20  # bytes of text; less is mostly the start of workers
_FETCHED_ENOUGH = 4 << 20
_SAME_TEXT = 0.01  # what the tokens of two parts of a corpus differ by
_SAME_DATASET = 0.03  # of two samples of a dataset
_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class _Calibration(msgspec.Struct):
    """`Rates`, and the host that has them."""

    host: str
    convert: _Positive
    encode: _Positive
    write: _Positive
    start_s: float
    off: tuple[_Positive, _Positive]


_CALIBRATION_FILE = OwnFile("calibration", 64 << 10, "remove it, and calibrate again", _Calibration)


@dataclass(frozen=True)
class TrackRecord:
    """Manifests of snapshots and of splits with the snapshot that they are made from, the latest first.

    Attributes:
        calibration: what was last measured on this host without a build; None where nothing was.
        stated_fetch_rate: bytes a second that the user knows of; None asks earlier fetches.
    """

    snapshots: Sequence[Manifest] = ()
    splits: Sequence[tuple[Manifest, Manifest]] = ()
    calibration: Rates | None = None
    stated_fetch_rate: float | None = None

    def rates(self) -> Rates:
        """As earlier builds showed, else as calibrated, else of another machine."""
        return self.built_rates() or self.calibration or ANOTHER_MACHINE

    def built_rates(self) -> Rates | None:
        """Of the latest builds on this host that were large enough and ran through; None unless both kinds did."""
        convert = next((rate for rate in map(_convert_rate, _of_this_host(self.snapshots)) if rate), None)
        splits = _of_this_host(split for split, _ in self.splits)
        encode = next((rate for rate in map(_encode_rate, splits) if rate), None)
        if convert is None or encode is None:
            return None
        write = next((rate for rate in map(_write_rate, splits) if rate), encode)
        return Rates(convert, encode, write, 0.0, "as in earlier builds here", (0.6, 1.8))

    def fetch_rate(self) -> Estimate | None:
        """Bytes a second, over all that was ever fetched here in one go; None where that was too little to tell."""
        if self.stated_fetch_rate is not None:
            return exactly(self.stated_fetch_rate, f"{self.stated_fetch_rate / 125_000:g} Mbit/s, as stated")
        laps = [
            (one.provenance.get("bytes_fetched", 0), lap)
            for one in _of_this_host(self.snapshots)
            if (lap := _lap(one, "fetch"))
        ]
        enough = [(count, lap) for count, lap in laps if count >= _FETCHED_ENOUGH]
        if not enough:
            return None
        rate = sum(count for count, _ in enough) / sum(lap for _, lap in enough)
        return exactly(rate, f"{rate / 1e6:.1f} MB/s, as in earlier fetches here")

    def kept_share(self, recipe: SnapshotRecipe) -> Estimate | None:
        """Documents to rows of snapshots of this dataset by these rules; None where there is none."""
        wanted = {key: recipe.content()[key] for key in ("dataset", "rules", "language")}
        alike = [one.identity for one in self.snapshots if wanted.items() <= one.identity.recipe.items()]
        rows = sum(identity.counts["ledger"]["in"] for identity in alike)
        if not rows:
            return None
        share = sum(identity.counts["documents"] for identity in alike) / rows
        off = _SAME_DATASET + 3 * (share * (1 - share) / rows) ** 0.5
        return Estimate(max(0.0, share - off), share, min(1.0, share + off), "as in earlier snapshots of the dataset")

    def bytes_per_token(
        self, dataset: str, tokenizer_sha256: str, snapshot_digest: str | None = None
    ) -> Estimate | None:
        """UTF-8 bytes to a token, the end of text counted, in splits of this dataset; None where there is none.

        Args:
            snapshot_digest: of the corpus itself; if a split was made from it, that one counts.
        """
        alike = [
            (split, snapshot)
            for split, snapshot in self.splits
            if snapshot.identity.recipe["dataset"] == dataset
            and (split.identity.tokenizer or {}).get("sha256") == tokenizer_sha256
            and split.provenance.get("tokens_encoded")
        ]
        same = [pair for pair in alike if pair[1].digest == snapshot_digest]
        tokens = sum(split.provenance["tokens_encoded"] for split, _ in same or alike)
        if not tokens:
            return None
        ratio = sum(split.provenance["text_bytes_encoded"] for split, _ in same or alike) / tokens
        off = _SAME_TEXT if same else _SAME_DATASET
        basis = f"{ratio:.2f} bytes a token, as in earlier splits of " + ("this snapshot" if same else "the dataset")
        return Estimate(ratio * (1 - off), ratio, ratio * (1 + off), basis)


def read_track_record(root: Path) -> TrackRecord:
    """The record below a data root; an empty one where nothing was built. What can't be read is passed over."""
    made = sealed_manifests(root, _STAGES)[0].values()
    manifests = sorted(made, key=lambda one: str(one.provenance.get("started_at_utc")), reverse=True)
    by_digest = {manifest.digest: manifest for manifest in manifests}

    def upstream(manifest: Manifest | None) -> Manifest | None:
        inputs = manifest.identity.inputs if manifest else []
        return by_digest.get(inputs[0]["digest"]) if inputs else None

    snapshots = tuple(one for one in manifests if one.identity.stage.name == "snapshot")
    splits = tuple(
        (one, snapshot)
        for one in manifests
        if one.identity.stage.name == "megatron_split" and (snapshot := upstream(upstream(one))) is not None
    )
    return TrackRecord(snapshots, splits, _read_calibration(root / _CALIBRATION))


def keep_calibration(root: Path, rates: Rates) -> None:
    """For the builds and plans to come on this host."""
    durable.write_durably(root / _CALIBRATION, json.dumps({"host": socket.gethostname(), **asdict(rates)}).encode())


def _read_calibration(path: Path) -> Rates | None:
    try:
        kept = _CALIBRATION_FILE.read(path)
    except (FileNotFoundError, NotADirectoryError, InputError):
        return None
    if kept.host != socket.gethostname():
        return None
    return Rates(kept.convert, kept.encode, kept.write, kept.start_s, "calibrated earlier", kept.off)


def _of_this_host(manifests: Iterable[Manifest]) -> list[Manifest]:
    return [one for one in manifests if one.provenance.get("host") == socket.gethostname()]


def _lap(manifest: Manifest, part: str) -> float:
    """Seconds that a part of the build took; 0 where it doesn't say."""
    return float(manifest.provenance.get("seconds_of", {}).get(part, 0))


def _rate(manifest: Manifest, part: str, work: float) -> float | None:
    """Bytes a second of one process; None where too little was done, or part of it before a crash."""
    lap, is_whole = _lap(manifest, part), not manifest.provenance.get("adopted_shards")
    if work < _LARGE_ENOUGH or not lap or not is_whole:
        return None
    return work / lap / at_work(int(manifest.provenance.get("run_settings", {}).get("workers", 0)))


def _convert_rate(snapshot: Manifest) -> float | None:
    return _rate(snapshot, "convert", snapshot.provenance.get("source_text_bytes", 0))


def _encode_rate(split: Manifest) -> float | None:
    return _rate(split, "encode", split.provenance.get("encode_work_bytes", 0))


def _write_rate(split: Manifest) -> float | None:
    lap, stored = _lap(split, "merge"), sum(file.bytes for file in split.storage)
    return stored / lap if lap and stored >= _LARGE_ENOUGH else None
