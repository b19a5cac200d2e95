"""The smallest system: text files of a folder, and their lines in capitals."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from pipeline_assets.build.builders import Job, file_builder, input_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK
from pipeline_assets.build.pins.source_pin import pin_inputs
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.rows.file_rows import FileRows, RowSchema
from pipeline_assets.build.rows.row_values import DisplayNames
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, check_listed_files, input_folder
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import run_stage
from pipeline_assets.spine.ledger import Ledger, dropped_key
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingView, total_counts


# 1. The recipe: every setting that changes bytes, and the artifacts that it requests.
class ToyRecipe(Recipe):
    system: Literal["toy"]
    path: str
    mark: str

    def final_targets(self) -> list[Target]:
        folder = SourceFolder(Path(self.path), ("*.txt",))
        raw = RAW.target(self.name, {"files": ["*.txt"]}, external_inputs=folder)
        return [LOUD.target(self.name, {"mark": self.mark}, [raw])]


# 2. The kernel: writes one shard and returns its receipt; the engine calls it in workers.
@dataclass(frozen=True)
class TextShard:
    name: str
    file: SourceFile
    mark: str
    rows: int = 0  # 0: the engine does not search this shard for a poison row


def write_capitals(shard: TextShard, window: Window, folder: StagingView) -> Receipt:
    lines = list(enumerate(shard.file.path.read_text().splitlines()))
    rows: list[dict[str, object]] = [
        {"id": f"{shard.file.name}#{row}", "text": line.upper() + shard.mark, "file": shard.file.name, "row": row}
        for row, line in lines
        if line
    ]
    name = f"shards/{shard.name}{SUFFIX}"
    written = write_rows(folder.path(name), name, rows, zstd_level=3)
    counts = {"rows": len(lines), "documents": len(rows), dropped_key("empty"): len(lines) - len(rows)}
    return Receipt([written], counts)


# 3. The build: from the job's inputs to shards, and from receipts to the ledger.
def _build_loud(job: Job) -> BuildResult:
    [raw], [pin] = job.target.upstream, job.upstream
    assert isinstance(raw.external_inputs, SourceFolder)
    files = check_listed_files(raw.external_inputs.resolve_path(job.run.root), pin.manifest)
    shards = [TextShard(f"{number:05d}", file, job.recipe["mark"]) for number, file in enumerate(files)]
    receipts = list(run_stage("loud", write_capitals, shards, job.staging, job.run.settings))
    counts = {"ledger": Ledger.from_counts(total_counts(receipts)).to_json()}
    return BuildResult([file for receipt in receipts for file in receipt.files], counts, {})


# 4. The rows: with these columns, `trace`, `peek` and `diff` work.
class LoudRow(msgspec.Struct):
    id: str
    text: str
    file: str
    row: int
    source: str = "toy"


class LoudRows(FileRows):
    display_names = DisplayNames("loud", "loud", "line")
    schema = RowSchema("shards/", LoudRow, ("id",), "source", "text", file_column="file", row_column="row")
    reads_sources = True


# 5. The kinds: the one place that describes an artifact. A new stage version marks earlier artifacts as stale.
RAW = Kind(
    "toy/raw",
    StageVersion("toy_raw", 1),
    input_builder(pin_inputs),
    "Text files, by hash.",
    checks=(FILES_CHECK,),
    external_inputs=input_folder,
)
LOUD_STAGE, CHECKS = StageVersion("loud", 1), (FILES_CHECK, LEDGER_CHECK)
LOUD = Kind(
    "toy/loud", LOUD_STAGE, file_builder(_build_loud), "Lines in capitals.", row_store_class=LoudRows, checks=CHECKS
)

# 6. The names that a system's page must have.
RECIPE, KINDS = ToyRecipe, (RAW, LOUD)
