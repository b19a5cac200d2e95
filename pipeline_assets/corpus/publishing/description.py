"""Description of an artifact by facts, each with its origin."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_assets.corpus.licences import licence_table, tag_or_unknown
from pipeline_assets.corpus.publishing.dataset_card import remove_empty_values
from pipeline_assets.spine.artifact import Artifact, member_digests
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.lineage import Chain
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest, StoredFile
from pipeline_assets.spine.manifest_schema import total_count
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.sealed_folder import require_manifest

NOT_ANSWERED = "not answered"
DATASETS_URL = "https://huggingface.co/datasets"
# Second words of kinds.
_SOURCE_KINDS, _TEXTLESS_KINDS = {"raw", "fineweb_edu_snapshot"}, {"tokenizer", "evaluation", "model"}
_SIZE_COUNTS = ("documents", "pairs", "rows", "tokens", "text_bytes")
_TOKEN_RANGES = ((10**9, "less than 1 billion tokens"), (10**13, "1 billion to 10 trillion tokens"))
_SELECTION_KEYS = ("config", "split", "files", "rules", "language", "amount", "seed")
_SETTING_PATHS = (
    ("languages", "recipe", "language"),
    ("languages", "recipe", "filters", "language", "keep"),
    ("languages", "recipe", "sample", "languages", "src"),
    ("languages", "recipe", "sample", "languages", "tgt"),
    ("generated", "recipe", "generated_by"),
    ("periods", "decisions", "dumps"),
    ("dump_dates", "recipe", "dump_date"),
    ("opt_outs", "recipe", "filters", "blocklist"),
    ("masking", "recipe", "filters", "masking"),
    ("processing", "recipe", "filters"),
)
"""Properties that a setting states, each with the setting's path in the identity."""


@dataclass(frozen=True)
class Fact:
    """Value of a property, read from `origin`: a manifest field, column or answer."""

    value: str
    origin: str
    detail: str = ""
    link: str = ""


@dataclass(frozen=True)
class Description:
    """Files of an artifact, facts by property, and answers of the publisher."""

    manifest: Manifest
    files: Sequence[StoredFile]
    facts: Mapping[str, Iterable[Fact]]
    answers: Mapping[str, str] = field(default_factory=dict)

    def get(self, property_name: str) -> list[Fact]:
        """Return the publisher's answer about a property, or its facts if unanswered.

        If neither exists, return a single fact with the value NOT_ANSWERED.
        """
        origin = f"answers: {property_name}"
        if property_name in self.answers:
            return [Fact(self.answers[property_name], origin)]
        return list(self.facts.get(property_name, ())) or [Fact(NOT_ANSWERED, origin)]


def stored_files(folder: Path) -> Iterator[StoredFile]:
    """Yield the manifest and the stored files of an artifact, then of each member."""
    for name in ("", *(f"{member}/" for member in member_digests(require_manifest(folder)))):
        path = folder / name / MANIFEST_FILE
        yield StoredFile(name + MANIFEST_FILE, path.stat().st_size, file_sha256(path))
        for file in require_manifest(path.parent).storage:
            yield StoredFile(name + file.path, file.bytes, file.sha256)


def licence_fact(licence: str | None, detail: str, origin: str) -> Fact:
    """Return a fact: the SPDX identifier of a licence; if missing, `LicenseRef-<tag>`."""
    entry = licence_table()[tag_or_unknown(licence)]
    return Fact(entry.spdx or f"LicenseRef-{entry.tag}", origin, detail, entry.url or "")


def dataset_fact(name: str, revision: str | None, origin: str, detail: str = "") -> Fact:
    """Return a fact on a hub dataset, or on the folder `name` if `revision` is None."""
    if revision is None:
        return Fact(f"folder {name}", origin, detail)
    return Fact(f"{name}@{revision}", origin, detail, f"{DATASETS_URL}/{name}/tree/{revision}")


def text_artifacts(chain: Chain) -> Iterator[Artifact]:
    """Yield a chain's artifact, then upstream artifacts with text, breadth first."""
    by_digest = {artifact.manifest.digest: artifact for artifact in chain.artifacts}
    waiting = [*by_digest][:1]
    while waiting:
        artifact = by_digest.pop(waiting.pop(0), None)
        if artifact is not None:
            yield artifact
            upstream = artifact.manifest.identity.upstream
            waiting += [entry["digest"] for entry in upstream if entry["name"].split("/")[1] not in _TEXTLESS_KINDS]


