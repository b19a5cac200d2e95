"""Notes that are stored with the rows of a source.

README.md        source, commit, size, date of retrieval; not part of the digest, because it contains a date
DATASET_CARD.md  the dataset's card at the commit; only for hub datasets
LICENSES.md      for each licence: number of documents, bytes of text, and terms
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline_assets.corpus.document_shards import SHARDS_FOLDER
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.licences import LicenceTable
from pipeline_assets.corpus.markdown import code, escape, markdown_table
from pipeline_assets.corpus.normalize.sources import FileSource, HubSource
from pipeline_assets.corpus.partial_documents import LicensedText
from pipeline_assets.corpus.readers.hub_configs import read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.staging import StagingDir

YES_NO = {True: "yes", False: "no", None: "not known"}
README_FILE, CARD_FILE, LICENSES_FILE = "README.md", "DATASET_CARD.md", "LICENSES.md"
_SOURCE_KEYS = ("config", "split", "files", "rules", "language", "amount", "seed", "columns")
_NO_CARD = "The dataset has no card at this commit.\n"


def add_source_notes(
    staging: StagingDir,
    row_build: BuildResult,
    source: HubSource | FileSource,
    raw_pin: Manifest,
    licences: LicenceTable,
    hub: HubFiles | None,
) -> BuildResult:
    """Write the notes of a source; return `row_build` with the notes added.

    The new count `licences` has the number of documents and bytes of text by licence tag. `raw_pin` is the manifest
    that lists the source's files. `hub` is needed only for hub datasets.
    """
    documents, text_bytes = Counter[str](), Counter[str]()
    for file in row_build.files:
        if file.path.startswith(f"{SHARDS_FOLDER}/"):
            for document in read_structs(staging.path(file.path), LicensedText):
                documents[document.license_tag] += 1
                text_bytes[document.license_tag] += len(document.text.encode())
    license_counts = {tag: {"documents": documents[tag], "text_bytes": text_bytes[tag]} for tag in sorted(documents)}
    files = [staging.write(LICENSES_FILE, _licence_page(source.source, license_counts, licences).encode())]
    if isinstance(source, HubSource) and hub is not None:
        card = read_card(hub, source.dataset, source.revision) or _NO_CARD
        files.append(staging.write(CARD_FILE, card.encode()))
    readme = staging.write(README_FILE, _readme(source, raw_pin, row_build, license_counts, licences).encode())
    return replace(
        row_build,
        files=[*row_build.files, *files],
        counts={**row_build.counts, "licences": license_counts},
        labels=[*row_build.labels, readme],
    )


def _readme(
    source: HubSource | FileSource,
    raw_pin: Manifest,
    row_build: BuildResult,
    license_counts: Mapping[str, Mapping[str, int]],
    licences: LicenceTable,
) -> str:
    ledger, facts = row_build.counts["ledger"], [("retrieved", str(raw_pin.provenance["started_at_utc"])[:10])]
    if isinstance(source, HubSource):
        facts = [("dataset", source.dataset), ("revision", source.revision), ("URL", _hub_url(source)), *facts]
    facts += [(name, text) for name in _SOURCE_KEYS if (text := _format_value(source.content().get(name)))]
    files = sum(1 for entry in raw_pin.identity.inputs if not isinstance(source, HubSource) or "row_groups" in entry)
    lines = [
        f"# {escape(source.source)}",
        "",
        f"Rows of {pluralize(files, 'file')} as Documents, a line each, in `shards/`: "
        f"{row_build.counts['documents']:,} of {ledger['in']:,} rows, "
        f"{row_build.counts['text_bytes']:,} bytes of text. "
        f"{describe_redistribution(license_counts, licences)}",
        "",
        *markdown_table(["", ""], [(name, code(value)) for name, value in facts]),
        "",
        "Written from `manifest.json`, which lists every file by its hash.",
    ]
    return "\n".join(lines) + "\n"


def _format_value(value: Any) -> str:
    """Format a recipe value as text; omit a dict's keys that have no value."""
    match value:
        case dict():
            return ", ".join(f"{name}: {text}" for name, item in value.items() if (text := _format_value(item)))
        case list():
            return ", ".join(map(_format_value, value))
        case int():
            return f"{value:,}"
    return str(value or "")


def _hub_url(source: HubSource) -> str:
    from huggingface_hub import constants  # load the hub's client only if needed

    return f"{constants.ENDPOINT}/datasets/{source.dataset}/tree/{source.revision}"


def _licence_page(source: str, license_counts: Mapping[str, Mapping[str, int]], licences: LicenceTable) -> str:
    head = ["licence", "name", "documents", "bytes of text", "may be passed on", "asks for names", "share alike"]
    rows = list[list[str | int]]()
    for tag, counts in license_counts.items():
        licence = licences[tag] if tag in licences else licences["unknown"]
        name = escape(licence.name) if licence.url is None else f"[{escape(licence.name)}]({licence.url})"
        answers = [YES_NO[answer] for answer in (licence.redistributable, licence.attribution, licence.share_alike)]
        rows.append([code(tag), name, counts["documents"], counts["text_bytes"], *answers])
    lines = [
        f"# Licences of {escape(source)}",
        "",
        "Each document carries its own in `license_tag`, and in `meta.license_evidence` what that rests on.",
        "",
        *markdown_table(head, rows),
    ]
    return "\n".join(lines) + "\n"


def describe_redistribution(license_counts: Mapping[str, object], licences: LicenceTable) -> str:
    """Return a sentence on whether the counted licences allow redistribution."""
    answers = {licences[tag].redistributable if tag in licences else None for tag in license_counts}
    if answers == {True}:
        return "All of it may be passed on."
    return "Some of it may not be passed on." if False in answers else "Of some it is not known if it may be passed on."
