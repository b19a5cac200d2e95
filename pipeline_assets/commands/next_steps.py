"""Next steps after a build, as commands that show the result."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.commands.terminal import format_command
from pipeline_assets.corpus.pages import REPORT_HTML
from pipeline_assets.spine.artifact import Artifact, read_manifest


def next_steps(targets: Sequence[Target], root: Path) -> Iterator[str]:
    """Yield the lines to print after a build: last report, loader and three commands.

    The loader is a line of Python for the last packed set. If no artifact has rows, yield only the report.
    """
    from pipeline_assets.corpus.dropped_rows import dropped_rows

    sealed = [(target.kind, root / target.folder, read_manifest(root / target.folder)) for target in targets]
    built = [(kind, Artifact(folder, manifest)) for kind, folder, manifest in sealed if manifest is not None]
    reports = [artifact.folder / REPORT_HTML for _, artifact in built if (artifact.folder / REPORT_HTML).is_file()]
    if reports:
        yield f"report  {reports[-1]}"
    stores = [
        (kind.row_store_class, artifact)
        for kind, artifact in built
        if kind.row_store_class is not None and any(file.rows for file in artifact.manifest.identity.files)
    ]
    if not stores:
        return
    last = stores[-1][1].folder
    # The rejects of files come last, because filters and comparisons drop rows that seem usable.
    by_loss = sorted(stores, key=lambda entry: (entry[0].reads_sources, -_lost_row_count(entry[1])))
    candidates = (artifact for _, artifact in by_loss if _lost_row_count(artifact))
    lossy = next((artifact for artifact in candidates if any(dropped_rows(artifact))), None)
    if packed := [artifact.folder for kind, artifact in built if kind.name == "stage_a/packed"]:
        hint = "needs torch: docs/your_data.md#a-training-loop"
        yield f'batches from corpusmill import loader; loader("{packed[-1]}", batch=8)  # {hint}'
    yield "next steps:"
    yield f"  {format_command('dropped', lossy.folder) if lossy else format_command('verify', last, '--upstream')}"
    yield f"  {format_command('peek', last)}"
    yield f"  {format_command('trace', last, '--row', 0)}"


def _lost_row_count(artifact: Artifact) -> int:
    identity = artifact.manifest.identity
    return identity.ledger.total_dropped + identity.ledger.total_rejected if "ledger" in identity.counts else 0
