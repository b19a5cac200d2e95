"""A corpus as one HTML page: the numbers of its profile and ledgers as tables and plots, nothing loaded from elsewhere.

Every text that comes from a corpus is escaped: a page of the web must not run in the report about it.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.decontamination.evidence import Summary
from pipeline_assets.corpus.dedup.decision import Group
from pipeline_assets.corpus.packing.summary import PackedSummary
from pipeline_assets.corpus.profile import Counts, Profile, by, total
from pipeline_assets.corpus.spine.ledger import Ledger

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1c2333 }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
table { border-collapse: collapse; margin: .6rem 0 } td, th { padding: .2rem .8rem .2rem 0; text-align: left;
vertical-align: top; border-bottom: 1px solid #e4e7ee } td.number, th.number { text-align: right;
font-variant-numeric: tabular-nums } figure { display: inline-block; margin: .4rem 2rem .6rem 0; vertical-align: top }
.track { display: inline-block; width: 160px; margin-left: .6rem; text-align: left }
.share { display: inline-block; height: .6rem; background: #4f5bd5 } .bar { fill: #4f5bd5 }
svg text { font-size: 11px; fill: #5a6275 }
pre { white-space: pre-wrap; background: #f5f6fa; padding: .5rem; margin: 0; max-height: 8rem; overflow: auto }
.examples { table-layout: fixed; width: 100% } .examples th:last-child { width: 45% }
td, pre { overflow-wrap: anywhere } figure { max-width: 100%; overflow-x: auto }
.unknown { color: #b3261e; font-weight: 600 } .note { color: #5a6275 }
"""
_BAR_WIDTH, _PLOT_HEIGHT, _LABEL_HEIGHT = 34, 120, 30


class _Html(str):
    """What is HTML already."""


Cells = Sequence[str | int]
"""A line of a table: texts, which are escaped, numbers, which are grouped, and `_Html`."""


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
            f"<h1>{_text(self.title)}</h1>",
            self._steps(),
            _packed(self.packed) if self.packed is not None else "",
            "<h2>What the sources hold</h2><p class='note'>Each by itself, before it is compared with others.</p>",
            *(_breakdown(title, by(self.profile, name)) for title, name in _FIELDS),
            "<h2>Lengths</h2><p class='note'>Documents by tokens, from the length under each bar on.</p>",
            *(_histogram(source, counts) for source, counts in by(self.profile, "source").items()),
            *map(_ledger, self.ledgers),
            _duplicates(self.duplicates) if self.duplicates is not None else "",
            _decontamination(self.decontamination) if self.decontamination is not None else "",
            "<h2>Attribution</h2>",
            f"<pre>{_text(self.attribution)}</pre>",
        ]
        head = f"<meta charset='utf-8'><title>{_text(self.title)}</title><style>{_STYLE}</style>"
        return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"

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
        return _table(["", "documents", "tokens"], steps)


_FIELDS = (("Sources", "source"), ("Domains", "domain"), ("Licences", "license_tag"))


def _breakdown(title: str, counts: Mapping[str, Counts]) -> str:
    tokens = sum(one.tokens for one in counts.values())
    rows: list[Cells] = [
        [_licence(name), one.documents, one.utf8_bytes, one.tokens, _share(one.tokens / max(tokens, 1))]
        for name, one in counts.items()
    ]
    return f"<h2>{title}</h2>" + _table([title.lower(), "documents", "bytes", "tokens", "share"], rows)


def _histogram(source: str, counts: Counts) -> str:
    """Documents by length as bars: bin k holds 2**k <= tokens < 2**(k + 1)."""
    filled = [number for number, count in enumerate(counts.lengths) if count]
    if not filled:
        return ""
    bins = range(filled[0], filled[-1] + 1)
    highest = max(counts.lengths)
    bars = []
    for place, number in enumerate(bins):
        count = counts.lengths[number]
        height = round(_PLOT_HEIGHT * count / highest, 1)
        x, y = place * _BAR_WIDTH, _PLOT_HEIGHT - height + 14
        label = f"<title>{count:,} documents of {2**number:,} to {2 ** (number + 1) - 1:,} tokens</title>"
        bars.append(f"<rect class='bar' x='{x}' y='{y}' width='{_BAR_WIDTH - 4}' height='{height}'>{label}</rect>")
        bars.append(f"<text x='{x}' y='{_PLOT_HEIGHT + _LABEL_HEIGHT}'>{_short(2**number)}</text>")
    size = f"width='{len(bins) * _BAR_WIDTH}' height='{_PLOT_HEIGHT + _LABEL_HEIGHT + 6}'"
    caption = f"<figcaption class='note'>{_text(source)}: {counts.documents:,} documents</figcaption>"
    return f"<figure>{caption}<svg {size} role='img'>{''.join(bars)}</svg></figure>"


