"""Report on a corpus of several sources: contents, ledgers and attribution.

Files: `report.json`, `report.html` with the same content, and `ATTRIBUTION` for the licences that require it. A doc_id
that is in two sources fails the build.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pipeline_assets.corpus.decontamination.recipe import summarize_decontamination
from pipeline_assets.corpus.dedup.decision import read_groups
from pipeline_assets.corpus.doc_ids import find_first_repeat
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards import REJECTS_FILE, document_shards, shard_rows
from pipeline_assets.corpus.filters.verdict import DroppedLine, read_dropped
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.licences import LicenceTable, attribution_text
from pipeline_assets.corpus.packing.summary import summarize_packed
from pipeline_assets.corpus.pages import REPORT_JSON, write_page, write_report
from pipeline_assets.corpus.profile import Counts, Profile, from_json, merge, profile_shard, sum_all, sum_by, to_json
from pipeline_assets.corpus.readers.row_positions import format_row
from pipeline_assets.corpus.tokens.encode import load_tables
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger, Reject
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFile
from pipeline_assets.spine.staging import Receipt, StagingDir

REPORT_STAGE = StageVersion("report", 9)
ATTRIBUTION = "ATTRIBUTION"
_REPORT_FILE: MetadataFile[dict[str, Any]] = MetadataFile("report", 256 << 20, REBUILD, dict[str, Any])
_EXAMPLES = 3  # first rows of each reason and source
_EXAMPLE_CHARACTERS = 400


@dataclass(frozen=True)
class Example:
    """Example of a dropped document or rejected row.

    Attributes:
        doc_id: Id of the document, or file and position of the row.
        measured: Measurement of the filter that dropped the document, or detail of the row's reject.
        text: Start of the document's text; empty for a row.
    """

    doc_id: str
    measured: str
    text: str


@dataclass(frozen=True)
class SourceSteps:
    """Artifacts of one source: its normalized documents, and its filtered ones if any."""

    source: str
    normalized: Artifact
    filtered: Artifact | None

    @property
    def corpus(self) -> Artifact:
        """Artifact with the source's final documents."""
        return self.filtered or self.normalized


def write_corpus_report(
    staging: StagingDir,
    sources: Sequence[SourceSteps],
    tokenizer_sha256: str,
    licences: LicenceTable,
    settings: RunSettings,
    deduplicated: Artifact | None = None,
    decontaminated: Artifact | None = None,
    packed: Artifact | None = None,
) -> BuildResult:
    """Write `report.json` and `ATTRIBUTION`.

    `report.html` is written later, because it quotes the manifest. `deduplicated`, `decontaminated` and `packed` are
    artifacts of all sources together.
    """
    places = [(steps, path) for steps in sources for path in shard_rows(steps.corpus)]
    corpora = [*(steps.corpus for steps in sources), *([decontaminated] if decontaminated is not None else [])]
    all_shards = [shard for corpus in corpora for shard in document_shards(corpus)]
    shards = [replace(shard, name=f"{number:05d}") for number, shard in enumerate(all_shards)]
    work = functools.partial(profile_shard, tokenizer_sha256=tokenizer_sha256, vocabulary=settings.vocabulary)
    tokenizer = TokenizerFile(HarmonyRecipe(sha256=tokenizer_sha256), settings.vocabulary)
    warm_up = functools.partial(load_tables, tokenizer, 0)
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    receipts = list(run_stage("profile", work, shards, staging, settings, warm_up))
    source_receipts, kept_receipts = receipts[: len(places)], receipts[len(places) :]
    _raise_if_ids_shared(staging, source_receipts, places)
    profile = _profile(source_receipts)
    ledgers = [ledger for steps in sources for ledger in _ledgers(steps)]
    tags = {
        source: sorted({group.license_tag for group in profile if group.source == source})
        for source in sum_by(profile, "source")
    }
    attribution = attribution_text(licences, tags)
    report = build_report(profile, ledgers, licences, attribution)
    if deduplicated is not None:
        counts = deduplicated.manifest.identity.counts
        duplicates = {name: counts[name] for name in ("by_source", "comparisons")}
        report["duplicates"] = duplicates | {"groups": read_groups(deduplicated)}
        remaining = sum(source["out"] for source in duplicates["by_source"].values())
        report["steps"]["without duplicates"] = {"documents": remaining}
    if decontaminated is not None:
        profile_kept = _profile(kept_receipts)
        kept = {"totals": _totals(sum_all(profile_kept)), "sources": _count_by(profile_kept, "source")}
        report["decontamination"] = summarize_decontamination(decontaminated) | {"kept": kept}
        report["steps"]["without items of evaluation sets"] = kept["totals"]
    if packed is not None:
        report["packed"] = summary = summarize_packed(packed)
        used = sum(source["documents"] - source["unused_documents"] for source in summary["by_source"].values())
        report["steps"][f"packed, {summary['rows']:,} rows"] = {"documents": used, "tokens": summary["tokens"]}
    attributed = staging.write(ATTRIBUTION, (attribution.rstrip("\n") + "\n").encode())
    totals = sum_all(profile)
    counts = {"documents": totals.documents, "tokens": totals.tokens, "text_bytes": totals.utf8_bytes}
    return BuildResult([write_report(staging, report), attributed], counts, {}, page=write_page)