def chain_facts(chain: Chain) -> dict[str, Iterable[Fact]]:
    """Return facts by property, from the manifests of an artifact and of its inputs."""
    steps = [artifact.manifest for artifact in text_artifacts(chain)]
    manifest, counts = steps[0], steps[0].identity.counts
    only = manifest.identity.recipe.get("source")  # set if the artifact has the rows of one source
    sources = [step for step in steps if step.kind.rpartition("/")[2] in _SOURCE_KINDS]
    others = {step.identity.recipe.get("source") for step in sources} - {only} if only else set()
    steps, sources = (
        [step for step in part if step.name.rpartition("/")[2] not in others] for part in (steps, sources)
    )
    sizes = {name: total for name in _SIZE_COUNTS if (total := total_count(counts.get(name))) is not None}
    sizes = {name: total for name, total in sizes.items() if total or name != "tokens"}  # 0: rows did not state theirs
    size = ", ".join(f"{total:,} {name.replace('_', ' ')}" for name, total in sizes.items())
    title, size_origin = f"{manifest.kind} {manifest.name}", "identity.counts"
    known = {artifact.manifest.digest for artifact in chain.artifacts}
    missing = [(step, entry) for step in steps for entry in step.identity.upstream if entry["digest"] not in known]
    lost = [
        _fact(step, "identity.inputs", f"missing input {entry['name']}", entry["digest"]) for step, entry in missing
    ]
    facts = {
        "name": [Fact(title, "kind, name")],
        "digest": [Fact(manifest.digest, "digest")],
        "modality": [Fact("text", "kind")],
        "size": [Fact(size, size_origin)] if size else [],
        "summary": [Fact(f"{title}, built by corpusmill: {size or 'size not counted'}", f"kind, name, {size_origin}")],
        "date_published": _build_time_facts([manifest]),
        "acquired": _build_time_facts(sources)[-1:],
        "sources": [_source_fact(step) for step in sources] + lost,
        "licences": _licence_facts(manifest, [] if lost else sources),
    }
    if "tokens" in sizes:
        fitting = (text for limit, text in _TOKEN_RANGES if sizes["tokens"] < limit)
        facts["size_range"] = [Fact(next(fitting, "more than 10 trillion tokens"), "identity.counts.tokens")]
    for name, fact in _stated_settings(steps):
        facts.setdefault(name, []).append(fact)
    # Steps may state the same setting, but equal counts are of different rows.
    distinct = {name: [*{(fact.value, fact.detail): fact for fact in found}.values()] for name, found in facts.items()}
    ledgers = [fact for step in reversed(steps) for fact in _ledger_facts(step)]
    return distinct | {"processing": [*ledgers, *distinct.get("processing", ())]}


def _stated_settings(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Fact]]:
    """Yield (property, fact) for each value that manifests have at `_SETTING_PATHS`."""
    for name, *keys in _SETTING_PATHS:
        for step in manifests:
            value = remove_empty_values(section_at(vars(step.identity), *keys[:-1]).get(keys[-1]))
            if name == "periods":  # names with a year; others are folders
                value = [dump for dump in value or () if sum(map(str.isdigit, dump)) > 3]
            for item in value if isinstance(value, list) else [value] if value else []:
                text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
                yield name, _fact(step, f"identity.{'.'.join(keys)}", text)


def merge_sources(manifest_facts: Iterable[Fact], row_facts: Iterable[Fact]) -> list[Fact]:
    """Return `manifest_facts`, then the `row_facts` whose values are new."""
    known = list(manifest_facts)
    values = {fact.value for fact in known}
    return [*known, *(fact for fact in row_facts if fact.value not in values)]


def _fact(manifest: Manifest, field_path: str, value: str, detail: str = "") -> Fact:
    return Fact(value, f"{manifest.kind} {manifest.name}: {field_path}", detail)


def _build_time_facts(manifests: Iterable[Manifest]) -> list[Fact]:
    path = "provenance.started_at_utc"
    times = [(str(manifest.provenance.get("started_at_utc", "")), manifest) for manifest in manifests]
    return [_fact(manifest, path, time) for time, manifest in sorted(times, key=lambda item: item[0]) if time]


def _source_fact(manifest: Manifest) -> Fact:
    """Return a fact about a source, with the size of its files and its selection keys."""
    recipe, sizes = manifest.identity.recipe, [entry["bytes"] for entry in manifest.identity.inputs]
    selection = remove_empty_values({key: recipe[key] for key in _SELECTION_KEYS if key in recipe})
    detail = f"files: {len(sizes):,}, bytes: {sum(sizes):,}, selection: {json.dumps(selection, ensure_ascii=False)}"
    name, origin = recipe.get("dataset") or manifest.name.rpartition("/")[2], f"{manifest.kind} {manifest.name}"
    return dataset_fact(name, recipe.get("revision"), f"{origin}: identity.inputs, identity.recipe", detail)


def _licence_facts(manifest: Manifest, source_manifests: Sequence[Manifest]) -> list[Fact]:
    """Return facts on an artifact's licences, from the token counts in its manifest.

    Without these counts, licences come from the key `license_tag` of the sources' recipes. In this case, the list is
    empty if any of these recipes states no licence or reads licences from a column.
    """
    counts, tokens = manifest.identity.counts, Counter[str]()
    for part in (counts, *counts.get("by_source", {}).values()):
        tokens.update(part.get("license_tokens", {}))
    if tokens:
        origin = f"{manifest.kind} {manifest.name}: identity.counts, license_tokens"
        return [licence_fact(tag, f"{count:,} tokens", origin) for tag, count in sorted(tokens.items())]
    origin = "identity.recipe.license_tag"
    recipes = [(f"{step.kind} {step.name}: {origin}", step.identity.recipe) for step in source_manifests]
    if any(not recipe.get("license_tag") or section_at(recipe, "columns").get("license") for _, recipe in recipes):
        return []
    return [licence_fact(recipe["license_tag"], "", origin) for origin, recipe in recipes]


def _ledger_facts(manifest: Manifest) -> Iterator[Fact]:
    if "ledger" in manifest.identity.counts:
        ledger = manifest.identity.ledger
        reasons = ", ".join(f"{reason or fate} {count:,}" for fate, reason, count in ledger.other_outcomes() if count)
        kept = f"{ledger.out:,} of {ledger.rows_in:,} rows kept by {manifest.identity.stage}"
        yield _fact(manifest, "identity.counts.ledger", kept, reasons)
