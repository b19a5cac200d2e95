"""A corpus as one HTML page: the numbers of its profile and ledgers as tables and plots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.decontamination.evidence import Summary
from pipeline_assets.corpus.dedup.decision import Group
from pipeline_assets.corpus.html_page import Cells, Html, escaped, histogram, page, pre, share, table
from pipeline_assets.corpus.packing.summary import PackedSummary
from pipeline_assets.corpus.profile import Counts, Profile, by, total
from pipeline_assets.corpus.spine.ledger import Ledger


@dataclass(frozen=True)
class Example:
    """One document that a rule dropped: its id, what was measured, and the beginning of its text."""

    doc_id: str
    measured: str
    text: str


@dataclass(frozen=True)
class SourceLedger:
    """What became of the rows of one source in one step.

    Attributes:
        examples: of what was dropped or rejected, by reason.
    """

    source: str
    step: str
    ledger: Ledger
    examples: Mapping[str, Sequence[Example]]


@dataclass(frozen=True)
class Duplicates:
    """What deduplication made of all sources.

    Attributes:
        by_source: documents of each: `in`, `out`, `exact_duplicate`, `near_duplicate`, `of_seen` among these two.
        comparisons: what was compared, `pairs`, `edges`, `capped_buckets`.
        groups: the largest.
    """

    by_source: Mapping[str, Mapping[str, int]]
    comparisons: Mapping[str, int]
    groups: Sequence[Group]


@dataclass(frozen=True)
class Decontamination:
    """What decontamination found in all sources, and what it kept of them."""

    found: Summary
    kept: Profile


@dataclass(frozen=True)
class Report:
    """What the page says; `duplicates`, `decontamination` and `packed` are None where there was no such step."""

    title: str
    profile: Profile
    ledgers: Sequence[SourceLedger]
    attribution: str
    duplicates: Duplicates | None = None
    decontamination: Decontamination | None = None
    packed: PackedSummary | None = None

    def to_html(self) -> str:
        """The whole page."""
        parts = [
            self._steps(),
            _packed(self.packed) if self.packed is not None else "",
            "<h2>What the sources hold</h2><p class='note'>Each by itself, before it is compared with others.</p>",
            *(_breakdown(title, by(self.profile, name)) for title, name in _FIELDS),
            "<h2>Lengths</h2><p class='note'>Documents by tokens, from the length under each bar on.</p>",
            *(histogram(source, one.lengths, "documents") for source, one in by(self.profile, "source").items()),
            *map(_ledger, self.ledgers),
            _duplicates(self.duplicates) if self.duplicates is not None else "",
            _decontamination(self.decontamination) if self.decontamination is not None else "",
            "<h2>Attribution</h2>",
            f"<pre>{escaped(self.attribution)}</pre>",
        ]
        return page(self.title, parts)

    def _steps(self) -> str:
        """What is left after each step."""
        held = total(self.profile)
        steps: list[Cells] = [("in the sources", held.documents, held.tokens)]
        if self.duplicates is not None:
            left = sum(counts["out"] for counts in self.duplicates.by_source.values())
            steps.append(("without duplicates", left, ""))
        if self.decontamination is not None:
            held = total(self.decontamination.kept)
            steps.append(("without items of evaluation sets", held.documents, held.tokens))
        if self.packed is not None:
            sources = self.packed.by_source.values()
            documents = sum(source["documents"] - source["unused_documents"] for source in sources)
            steps.append((f"packed, {self.packed.rows:,} rows", documents, self.packed.tokens))
        return table(["", "documents", "tokens"], steps)


_FIELDS = (("Sources", "source"), ("Domains", "domain"), ("Licences", "license_tag"))


def _breakdown(title: str, counts: Mapping[str, Counts]) -> str:
    tokens = sum(one.tokens for one in counts.values())
    rows: list[Cells] = [
        [_licence(name), one.documents, one.utf8_bytes, one.tokens, share(one.tokens / max(tokens, 1))]
        for name, one in counts.items()
    ]
    return f"<h2>{title}</h2>" + table([title.lower(), "documents", "bytes", "tokens", "share"], rows)


def _ledger(of: SourceLedger) -> str:
    merged = "merged into other documents"
    rows: list[Cells] = [
        ("in", of.ledger.rows_in),
        ("out", of.ledger.out),
        *((f"{fate}: {reason}" if reason else merged, count) for fate, reason, count in of.ledger.fates()),
    ]
    examples = [
        (reason, example.doc_id, example.measured, pre(example.text) if example.text else "")
        for reason, found in of.examples.items()
        for example in found
    ]
    shown = _examples(["reason", "document", "measured", "text"], examples)
    return f"<h2>{escaped(of.source)}: {escaped(of.step)}</h2>" + table(["rows", "count"], rows) + shown


def _duplicates(found: Duplicates) -> str:
    counted = {"in": "in", "exact_duplicate": "exact copies", "near_duplicate": "near duplicates"}
    if any(counts["of_seen"] for counts in found.by_source.values()):
        counted["of_seen"] = "of documents seen before"
    counted["out"] = "out"
    rows: list[Cells] = [
        [source, *(counts[name] for name in counted), share(1 - counts["out"] / max(counts["in"], 1))]
        for source, counts in found.by_source.items()
    ]
    compared = ", ".join(f"{count:,} {escaped(name.replace('_', ' '))}" for name, count in found.comparisons.items())
    members = [
        (group.gone, f"{one.doc_id} ({one.seen_in or one.source})", word, pre(one.beginning))
        for group in found.groups
        for word, one in (
            ("seen before" if group.kept.seen_in else "stays", group.kept),
            *(("gone", sample) for sample in group.samples),
        )
    ]
    groups = _examples(["went for it", "document", "", "text"], members)
    sources = table(["source", *counted.values(), "gone"], rows)
    return f"<h2>Duplicates</h2>{sources}<p class='note'>{compared}</p><h2>Largest groups</h2>{groups}"


def _decontamination(decontamination: Decontamination) -> str:
    found, kept = decontamination.found, by(decontamination.kept, "source")
    counted = ("items", "repeated", "too_short", "contaminated_documents", "dropped_documents", "cut_documents")
    sets: list[Cells] = [[name, *(counts[one] for one in counted)] for name, counts in found.by_set.items()]
    fates = ("in", "dropped", "cut", "out")
    sources: list[Cells] = [
        [source, *(counts[name] for name in fates), left.utf8_bytes, left.tokens]
        for source, counts in found.by_source.items()
        for left in [kept.get(source, Counts())]
    ]
    samples = [(f"{one.doc_id} ({one.source})", one.action, str(one), pre(one.excerpt)) for one in found.samples]
    shown = _examples(["document", "", "item", "text"], samples)
    head = ["evaluation set", *(name.replace("_", " ") for name in counted)]
    stays = table(["source", *fates, "bytes", "tokens"], sources)
    return f"<h2>Contamination</h2>{table(head, sets)}{shown}<h2>What is left of the sources</h2>{stays}"


def _packed(packed: PackedSummary) -> str:
    sources: list[Cells] = [
        [
            source,
            _percent(counts["asked_share"]),
            _percent(counts["share"]),
            f"{float(counts['epochs']):.3f}",
            counts["packed_tokens"],
            counts["drawn"],
            counts["cut_documents"],
            _percent(counts["cut_share"]),
            counts["longer_than_a_row"],
            counts["unused_documents"],
        ]
        for source, counts in packed.by_source.items()
    ]
    drawn = ["drawn", "of these cut", "share cut", "of the cut longer than a row"]
    head = ["source", "asked", "reached", "epochs", "tokens", *drawn, "not used"]
    licences: list[Cells] = [
        [_licence(name), tokens, share(tokens / packed.tokens)] for name, tokens in packed.license_tokens.items()
    ]
    cut = f"{packed.cut_documents:,} of {packed.documents:,} documents ({_percent(packed.cut_share)}) are cut"
    shape = (
        f"{packed.rows:,} rows of {packed.seq_len:,} tokens by {escaped(packed.strategy.replace('_', ' '))}: "
        f"{_percent(packed.packing_efficiency)} are tokens of documents, {packed.padding_tokens:,} are padding"
    )
    reasons = ", ".join(f"{count:,} {escaped(reason)}" for reason, count in packed.rejected.items())
    rejected = f"<p>Texts that can't be encoded: {reasons}</p>" if reasons else ""
    return (
        f"<h2>The packed set</h2><p>{shape}; {cut}: no row holds all of one</p>{table(head, sources)}{rejected}"
        f"<h2>Its licences</h2>{table(['licence', 'tokens', 'share'], licences)}"
    )


def _examples(head: Sequence[str], rows: Sequence[Cells]) -> str:
    return table(head, rows, numbers_from=len(head), kind=" class='examples'") if rows else ""


def _licence(name: str) -> str:
    """A licence, or what else a breakdown is by: what nobody knows stands out."""
    return Html("<span class='unknown'>unknown</span>") if name == "unknown" else name


def _percent(share: str) -> str:
    return f"{100 * float(share):.2f} %"
