"""Report on a corpus of several sources: contents, ledgers and attribution.

Files: `report.json`, `report.html` with the same content, and `ATTRIBUTION` for the licences that require it. The
build fails if two sources share a doc_id.

In `report.json`, `tokens` are exact counts, and `estimated_tokens` are estimates from a sample (see `token_sample`).
Without a tokenizer, only the packed set has token counts.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.decontamination.recipe import summarize_decontamination
from pipeline_assets.corpus.dedup.decision import read_groups
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.evidence import Example, count_funnel, draw_examples, draw_near_duplicates
from pipeline_assets.corpus.first_repeat import find_first_repeat
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.licences import LicenceTable, attribution_text, licence_table
from pipeline_assets.corpus.packing.summary import summarize_packed
from pipeline_assets.corpus.pages import REPORT_JSON, format_value, value_at, write_page, write_report
from pipeline_assets.corpus.profile import (
    Profile,
    ProfileShard,
    join_profiles,
    profile_shard,
    sum_profile,
    sum_profile_by,
)
from pipeline_assets.corpus.readers.column_recipe import ID_COLUMN_FIX
from pipeline_assets.corpus.report_sizes import describe_estimates, kept_sizes, packed_token_counts, profile_size
from pipeline_assets.corpus.sealed_shards import document_shards
from pipeline_assets.corpus.token_sample import SamplingRule
from pipeline_assets.corpus.tokens.encode import warm_up_tokenizer
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.stage import WarmUp, no_warm_up
from pipeline_assets.spine.staging import StagingDir

REPORT_STAGE = StageVersion("report", 12)
ATTRIBUTION_FILE = "ATTRIBUTION"
_REPORT_FORMAT: MetadataFormat[dict[str, Any]] = MetadataFormat("report", 256 << 20, REBUILD, dict[str, Any])


@dataclass(frozen=True)
class SourceArtifacts:
    """Artifacts of one source; `filtered` is None if the recipe filters nothing."""

    source: str
    normalized: Artifact
    filtered: Artifact | None

    @property
    def corpus(self) -> Artifact:
        """Artifact with the source's final documents."""
        return self.filtered or self.normalized

    @property
    def sampling_rule(self) -> SamplingRule:
        """Rule that samples the final documents."""
        counts = self.corpus.manifest.identity.counts
        return SamplingRule.for_size(counts["documents"], counts["text_bytes"])


def write_corpus_report(
    staging: StagingDir,
    sources: Sequence[SourceArtifacts],
    tokenizer: HarmonyRecipe | None,
    settings: RunSettings,
    deduplicated: Artifact | None,
    decontaminated: Artifact | None,
    packed: Artifact | None,
) -> BuildResult:
    """Write `report.json` and `ATTRIBUTION`.

    `report.html` is written later, because it quotes the manifest. `deduplicated`, `decontaminated` and `packed`
    contain all sources; if one of them is None, the report omits its section. Without a tokenizer, no tokens are
    counted. Raise InputError if two sources share a doc_id.
    """
    profile = _profile_sources(staging, sources, tokenizer, settings)
    ledgers = [ledger for artifacts in sources for ledger in _ledger_entries(artifacts)]
    tags = {
        source: sorted({group.license_tag for group in profile if group.source == source})
        for source in sum_profile_by(profile, "source")
    }
    attribution = attribution_text(licence_table(), tags)
    report = build_report(profile, ledgers, licence_table(), attribution)
    per_source = {step: [getattr(artifacts, step) for artifacts in sources] for step in ("normalized", "filtered")}
    joint_steps = {"deduplicated": [deduplicated], "decontaminated": [decontaminated], "packed": [packed]}
    report["funnel"] = count_funnel({**per_source, **joint_steps})
    scored = [source for source in sources if source.filtered and "scored" in source.filtered.manifest.identity.counts]
    if scored:
        report["scores"] = {artifacts.source: _summarize_scores(artifacts.corpus) for artifacts in scored}
    joint = [corpus for corpus in (deduplicated, decontaminated) if corpus is not None]
    packed_tokens = packed_token_counts(packed, joint[-1:] or [artifacts.corpus for artifacts in sources], tokenizer)
    has_scaled_tokens = False
    exact = {"tokens": sum(packed_tokens.values())} if packed_tokens else {}  # tokens of the last step before packing
    if exact and not joint:
        report["totals"].pop("estimated_tokens", None)
        report["totals"] |= exact
    if deduplicated is not None:
        counts = deduplicated.manifest.identity.counts
        duplicates = {name: counts[name] for name in ("by_source", "comparisons")}
        report["duplicates"] = duplicates | {
            "groups": read_groups(deduplicated),
            "near": draw_near_duplicates(deduplicated, {artifacts.source: artifacts.corpus for artifacts in sources}),
        }
        tokens = exact if decontaminated is None else {}
        report["steps"]["without duplicates"] = {"documents": counts["documents"], **tokens}
    if decontaminated is not None:
        kept = kept_sizes(decontaminated, profile, packed_tokens)
        report["decontamination"] = summarize_decontamination(decontaminated) | {"kept": kept}
        report["steps"]["without items of evaluation sets"] = kept["totals"]
        has_scaled_tokens = "estimated_tokens" in kept["totals"]
    if packed is not None:
        report["packed"] = summary = summarize_packed(packed)
        used = sum(source["documents"] - source["unused_documents"] for source in summary["by_source"].values())
        report["steps"][f"packed, {summary['rows']:,} rows"] = {"documents": used, "tokens": summary["tokens"]}
    report |= describe_estimates(profile, has_scaled_tokens)
    attributed = staging.write(ATTRIBUTION_FILE, (attribution.rstrip("\n") + "\n").encode())
    totals = report["totals"] | {"text_bytes": report["totals"]["utf8_bytes"]}
    counts = {key: totals[key] for key in ("documents", "tokens", "estimated_tokens", "text_bytes") if key in totals}
    return BuildResult([write_report(staging, report), attributed], counts, {}, write_page=write_page)


