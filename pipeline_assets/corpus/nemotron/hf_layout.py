"""Stage `nemotron_hf_layout`: a dataset's normalized rows as a hub folder.

    data/<split>-00000-of-0000N.parquet   rows of every split
    <split>__tools_catalog.json           tool lists of the split
    README.md                             the dataset's card, if requested

Rows and tool lists are not copied: these files are links to the files of the splits. Rejects and dropped rows are not
included.
"""

from collections.abc import Sequence

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.reuse import sealed_files
from pipeline_assets.spine.staging import OutputFile, StagingDir

HF_LAYOUT_STAGE = StageVersion("nemotron_hf_layout", 2)
_SUMMED_COUNTS = ("documents", "tokens", "completion_tokens", "tool_calls")


def lay_out(staging: StagingDir, splits: Sequence[Artifact], card: str | None) -> BuildResult:
    """Link the rows and tool lists of splits into one folder.

    `card` is the text of README.md; if None, README.md is not written.
    """
    files = list[OutputFile]()
    for split in splits:
        sealed = sealed_files(split)
        for path in (file.path for file in split.manifest.identity.files):
            if path not in (REJECTS_FILE, DROPPED_FILE):
                durable.link(split.path(path), staging.path(path))
                files.append(sealed[path])
    labels = [] if card is None else [write_text(staging, CARD_FILE, card)]  # a label, because it states stored sizes
    counts = {name: sum(split.manifest.identity.counts[name] for split in splits) for name in _SUMMED_COUNTS}
    return BuildResult(files, {"splits": len(splits), **counts}, {}, labels=labels)
