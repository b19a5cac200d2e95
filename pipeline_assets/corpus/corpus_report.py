"""The report on a corpus of several sources: what they hold, what became of their rows, whom to name.

Files: `report.json`, the numbers; `report.html`, the same as one page with plots; `ATTRIBUTION`, for the licences that
ask for it. It is also where ids of all sources meet: one id in two sources ends the build.
"""

import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from pipeline_assets.corpus.decontamination.recipe import Summary, summary_of
from pipeline_assets.corpus.dedup.decision import Group, read_groups
from pipeline_assets.corpus.document import Document, first_repeat
from pipeline_assets.corpus.document_shards import REJECTS_FILE, shard_rows, shards_of
from pipeline_assets.corpus.document_sizes import OUTSIZED, LargeDocument, outsized_section, read_outsized
from pipeline_assets.corpus.filters.verdict import DroppedLine, read_dropped
from pipeline_assets.corpus.formats.compression import read_structs
from pipeline_assets.corpus.licences import LicenceTable, attribution_text
from pipeline_assets.corpus.packing import plan_files
from pipeline_assets.corpus.pages import (
    REPORT_HTML,
    REPORT_JSON,
    Cells,
    Html,
    escaped,
    histogram,
    page,
    pre,
    share,
    table,
)
from pipeline_assets.corpus.profile import Counts, Profile, by, from_json, merged, profile_shard, to_json, total
from pipeline_assets.corpus.readers.lines import row_words
from pipeline_assets.corpus.rows.store import read_rejects
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import REBUILD, OwnFile
from pipeline_assets.corpus.spine.ledger import Ledger
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.staging import OutputFile, Receipt, StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.tokens.encode import load_tokenizers
from pipeline_assets.corpus.tokens.losses import lost_text

