"""What a packed set holds: its mixture beside the one that was asked for, and its documents."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.formats.memmap import DOCUMENTS
from pipeline_assets.corpus.formats.parquet import open_parquet, strings
from pipeline_assets.corpus.spine.artifact import Artifact, Verdict, sealed_manifest
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.target import Target


@dataclass(frozen=True)
class PackedSummary:
    """A packed set in numbers.

    Attributes:
        tokens, padding_tokens: together `rows` × `seq_len`.
        packing_efficiency: the share of tokens that are no padding, as a decimal.
        cut_documents: drawn documents of which no row holds all, as `cut_share` of those drawn, a decimal: they fit in
            a row and were cut, or they are longer than one.
        by_source: of each source what its manifest counts: `asked_share`, `share`, `epochs`, `drawn`, `cut`, …, and its
            own `cut_documents` and `cut_share`.
        license_tokens: tokens of the set by licence, the most first.
        rejected: texts that can't be encoded, by reason.
    """

    strategy: str
    rows: int
    seq_len: int
    documents: int
    tokens: int
    padding_tokens: int
    packing_efficiency: str
    cut_documents: int
    cut_share: str
    by_source: Mapping[str, Mapping[str, Any]]
    license_tokens: Mapping[str, int]
    rejected: Mapping[str, int]


def summary_of(packed: Artifact) -> PackedSummary:
    """Of a sealed set."""
    identity = packed.manifest.identity
    counts, rules = identity.counts, identity.recipe["pack"]
    by_source = {}
    license_tokens = Counter[str]()
    for source, one in counts["by_source"].items():
        cut = one["cut"] + one["longer_than_a_row"]
        by_source[source] = {**one, "cut_documents": cut, "cut_share": _share(cut, one["drawn"])}
        license_tokens.update(one["license_tokens"])
    cut_documents = sum(one["cut_documents"] for one in by_source.values())
    return PackedSummary(
        strategy=rules["strategy"],
        rows=counts["rows"],
        seq_len=rules["seq_len"],
        documents=counts["documents"],
        tokens=counts["tokens"],
        padding_tokens=counts["padding_tokens"],
        packing_efficiency=counts["packing_efficiency"],
        cut_documents=cut_documents,
        cut_share=_share(cut_documents, counts["documents"]),
        by_source=by_source,
        license_tokens=dict(sorted(license_tokens.items(), key=lambda item: (-item[1], item[0]))),
        rejected=identity.ledger.rejected,
    )


def _share(part: int, of: int) -> str:
    return f"{part / max(of, 1):.6f}"


_DEDUPLICATED = "stage_a/deduplicated"
_TOLERANCE = Fraction(1, 10)  # of a weight


def shares_reached(packed: Artifact) -> Verdict:
    """The share of each source is within a tenth of its weight."""
    counts = packed.manifest.identity.counts
    off = []
    for source, one in counts["by_source"].items():
        asked, reached = Fraction(one["asked_share"]), Fraction(one["packed_tokens"], counts["tokens"])
        if abs(reached - asked) > _TOLERANCE * asked:
            why = _why(one, is_short=reached < asked)
            off.append(f"{source}: asked {float(asked):.2%}, reached {float(reached):.2%} ({why})")
    numbers = {source: one["share"] for source, one in counts["by_source"].items()}
    return Verdict(not off, "; ".join(off) or "each source is within a tenth of its weight", numbers)


def _why(counts: Mapping[str, Any], is_short: bool) -> str:
    """It is never the supply, nor a cap: where these don't give what is asked, nothing is packed. But documents are
    drawn whole, and one may be more than a source's share.
    """
    asked, mean = counts["asked_tokens"], counts["text_tokens"] // max(counts["documents"], 1)
    place = "its next document is longer than what is left" if is_short else "its last document goes beyond that"
    return f"its share is {asked:,} tokens, and {place}; they have {mean:,} on average"


@dataclass(frozen=True)
class DrawnLine:
    """A line: see `packing.rows`."""

    doc_id: str
    source: str
    shard: str
    row: int
    license_tag: str
    epoch: int
    tokens: int
    packed_tokens: int
    first_row: int
    is_whole: bool

    @property
    def told(self) -> str:
        """Which epoch drew it, and how much of it is packed."""
        cut = "" if self.packed_tokens == self.tokens else f" of {self.tokens:,}"
        return f"in epoch {self.epoch}: {self.packed_tokens:,}{cut} tokens"

    @property
    def words(self) -> str:
        """Where the set has it."""
        where = f"in row {self.first_row:,}" if self.is_whole else f"of which the first is in row {self.first_row:,}"
        return f"drawn {self.told} {where}"


def drawn_lines(packed: Artifact, doc_ids: Collection[str]) -> Iterator[DrawnLine]:
    """All lines of some documents, in the order of the file; one row group is in memory at a time."""
    import pyarrow.compute as pc

    wanted = strings(sorted(doc_ids))
    with open_parquet(packed.path(DOCUMENTS)) as file:
        for number in range(file.num_row_groups):
            ids = file.read_row_group(number, columns=["doc_id"])["doc_id"]
            is_wanted = pc.is_in(ids, value_set=wanted)
            if pc.any(is_wanted).as_py():
                lines: pa.Table = file.read_row_group(number).filter(is_wanted)
                yield from (DrawnLine(**line) for line in lines.to_pylist())


def draws_are_deduplicated(packed: Artifact, target: Target, root: Path) -> Verdict:
    """What is packed was deduplicated at some step: else a text may be in it more often than its epochs say."""
    manifest = sealed_manifest(root / target.upstream[0].folder)
    if _DEDUPLICATED in (manifest.kind, *(entry["name"] for entry in manifest.identity.upstream)):
        return Verdict(True, "what it is drawn from was deduplicated")
    return Verdict(False, "not deduplicated: a text may be in it more often than its epochs say")


def deduplicated_before(corpus: Artifact, root: Path) -> Artifact | None:
    """The deduplicated corpus that a corpus was made from; None if there is none below the data root."""
    digests = [one["digest"] for one in corpus.manifest.identity.upstream if one["name"] == _DEDUPLICATED]
    try:
        return Lineage(root).locate(digests[0]) if digests else None
    except InputError:
        return None


def preview_packed(packed: Artifact) -> list[dict[str, str]]:
    """What each source was asked for and gives."""
    return [
        {
            "source": source,
            "asked": f"{float(counts['asked_share']):.2%}",
            "of the tokens": f"{float(counts['share']):.2%}",
            "tokens": f"{counts['packed_tokens']:,}",
            "epochs": f"{float(counts['epochs']):.2f}",
        }
        for source, counts in packed.manifest.identity.counts["by_source"].items()
    ]