def _profile_sources(
    staging: StagingDir, sources: Sequence[SourceArtifacts], tokenizer: HarmonyRecipe | None, settings: RunSettings
) -> Profile:
    """Return the profile of all sources; raise InputError if two share a doc_id."""
    owners = [(artifacts, shard) for artifacts in sources for shard in document_shards(artifacts.corpus)]
    shards = [
        ProfileShard(f"{number:05d}", shard.path, shard.file, shard.rows, artifacts.sampling_rule)
        for number, (artifacts, shard) in enumerate(owners)
    ]
    file = None if tokenizer is None else TokenizerFile(tokenizer, settings.vocabulary)
    writes_ids = len(sources) > 1  # a source's own ids are unique since it was normalized
    work = functools.partial(profile_shard, tokenizer=file, writes_ids=writes_ids)
    warm_up: WarmUp = no_warm_up if file is None else functools.partial(warm_up_tokenizer, file, 0)
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    receipts = list(run_stage("profile", work, shards, staging, settings, warm_up))
    if writes_ids:
        _raise_if_ids_shared([staging.path(receipt.files[0].path) for receipt in receipts], owners)
    return join_profiles(receipts)


def _raise_if_ids_shared(id_files: Sequence[Path], shards: Sequence[tuple[SourceArtifacts, DocumentShard]]) -> None:
    """Raise InputError if sources share a doc_id; `id_files` has each shard's ids."""
    repeat = find_first_repeat(id_files)
    if repeat is None:
        return
    artifacts, shard = shards[repeat.shard]
    doc_id = next(itertools.islice(read_structs(shard.file, Document), repeat.row, None)).doc_id
    first = next(
        other.source
        for other, other_shard in shards
        if any(document.doc_id == doc_id for document in read_structs(other_shard.file, Document))
    )
    more = f"; {repeat.repeats - 1:,} more ids are in two sources" if repeat.repeats > 1 else ""
    what = f"doc_id {doc_id!r} is in {first} and in {artifacts.source} ({shard.path} row {repeat.row}){more}"
    raise InputError(what, artifacts.corpus.folder, f"remove one of these sources, or {ID_COLUMN_FIX}")


def _ledger_entries(artifacts: SourceArtifacts) -> Iterator[dict[str, Any]]:
    for step, artifact in (("normalized", artifacts.normalized), ("filtered", artifacts.filtered)):
        if artifact is not None:
            examples = draw_examples(artifact, artifacts.normalized)
            yield ledger_entry(artifacts.source, step, artifact.manifest.identity.ledger, examples)


def ledger_entry(source: str, step: str, ledger: Ledger, examples: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
    """Return a step's ledger for one source as JSON, with example rows by reason."""
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


def _summarize_scores(filtered: Artifact) -> dict[str, Any]:
    """Summarize the scores of a source's documents: share kept, and counts by score."""
    identity = filtered.manifest.identity
    [(column, bins)], section = identity.counts["scored"].items(), identity.recipe["filters"]["score"]
    scored, dropped = sum(bins), identity.ledger.dropped.get(f"score:{column}", 0)
    from_score = {f"{number / len(bins):.2f}": sum(bins[number:]) for number in range(len(bins))}
    shares = {score: {"documents": count, "share": count / max(scored, 1)} for score, count in from_score.items()}
    kept_share = (scored - dropped) / max(scored, 1)
    return {"column": column, "min_score": section["min_score"], "kept_share": kept_share, "bins": bins, "from": shares}


def build_report(
    profile: Profile, ledgers: Sequence[Mapping[str, Any]], licences: LicenceTable, attribution: str
) -> dict[str, Any]:
    """Return the sections of `report.json` that every report contains."""
    totals = profile_size(sum_profile(profile))
    return {
        "schema": "corpusmill/report/1",
        "steps": {"in the sources": totals},
        "totals": totals,
        "sources": _sizes_by_field(profile, "source"),
        "domains": _sizes_by_field(profile, "domain"),
        "licences": {
            tag: size | {"licence": msgspec.to_builtins(licences[tag])}
            for tag, size in _sizes_by_field(profile, "license_tag").items()
        },
        "groups": [asdict(group) | profile_size(counts, with_lengths=True) for group, counts in profile.items()],
        "ledgers": ledgers,
        "attribution": attribution,
    }


def _sizes_by_field(profile: Profile, field: str) -> dict[str, Any]:
    return {name: profile_size(counts, with_lengths=True) for name, counts in sum_profile_by(profile, field).items()}


def preview_report(report: Artifact) -> list[dict[str, str]]:
    """Preview the documents, tokens and bytes of each source; ≈ marks an estimate."""
    sources, keys = _REPORT_FORMAT.read(report.path(REPORT_JSON))["sources"], ("documents", "tokens", "utf8_bytes")
    return [
        {"source": name} | {key: str(format_value(value)) for key in keys if (value := value_at(size, key)) is not None}
        for name, size in sources.items()
    ]