def _short(number: int) -> str:
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if number >= unit:
            return f"{number // unit}{name}"
    return str(number)


def _ledger(of: SourceLedger) -> str:
    merged = "merged into other documents"
    rows: list[Cells] = [
        ("in", of.ledger.rows_in),
        ("out", of.ledger.out),
        *((f"{fate}: {reason}" if reason else merged, count) for fate, reason, count in of.ledger.fates()),
    ]
    examples = [
        (reason, example.doc_id, example.measured, _pre(example.text) if example.text else "")
        for reason, found in of.examples.items()
        for example in found
    ]
    shown = _examples(["reason", "document", "measured", "text"], examples)
    return f"<h2>{_text(of.source)}: {_text(of.step)}</h2>" + _table(["rows", "count"], rows) + shown


def _duplicates(found: Duplicates) -> str:
    counted = {"in": "in", "exact_duplicate": "exact copies", "near_duplicate": "near duplicates"}
    if any(counts["of_seen"] for counts in found.by_source.values()):
        counted["of_seen"] = "of documents seen before"
    counted["out"] = "out"
    rows: list[Cells] = [
        [source, *(counts[name] for name in counted), _share(1 - counts["out"] / max(counts["in"], 1))]
        for source, counts in found.by_source.items()
    ]
    compared = ", ".join(f"{count:,} {_text(name.replace('_', ' '))}" for name, count in found.comparisons.items())
    members = [
        (group.gone, f"{one.doc_id} ({one.seen_in or one.source})", word, _pre(one.beginning))
        for group in found.groups
        for word, one in (
            ("seen before" if group.kept.seen_in else "stays", group.kept),
            *(("gone", sample) for sample in group.samples),
        )
    ]
    groups = _examples(["went for it", "document", "", "text"], members)
    sources = _table(["source", *counted.values(), "gone"], rows)
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
    samples = [(f"{one.doc_id} ({one.source})", one.action, str(one), _pre(one.excerpt)) for one in found.samples]
    shown = _examples(["document", "", "item", "text"], samples)
    head = ["evaluation set", *(name.replace("_", " ") for name in counted)]
    stays = _table(["source", *fates, "bytes", "tokens"], sources)
    return f"<h2>Contamination</h2>{_table(head, sets)}{shown}<h2>What is left of the sources</h2>{stays}"


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
        [_licence(name), tokens, _share(tokens / packed.tokens)] for name, tokens in packed.license_tokens.items()
    ]
    cut = f"{packed.cut_documents:,} of {packed.documents:,} documents ({_percent(packed.cut_share)}) are cut"
    shape = (
        f"{packed.rows:,} rows of {packed.seq_len:,} tokens by {_text(packed.strategy.replace('_', ' '))}: "
        f"{_percent(packed.packing_efficiency)} are tokens of documents, {packed.padding_tokens:,} are padding"
    )
    reasons = ", ".join(f"{count:,} {_text(reason)}" for reason, count in packed.rejected.items())
    rejected = f"<p>Texts that can't be encoded: {reasons}</p>" if reasons else ""
    return (
        f"<h2>The packed set</h2><p>{shape}; {cut}: no row holds all of one</p>{_table(head, sources)}{rejected}"
        f"<h2>Its licences</h2>{_table(['licence', 'tokens', 'share'], licences)}"
    )


def _examples(head: Sequence[str], rows: Sequence[Cells]) -> str:
    return _table(head, rows, numbers_from=len(head), kind=" class='examples'") if rows else ""


def _table(head: Sequence[str], rows: Sequence[Cells], numbers_from: int = 1, kind: str = "") -> str:
    def line(cells: Cells, tag: str) -> str:
        kinds = ("" if place < numbers_from else " class='number'" for place in range(len(cells)))
        return "".join(f"<{tag}{kind}>{_cell(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table{kind}><tr>{line(head, 'th')}</tr>{body}</table>"


def _cell(value: str | int) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, _Html) else _text(value)


def _text(text: str) -> str:
    return html.escape(text)


def _pre(text: str) -> _Html:
    return _Html(f"<pre>{_text(text)}</pre>")


def _licence(name: str) -> str:
    """A licence, or what else a breakdown is by: what nobody knows stands out."""
    return _Html("<span class='unknown'>unknown</span>") if name == "unknown" else name


def _share(share: float) -> _Html:
    """In percent, with a bar as long."""
    bar = f"<span class='track'><span class='share' style='width:{100 * share:.1f}%'></span></span>"
    return _Html(f"{100 * share:.1f} %{bar}")


def _percent(share: str) -> str:
    return f"{100 * float(share):.2f} %"