REPORT_STAGE = StageVersion("report", 8)
ATTRIBUTION = "ATTRIBUTION"
_REPORT_FILE: OwnFile[dict[str, Any]] = OwnFile("report", 256 << 20, REBUILD, dict[str, Any])
_EXAMPLES = 3  # of each reason of a source, the first ones
_EXAMPLE_CHARACTERS = 400
_document_decoder = msgspec.json.Decoder(Document)


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
    packed: plan_files.PackedSummary | None = None
    outsized: Mapping[str, list[LargeDocument]] = field(default_factory=dict)

    def to_html(self) -> str:
        """The whole page."""
        parts = [
            self._steps(),
            _packed(self.packed) if self.packed is not None else "",
            "<h2>What the sources hold</h2><p class='note'>Each by itself, before it is compared with others.</p>",
            *(_breakdown(title, by(self.profile, name)) for title, name in _FIELDS),
            "<h2>Lengths</h2><p class='note'>Documents by tokens, from the length under each bar on.</p>",
            *(histogram(source, one.lengths, "documents") for source, one in by(self.profile, "source").items()),
            outsized_section(self.outsized),
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


def _packed(packed: plan_files.PackedSummary) -> str:
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
    lost = "; ".join(f"{escaped(source)}: {losses}" for source, losses in packed.lost_text.items())
    rejected = f"<p>Text that the tokenizer loses: {lost}</p>" if lost else ""
    rejected += f"<p>Texts that can't be encoded: {reasons}</p>" if reasons else ""
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


@dataclass(frozen=True)
class SourceSteps:
    """One source: its Documents, and those that its filters kept; None where nothing was filtered."""

    source: str
    normalized: Artifact
    filtered: Artifact | None

    @property
    def corpus(self) -> Artifact:
        """What came out."""
        return self.filtered or self.normalized


def report_on(
    building: StagingDir,
    sources: Sequence[SourceSteps],
    tokenizer_sha256: str,
    licences: LicenceTable,
    settings: RunSettings,
    deduplicated: Artifact | None = None,
    decontaminated: Artifact | None = None,
    packed: Artifact | None = None,
) -> BuildResult:
    """The three files, in the building folder.

    Args:
        deduplicated, decontaminated, packed: what was made of the sources together.
    Raises:
        InputError: two sources have one doc_id, or a shard can't be read.
    """
    places = [(steps, path) for steps in sources for path in shard_rows(steps.corpus)]
    corpora = [*(steps.corpus for steps in sources), *([decontaminated] if decontaminated is not None else [])]
    of_all = [shard for corpus in corpora for shard in shards_of(corpus)]
    shards = [replace(shard, name=f"{number:05d}") for number, shard in enumerate(of_all)]
    work = functools.partial(profile_shard, tokenizer_sha256=tokenizer_sha256, vocabulary=settings.vocabulary)
    warm_up = functools.partial(load_tokenizers, tokenizer_sha256, "gigatoken", 0, (), settings.vocabulary)
    settings = settings_for(building, settings, [shard.file.stat().st_size for shard in shards])
    receipts = list(run_stage("profile", work, shards, building, settings, warm_up))
    of_sources, of_kept = receipts[: len(places)], receipts[len(places) :]
    _refuse_shared_ids(building, of_sources, places)
    profile = _profile(of_sources)
    ledgers = [ledger for steps in sources for ledger in _ledgers(steps)]
    tags = {
        source: sorted({group.license_tag for group in profile if group.source == source})
        for source in by(profile, "source")
    }
    attribution = attribution_text(licences, tags)
    duplicates = None
    if deduplicated is not None:
        counts = deduplicated.manifest.identity.counts
        duplicates = Duplicates(counts["by_source"], counts["comparisons"], read_groups(deduplicated))
    decontamination = Decontamination(summary_of(decontaminated), _profile(of_kept)) if decontaminated else None
    title = f"Stage A: {len(sources)} sources"
    rows = plan_files.summary_of(packed) if packed is not None else None
    outsized = {steps.source: large for steps in sources if (large := read_outsized(steps.normalized))}
    report = Report(title, profile, ledgers, attribution, duplicates, decontamination, rows, outsized)
    numbers = _as_json(profile, ledgers, licences)
    if outsized:
        numbers[OUTSIZED] = {source: [one._asdict() for one in large] for source, large in outsized.items()}
    if duplicates is not None:
        numbers["duplicates"] = {**vars(duplicates), "groups": msgspec.to_builtins(duplicates.groups)}
    if decontamination is not None:
        kept = {"totals": _numbers(total(decontamination.kept)), "sources": _by(decontamination.kept, "source")}
        numbers["decontamination"] = msgspec.to_builtins(decontamination.found) | {"kept": kept}
    if rows is not None:
        numbers["packed"] = asdict(rows) | lost_text(rows.lost_text)
    written = [
        _write(building, REPORT_JSON, json.dumps(numbers, indent=1, ensure_ascii=False)),
        _write(building, REPORT_HTML, report.to_html()),
        _write(building, ATTRIBUTION, attribution),
    ]
    held = total(profile)
    counts = {"documents": held.documents, "tokens": held.tokens, "text_bytes": held.utf8_bytes}
    return BuildResult(written, counts, {})


def _profile(receipts: Sequence[Receipt]) -> Profile:
    return merged(from_json(receipt.notes["groups"]) for receipt in receipts)


def _refuse_shared_ids(
    building: StagingDir, receipts: Sequence[Receipt], places: Sequence[tuple[SourceSteps, str]]
) -> None:
    """
    Raises:
        InputError: an id is in two sources; inside one there are none, normalising saw to it.
    """
    repeat = first_repeat([building.path(receipt.files[0].path) for receipt in receipts])
    if repeat is None:
        return
    shard, row, count = repeat
    steps, path = places[shard]
    doc_id = next(document.doc_id for number, document in enumerate(_documents(steps.corpus, path)) if number == row)
    first = next(
        other.source
        for other, other_path in places
        if any(document.doc_id == doc_id for document in _documents(other.corpus, other_path))
    )
    more = f", and {count - 1:,} more ids are in two sources" if count > 1 else ""
    what = f"doc_id {doc_id!r} is in {first} and in {steps.source} ({path} row {row}){more}"
    fix = "leave one of the sources out, or take another column for `columns.id`"
    raise InputError(what, steps.corpus.folder, fix)


def _documents(corpus: Artifact, shard: str) -> Iterator[Document]:
    return read_structs(corpus.path(shard), _document_decoder)


def _ledgers(steps: SourceSteps) -> Iterator[SourceLedger]:
    normalized, filtered = steps.normalized, steps.filtered
    ledger = normalized.manifest.identity.ledger
    yield SourceLedger(steps.source, "normalized", ledger, _reject_examples(normalized))
    if filtered is not None:
        ledger = filtered.manifest.identity.ledger
        yield SourceLedger(steps.source, "filtered", ledger, _dropped_examples(filtered, normalized))


def _reject_examples(normalized: Artifact) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = {}
    wanted = len(normalized.manifest.identity.ledger.rejected)
    is_hub = normalized.manifest.identity.recipe.get("kind") == "hub"
    for reject in read_rejects(normalized.path(REJECTS_FILE)):
        examples = found.setdefault(reject.reason, [])
        if len(examples) < _EXAMPLES:
            place = f"row {reject.row:,}" if is_hub else row_words(reject.file, reject.row, None)
            examples.append(Example(f"{reject.file} {place}", reject.detail, ""))
            if len(found) == wanted and all(len(examples) == _EXAMPLES for examples in found.values()):
                break
    return found


def _dropped_examples(filtered: Artifact, normalized: Artifact) -> dict[str, list[Example]]:
    """The first documents of each reason, with the beginning of their text."""
    chosen: dict[str, list[DroppedLine]] = {}
    for line in read_dropped(filtered):
        examples = chosen.setdefault(line.reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(line)
    wanted: dict[str, set[int]] = {}
    for line in (line for lines in chosen.values() for line in lines):
        wanted.setdefault(line.shard, set()).add(line.row)
    texts = {
        (shard, row): document.text[:_EXAMPLE_CHARACTERS]
        for shard, rows in wanted.items()
        for row, document in enumerate(itertools.islice(_documents(normalized, shard), max(rows) + 1))
        if row in rows
    }
    return {
        reason: [Example(line.doc_id, str(line), texts[line.shard, line.row]) for line in lines]
        for reason, lines in sorted(chosen.items())
    }


def _as_json(profile: Profile, ledgers: Sequence[SourceLedger], licences: LicenceTable) -> dict[str, Any]:
    """Numbers under their names; licences with what they ask for."""
    return {
        "schema": "corpusmill/report/1",
        "totals": _numbers(total(profile)),
        "sources": _by(profile, "source"),
        "domains": _by(profile, "domain"),
        "licences": {
            tag: counts | {"licence": msgspec.to_builtins(licences[tag])}
            for tag, counts in _by(profile, "license_tag").items()
        },
        "groups": to_json(profile),
        "ledgers": [
            {
                "source": one.source,
                "step": one.step,
                "rows_in": one.ledger.rows_in,
                "documents_out": one.ledger.out,
                "dropped": one.ledger.dropped,
                "rejected": one.ledger.rejected,
                "examples": msgspec.to_builtins(one.examples),
                "merged": one.ledger.merged,
            }
            for one in ledgers
        ],
    }


def _by(profile: Profile, field: str) -> dict[str, Any]:
    return {name: _numbers(counts) | {"lengths": list(counts.lengths)} for name, counts in by(profile, field).items()}


def _numbers(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in ("documents", "characters", "utf8_bytes", "tokens")}


def _write(building: StagingDir, name: str, text: str) -> OutputFile:
    return building.write(name, (text.rstrip("\n") + "\n").encode())


def preview_report(report: Artifact) -> list[dict[str, str]]:
    """What each source holds."""
    sources = _REPORT_FILE.read(report.path(REPORT_JSON))["sources"]
    return [
        {"source": name, **{key: f"{counts[key]:,}" for key in ("documents", "tokens", "utf8_bytes")}}
        for name, counts in sources.items()
    ]
