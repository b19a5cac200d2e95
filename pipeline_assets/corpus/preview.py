"""What a person would want to see first of artifacts that have no rows of their own."""

from typing import Any

from pipeline_assets.corpus.html_page import REPORT_JSON
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.files import REBUILD, OwnFile

Rows = list[dict[str, str]]
_SHOWN_ROWS = 5
_REPORT_FILE: OwnFile[dict[str, Any]] = OwnFile("report", 256 << 20, REBUILD, dict[str, Any])


def preview_inputs(raw: Artifact) -> Rows:
    """The first files of a raw source."""
    files = raw.manifest.identity.inputs[:_SHOWN_ROWS]
    return [{"file": file["name"], "bytes": f"{file['bytes']:,}", "digest": file["digest"]} for file in files]


def preview_report(report: Artifact) -> Rows:
    """What each source holds."""
    sources = _REPORT_FILE.read(report.path(REPORT_JSON))["sources"]
    return [
        {"source": name, **{key: f"{counts[key]:,}" for key in ("documents", "tokens", "utf8_bytes")}}
        for name, counts in sources.items()
    ]


def preview_packed(packed: Artifact) -> Rows:
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


def preview_token_shards(shards: Artifact) -> Rows:
    """What licences its tokens have, the most frequent first."""
    counts = shards.manifest.identity.counts
    by_licence = sorted(counts["license_tokens"].items(), key=lambda item: (-item[1], item[0]))
    return [
        {"licence": tag, "of the tokens": f"{tokens / counts['tokens']:.2%}", "tokens": f"{tokens:,}"}
        for tag, tokens in by_licence[:_SHOWN_ROWS]
    ]


def preview_selection(selection: Artifact) -> Rows:
    """The first shards of a text manifest."""
    shards = selection.manifest.identity.decisions["shards"][:_SHOWN_ROWS]
    return [
        {"shard": shard["path"], "documents": f"{shard['rows']:,}", "sha256": shard["content_sha256"]}
        for shard in shards
    ]
