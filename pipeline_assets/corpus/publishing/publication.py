"""Content of the dataset repo that publishes a sealed Nemotron artifact.

The repo has the artifact's files and manifest, a new card, and Croissant metadata. Of the manifest's provenance,
only the digest of the replaced artifact is published: the rest names machines and folders. Each candidate pool and
training subset is a config; other rows are the config `default`. The card repeats the terms that readers of the source
datasets must agree to.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.licences import UNKNOWN, tag_or_unknown
from pipeline_assets.corpus.markdown import code
from pipeline_assets.corpus.nemotron.pool_card import SHARED_ROWS_NOTE
from pipeline_assets.corpus.nemotron.schema import COLUMN_DESCRIPTIONS
from pipeline_assets.corpus.publishing.dataset_card import (
    CardContent,
    CardSource,
    CardSplit,
    collect_splits_and_sources,
    count_row_licences,
    dataset_card,
    group_by_config,
    split_names,
)
from pipeline_assets.corpus.publishing.description import (
    DATASETS_URL,
    Description,
    Fact,
    chain_facts,
    dataset_fact,
    licence_fact,
)
from pipeline_assets.corpus.publishing.forms import render_standard
from pipeline_assets.corpus.publishing.hub_metadata import DEFAULT_CONFIG
from pipeline_assets.corpus.publishing.hub_repo import HubRepo, UploadFile
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE, parse_card_metadata, read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring import scores, subsets
from pipeline_assets.corpus.scoring.subset_tokens import TOKENS_FOLDER
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Chain
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest, StoredFile

CROISSANT_FILE = "croissant.json"
_SCORES_KIND, _SUBSETS_KIND = "nemotron/nll_scores", "nemotron/training_subsets"
# Other kinds may quote rows too, but without the columns that state their datasets and licences.
ROW_KINDS = frozenset(
    f"nemotron/{step}"
    for step in ("normalized_shards", "hf_layout", "deduplicated", "candidate_pools", "nll_scores", "training_subsets")
)
_GATE_PREFIX = "extra_gated_"  # prefix of card keys with the terms for readers
_MAX_TERM_CHARACTERS = 2000
_VERIFY_SCRIPT = """import hashlib, json, pathlib, sys

