"""Checks of artifacts against their recipes, for the pages of the systems."""

import contextlib
from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.corpus.document_sizes import OUTSIZED
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.packing.empty_sources import DEDUPLICATED_KIND
from pipeline_assets.corpus.readers.hub_configs import parse_card_metadata
from pipeline_assets.corpus.readers.source_formats import detect_format
from pipeline_assets.corpus.shards.source_notes import CARD_FILE
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.sealed_folder import require_manifest


def documents_have_licences(corpus: Artifact) -> Verdict:
    """Check that the licence of every document is known.

    A corpus without any known licence fails; a corpus with some unknown licences gets a warning. If the recipe sets
    `license_tag: unknown` and names no licence column or file, the check only warns: the recipe of a tokenizer or of
    token shards decides whether to use the source.
    """
    recipe, counted = corpus.manifest.identity.recipe, corpus.manifest.identity.counts["licences"]
    by_row = section_at(recipe, "columns").get("license") or recipe.get("license_files")
    is_accepted = recipe.get("license_tag") == UNKNOWN and not by_row
    unknown, documents = counted.get(UNKNOWN, {}).get("documents", 0), corpus.manifest.identity.counts["documents"]
    message = f"{documents - unknown:,} of {documents:,} documents have a known licence"
    return Verdict(not unknown, message, {"unknown": unknown}, is_minor=is_accepted or 0 < unknown < documents)


def licence_agrees_with_card(corpus: Artifact) -> Verdict:
    """Check that the dataset's card states no other licence than `license_tag`.

    Nothing is compared if rows state their own licences, or if the card states none, several or an unknown one.
    """
    recipe, stated = corpus.manifest.identity.recipe, None
    tag = UNKNOWN if section_at(recipe, "columns").get("license") else recipe.get("license_tag", UNKNOWN)
    if tag != UNKNOWN and any(file.path == CARD_FILE for file in corpus.manifest.storage):
        with contextlib.suppress(InputError):  # a card with invalid YAML states nothing
            stated = parse_card_metadata(corpus.path(CARD_FILE).read_text("utf-8"), CARD_FILE).get("license")
    if not isinstance(stated, str) or (card_tag := licence_table().match_tag(stated)) is None:
        return Verdict(True, "no licence to compare", applies=False)
    return Verdict(card_tag == tag, f"the dataset's card states {card_tag}, the recipe {tag}")


def no_document_is_outsized(corpus: Artifact) -> Verdict:
    """Check that no document exceeds both 1 MB and 100 times the median size."""
    largest = corpus.manifest.provenance.get(OUTSIZED)
    if largest is None:
        return Verdict(True, "no document above 1 MB is 100 times the median")
    why = f"{largest['doc_id']} ({largest['file']}, {largest['bytes']:,} bytes) is above 1 MB and 100 times "
    why += f"the median of about {largest['median_bytes']:,} bytes"
    recipe = corpus.manifest.identity.recipe
    if recipe.get("kind") == "local" and detect_format(largest["file"], recipe.get("text_endings", ())) == "text":
        why += "; if the file holds several documents, set `text_unit`"
    return Verdict(False, why, {"median_bytes": largest["median_bytes"], "largest_bytes": largest["bytes"]})


def removals_within_caps(deduplicated: Artifact, target: Target, root: Path) -> Verdict:
    """Check that no source lost more documents than `max_removed` allows."""
    return _evaluate_limit(deduplicated, target, "the recipe has no caps")


def model_is_expected(tokenizer: Artifact, target: Target, root: Path) -> Verdict:
    """Check that the tokenizer model has the sha256 that the recipe expects."""
    return _evaluate_limit(tokenizer, target, "the recipe expects no sha256")


def _evaluate_limit(artifact: Artifact, target: Target, message_without_limit: str) -> Verdict:
    if target.count_limit is None:
        return Verdict(True, message_without_limit, applies=False)
    return target.count_limit.evaluate(artifact.manifest)


def unknown_tokens_within_limit(tokens: Artifact, target: Target, root: Path) -> Verdict:
    """Check that encoding loses at most `max_unknown_fraction` of each source's text."""
    limit = target.count_limit if isinstance(target.count_limit, LossLimit) else LossLimit()
    return limit.evaluate(tokens.manifest)


def draws_are_deduplicated(packed: Artifact, target: Target, root: Path) -> Verdict:
    """Check that the packed documents come from a deduplicated corpus."""
    manifest = require_manifest(root / target.upstream[0].folder)
    if DEDUPLICATED_KIND in (manifest.kind, *(entry["name"] for entry in manifest.identity.upstream)):
        return Verdict(True, "the packed corpus is deduplicated")
    return Verdict(False, "the packed corpus is not deduplicated; a text may occur more often than its epochs")