def _profile(receipts: Sequence[Receipt]) -> Profile:
    return merge(from_json(receipt.notes["groups"]) for receipt in receipts)


def _raise_if_ids_shared(
    staging: StagingDir, receipts: Sequence[Receipt], places: Sequence[tuple[SourceSteps, str]]
) -> None:
    """Raise InputError if two sources share a doc_id; `places` names each shard."""
    repeat = find_first_repeat([staging.path(receipt.files[0].path) for receipt in receipts])
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
    more = f"; {count - 1:,} more ids are in two sources" if count > 1 else ""
    what = f"doc_id {doc_id!r} is in {first} and in {steps.source} ({path} row {row}){more}"
    fix = "remove one of the sources, or set `columns.id` to another column"
    raise InputError(what, steps.corpus.folder, fix)


def _documents(corpus: Artifact, shard: str) -> Iterator[Document]:
    return read_structs(corpus.path(shard), Document)


def _ledgers(steps: SourceSteps) -> Iterator[dict[str, Any]]:
    normalized, filtered = steps.normalized, steps.filtered
    yield total_ledger(steps.source, "normalized", normalized.manifest.identity.ledger, _reject_examples(normalized))
    if filtered is not None:
        examples = _dropped_examples(filtered, normalized)
        yield total_ledger(steps.source, "filtered", filtered.manifest.identity.ledger, examples)


def total_ledger(source: str, step: str, ledger: Ledger, examples: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
    """Return the ledger of a source in a step, with example rows by reason."""
    return {
        "source": source,
        "step": step,
        "rows_in": ledger.rows_in,
        "documents_out": ledger.out,
        "dropped": ledger.dropped,
        "rejected": ledger.rejected,
        "examples": examples,
        "merged": ledger.merged,
    }


def _reject_examples(normalized: Artifact) -> dict[str, list[Example]]:
    by_reason: dict[str, list[Example]] = {}
    reasons = len(normalized.manifest.identity.ledger.rejected)
    is_hub = normalized.manifest.identity.recipe.get("kind") == "hub"
    for reject in read_structs(normalized.path(REJECTS_FILE), Reject):
        examples = by_reason.setdefault(reject.reason, [])
        if len(examples) < _EXAMPLES:
            place = f"row {reject.row:,}" if is_hub else format_row(reject.file, reject.row, None)
            examples.append(Example(f"{reject.file} {place}", reject.detail, ""))
            if len(by_reason) == reasons and all(len(examples) == _EXAMPLES for examples in by_reason.values()):
                break
    return by_reason


def _dropped_examples(filtered: Artifact, normalized: Artifact) -> dict[str, list[Example]]:
    """Return the first `_EXAMPLES` dropped documents of each reason."""
    chosen: dict[str, list[DroppedLine]] = {}
    for line in read_dropped(filtered):
        examples = chosen.setdefault(line.reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(line)
    rows_by_shard: dict[str, set[int]] = {}
    for line in (line for lines in chosen.values() for line in lines):
        rows_by_shard.setdefault(line.shard, set()).add(line.row)
    texts = {
        (shard, row): document.text[:_EXAMPLE_CHARACTERS]
        for shard, rows in rows_by_shard.items()
        for row, document in enumerate(itertools.islice(_documents(normalized, shard), max(rows) + 1))
        if row in rows
    }
    return {
        reason: [Example(line.doc_id, str(line), texts[line.shard, line.row]) for line in lines]
        for reason, lines in sorted(chosen.items())
    }


def build_report(
    profile: Profile, ledgers: Sequence[Mapping[str, Any]], licences: LicenceTable, attribution: str
) -> dict[str, Any]:
    """Return the parts of `report.json` that every corpus has."""
    return {
        "schema": "corpusmill/report/1",
        "steps": {"in the sources": _totals(sum_all(profile))},
        "totals": _totals(sum_all(profile)),
        "sources": _count_by(profile, "source"),
        "domains": _count_by(profile, "domain"),
        "licences": {
            tag: counts | {"licence": msgspec.to_builtins(licences[tag])}
            for tag, counts in _count_by(profile, "license_tag").items()
        },
        "groups": to_json(profile),
        "ledgers": ledgers,
        "attribution": attribution,
    }


def _count_by(profile: Profile, field: str) -> dict[str, Any]:
    sums = sum_by(profile, field)
    return {name: _totals(counts) | {"lengths": list(counts.lengths)} for name, counts in sums.items()}


def _totals(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in ("documents", "characters", "utf8_bytes", "tokens")}


def preview_report(report: Artifact) -> list[dict[str, str]]:
    """Preview the documents, tokens and bytes of each source."""
    sources = _REPORT_FILE.read(report.path(REPORT_JSON))["sources"]
    return [
        {"source": name, **{key: f"{counts[key]:,}" for key in ("documents", "tokens", "utf8_bytes")}}
        for name, counts in sources.items()
    ]