folder = pathlib.Path(sys.argv[1])  # hf download REPOSITORY --repo-type dataset --local-dir FOLDER
wrong = []
try:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    identity = json.dumps(manifest["identity"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if "sha256:" + hashlib.sha256(identity.encode()).hexdigest() != DIGEST:
        wrong.append("manifest.json")
    for file in manifest["storage"]:
        path = folder / file["path"]
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
            wrong.append(file["path"])
except (OSError, ValueError, KeyError) as error:
    wrong.append(f"manifest.json ({error})")
sys.exit(f"not as published: {', '.join(wrong)}" if wrong else 0)
"""


def append_card_hash(text: str) -> str:
    """Append the sha256 of a card as a hidden line, so that edits can be detected."""
    return f"{text}<!-- sha256 of this card above: {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def is_edited(card: str) -> bool:
    """Check whether a card's hash line is missing or wrong; False for an empty card."""
    text, _, _ = card.rpartition("<!-- sha256 of this card above: ")
    return bool(card) and append_card_hash(text) != card


@dataclass(frozen=True)
class Publication:
    """Files of a dataset repo, with the splits and terms that its card states."""

    artifact: Artifact
    files: Mapping[str, UploadFile]  # by path, including card and manifest
    splits: Sequence[CardSplit]  # with rows; may be empty
    gate: str | None  # how readers get access: `auto`, `manual` or None, the strictest gate of the source datasets
    agreement: Mapping[str, Any]  # card keys with the terms for readers

    @property
    def configs(self) -> dict[str, list[str]]:
        """Split names of each config, in the form that the hub allows."""
        names, groups = split_names(self.splits), group_by_config(self.splits)
        return {config: [names[split.name] for split in splits] for config, splits in groups.items()}

    def describe_terms(self) -> Iterator[str]:
        """Yield log lines about the licences of rows and the terms for readers."""
        for licence, rows in sorted(count_row_licences(self.splits).items(), key=lambda item: -item[1]):
            yield f"licence {licence or 'not stated'}: {rows:,} row{'' if rows == 1 else 's'} of all configs"
        if self.gate is not None:
            yield f"readers must request access ({self.gate}), as for the source, and agree to:"
            for key, value in self.agreement.items():
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                yield from (f"  {line}" for line in f"{key}: {text}"[:_MAX_TERM_CHARACTERS].splitlines())


def prepare_publication(artifact: Artifact, repo: HubRepo, *, allow_unknown_licences: bool = False) -> Publication:
    """Collect the files of a publication and write its card.

    Raise UsageError if artifacts of this kind cannot be published, or if rows have unknown licences and
    `allow_unknown_licences` is false. Raise InputError if the hub no longer shows a source dataset.
    """
    if artifact.manifest.kind not in ROW_KINDS | {"nemotron/inventory"}:
        what = f"expected an artifact of Nemotron rows, got {artifact.manifest.kind}"
        raise UsageError(what, artifact.folder, "choose a folder of inventories, rows, pools, scores or subsets")
    splits, named = collect_splits_and_sources([artifact])
    columns = {**COLUMN_DESCRIPTIONS, **subsets.COLUMN_DESCRIPTIONS}
    if artifact.manifest.kind == _SCORES_KIND:
        splits, columns = [_read_scores_split(artifact)], scores.COLUMN_DESCRIPTIONS
    _check_licences(count_row_licences(splits), allow_unknown_licences, artifact)
    sources = [_add_card_metadata(source, repo.hub) for source in named]
    gates = {source.gate for source in sources} - {None}
    stored = [file for file in artifact.manifest.storage if file.path != CARD_FILE]
    items = {file.path: UploadFile(file.path, artifact.folder / file.path, file.bytes, file.sha256) for file in stored}
    agreement = _join_agreements([source.metadata or {} for source in sources])
    link = {key: value for key, value in artifact.manifest.provenance.items() if key == "replaces"}
    manifest, digest = replace(artifact.manifest, provenance=link, storage=stored), artifact.manifest.digest
    card = CardContent(
        title=repo.name.rpartition("/")[2],
        repository=repo.name,
        splits=splits,
        manifests=[manifest],
        sources=sources,
        agreement=agreement,
        column_descriptions=columns,
        notes=_config_notes(manifest.kind, splits, items),
        verification_script=_VERIFY_SCRIPT.replace("DIGEST", json.dumps(digest)).replace("REPOSITORY", repo.name),
    )
    sealed = UploadFile.from_bytes(MANIFEST_FILE, manifest.to_bytes())
    added = (
        sealed,
        UploadFile.from_bytes(CROISSANT_FILE, _croissant(card, manifest, [sealed, *items.values()]).encode()),
        UploadFile.from_bytes(CARD_FILE, append_card_hash(dataset_card(card)).encode()),
    )
    gate = None if not gates else "manual" if "manual" in gates else "auto"
    return Publication(artifact, items | {item.path: item for item in added}, splits, gate, agreement)


def _read_scores_split(artifact: Artifact) -> CardSplit:
    """Return the only split of a scores artifact; its rows have no dataset or licence."""
    with StoredParquet(artifact.path(scores.SCORES_FILE)) as file:
        schema, footer = file.schema_arrow.remove_metadata(), file.metadata
    split = CardSplit(DEFAULT_CONFIG, artifact.manifest.identity.recipe["split"], scores.SCORES_FILE, schema)
    split.add_file(footer, sum(file.bytes for file in artifact.manifest.storage))
    return split


def _join_agreements(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the values of each access term (`extra_gated_*`) over all cards."""
    terms: dict[str, list[Any]] = {}
    for key, value in (item for card in cards for item in card.items()):
        if str(key).startswith(_GATE_PREFIX) and value not in terms.setdefault(key, []):
            terms[key].append(value)
    return {key: _join_terms(values) for key, values in terms.items()}


def _join_terms(values: Sequence[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "\n\n".join(values)
    if all(isinstance(value, dict) for value in values):
        return {name: field for value in values for name, field in value.items()}
    return next(filter(None, values), values[0])


def _croissant(card: CardContent, manifest: Manifest, files: Sequence[UploadFile]) -> str:
    """Return the repo's Croissant metadata as JSON; equal content gives equal text."""
    licences, owner = count_row_licences(card.splits).items(), card.repository.partition("/")[0]
    facts = chain_facts(Chain(None, [Artifact(Path(), manifest)])) | {
        "url": [Fact(f"{DATASETS_URL}/{card.repository}", "name of the repository")],
        "creator": [Fact(owner, "name of the repository")],
        "licences": [licence_fact(licence, f"{rows:,} rows", "rows: meta_license") for licence, rows in licences],
        "sources": [dataset_fact(source.dataset, source.revision, "rows: dataset") for source in card.sources],
    }
    stored = [StoredFile(file.path, file.size, file.sha256) for file in files]
    return render_standard("croissant", Description(manifest, stored, facts)) + "\n"


def _check_licences(rows_by_licence: Mapping[str | None, int], allow_unknown: bool, artifact: Artifact) -> None:
    unknown = [licence for licence in rows_by_licence if tag_or_unknown(licence) == UNKNOWN]
    rows = sum(rows_by_licence[licence] for licence in unknown)
    if rows and not allow_unknown:
        names = sorted({repr((licence or "not stated")[:60]) for licence in unknown})
        subject = "1 row of all configs has" if rows == 1 else f"{rows:,} rows of all configs have"
        what = f"{subject} an unknown licence: {', '.join(names[:3])}"
        ways = "`allow_unknown_licences: true` in `publish` of the recipe, or --allow-unknown-licences"
        fix = f"state it in the column `license`, drop the rows by `refuse_licences`, or allow it: {ways}"
        raise UsageError(what, artifact.folder, fix)


def _add_card_metadata(source: CardSource, hub: HubFiles) -> CardSource:
    if source.revision is None:
        return source
    card = read_card(hub, source.dataset, source.revision)
    metadata = parse_card_metadata(card, f"{source.dataset}@{source.revision}:{CARD_FILE}")
    settings = HubRepo(source.dataset, hub).access_settings()
    if settings is None:
        fix = "use an HF_TOKEN with access, or set HF_ENDPOINT to its hub; the terms for its readers are needed"
        raise InputError("the hub no longer shows this dataset", source.dataset, fix)
    return replace(source, metadata=metadata, gate=settings["gated"] or None)


def _config_notes(kind: str, splits: Sequence[CardSplit], uploads: Mapping[str, UploadFile]) -> list[str]:
    if kind != _SUBSETS_KIND:
        return [SHARED_ROWS_NOTE, ""] if len(group_by_config(splits)) > 1 else []
    lines = ["Splits are named after the source dataset and split of their rows."]
    if any(path.startswith(f"{TOKENS_FOLDER}/") for path in uploads):
        files = ", ".join(
            code(f"{TOKENS_FOLDER}/CONFIG/{name}") for name in ("tokens.npy", "loss_mask.npy", "rows.parquet")
        )
        lines.append(
            f"The same rows as int32 token ids, with a mask of the tokens that count in the loss, are in {files};"
        )
        lines.append('read them with `numpy.load(path, mmap_mode="r")`. `rows.parquet` has the position of each row.')
    return [*lines, ""]
