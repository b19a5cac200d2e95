"""Smoke run of stage A on five small generated sources."""

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.commands.terminal import Workers, align, format_bytes, format_command, log_to_stderr, print_lines
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.formats.memmap import INPUT_IDS_FILE, META_FILE, open_packed
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.demo.recipes import write_stage_a_recipe
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.disk_errors import explain_os_error
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.files import require_folder
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.sealed_folder import raise_if_artifact
from pipeline_assets.spine.temporary_names import is_temporary, temporary_path
from pipeline_assets.spine.usage import nearest_existing
from pipeline_assets.systems.stage_a import StageARecipe

NORMALIZED_FOLDER, PACKED_FOLDER, REPORT_FILE = "normalized", "packed", "report.json"
DEDUPLICATED_FILE, DECISIONS_FILE = "dedup/deduped.jsonl.zst", "dedup/decisions.jsonl.zst"
_CARD_FILE, _CARD_TITLE = "README.md", "# A smoke run of corpusmill's stage A\n"
_CARD_TEXT = f"""{_CARD_TITLE}
`corpusmill smoke` created this folder; another run continues in it. Nothing was downloaded: all text is
generated, and the same on every machine.

| folder | content |
|---|---|
| `hub`, `sources` | the five sources, and an evaluation set |
| `recipes` | the recipe |
| `stage_a` | the artifacts; `normalized`, `dedup`, `packed` and `report.json` have their files |
"""
_ZSTD_LEVEL = 3


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Output folder: new, empty or of a smoke run.")] = Path(
        "out"
    ),
    workers: Workers = 0,
) -> None:
    """Run stage A on five small sources, offline.

    Example: corpusmill smoke --out-dir out
    """
    Run.from_settings(out_dir, os.environ)  # rejects invalid settings
    log_to_stderr()
    _claim_folder(out_dir)
    write_inputs(out_dir, "stage_a")
    hub_folder = out_dir / HUB_FOLDER
    recipe = write_stage_a_recipe(out_dir, LoopbackHub(hub_folder).commits())
    built = checks = 0
    if not all(target.is_up_to_date(out_dir) for target in recipe.targets()):
        with LoopbackHub(hub_folder) as hub:
            os.environ.update(hub.client_environment())
            run = Run.from_settings(out_dir, os.environ, workers=workers, replace=True)
            for outcome in run_targets(recipe.targets(), run):
                built += not outcome.was_current
                checks += len(outcome.checks)
    _link_results(out_dir, recipe)
    packed_files = (f"{PACKED_FOLDER}/{name}" for name in (INPUT_IDS_FILE, META_FILE))
    names = (NORMALIZED_FOLDER, DEDUPLICATED_FILE, DECISIONS_FILE, *packed_files, REPORT_FILE)
    sizes = [(str(out_dir / name), format_bytes(_total_bytes(out_dir / name))) for name in names]
    build_result = f"{built} artifacts built, {checks} checks passed" if built else "all artifacts are up to date"
    packed = out_dir / recipe.target("stage_a/packed").folder
    first = open_packed(packed).segments(0)[0].doc_id
    commands: list[tuple[object, ...]] = [
        ("verify", packed, "--upstream"),
        ("trace", packed, "--token", 0),
        ("peek", packed, "--row", 0),
        ("stage-a", "why", first, "--data", out_dir),
        ("ui", "--data", out_dir),
    ]
    print_lines([*step_lines(recipe, out_dir), "", *align(sizes, {1}), *format_summary(build_result, commands)])


def format_summary(build_result: str, commands: Sequence[Sequence[object]]) -> list[str]:
    """Return lines with the result of a smoke run and commands to inspect it."""
    return ["", f"{build_result}; to inspect the result:", *(f"  {format_command(*words)}" for words in commands)]


def _total_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _claim_folder(root: Path) -> None:
    """Write a smoke run's README.md to a folder, unless the folder has it.

    Raise UsageError if the folder has other files, but not this README.md.
    """
    fix = "choose a folder with --out-dir"
    if root.exists():
        require_folder(root, fix)
    raise_if_artifact(root, fix)
    parent = nearest_existing(root)
    if parent.is_dir() and not os.access(parent, os.W_OK):
        is_read_only = os.statvfs(parent).f_flag & os.ST_RDONLY
        raise explain_os_error(OSError(errno.EROFS if is_read_only else errno.EACCES, ""), parent)
    card = root / _CARD_FILE
    if card.is_file() and card.read_bytes().startswith(_CARD_TITLE.encode()):
        return
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    if foreign := [name for name in names if not is_temporary(name)]:
        what = f"the folder contains {foreign[0]}, which is not from a smoke run"
        raise UsageError(what, root, "choose an empty or new folder with --out-dir")
    durable.make_folder(root)
    durable.write_durably(card, _CARD_TEXT.encode())


def _link_results(root: Path, recipe: StageARecipe) -> None:
    """Link the artifacts' files under short names in `root`; join document shards."""
    for source in recipe.sources:
        normalized = open_artifact(root / recipe.target("stage_a/normalized", source.source).folder)
        _mirror_artifact(normalized, root / NORMALIZED_FOLDER / source.source)
    corpus = open_artifact(root / recipe.target("stage_a/deduplicated").folder)
    durable.make_folder((root / DEDUPLICATED_FILE).parent)
    with JsonlZstWriter(root / DEDUPLICATED_FILE, _ZSTD_LEVEL) as writer:
        for shard in rows_by_shard(corpus):
            for block in read_line_blocks(corpus.path(shard)):
                writer.write_lines(block, block.count(b"\n"))
    _link_file(corpus.path(Path(DECISIONS_FILE).name), root / DECISIONS_FILE)
    _mirror_artifact(open_artifact(root / recipe.target("stage_a/packed").folder), root / PACKED_FOLDER)
    _link_file(open_artifact(root / recipe.target("stage_a/report").folder).path(REPORT_FILE), root / REPORT_FILE)


def _mirror_artifact(artifact: Artifact, folder: Path) -> None:
    names = {*(file.path for file in artifact.manifest.storage), MANIFEST_FILE}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in names:
            durable.remove(path)
    for name in sorted(names):
        _link_file(artifact.folder / name, folder / name)


def _link_file(source: Path, target: Path) -> None:
    if target.is_file() and os.path.samefile(source, target):
        return
    durable.make_folder(target.parent)
    temporary = temporary_path(target)
    durable.link(source, temporary)
    durable.rename(temporary, target)


def step_lines(recipe: StageARecipe, root: Path) -> Iterator[str]:
    """Yield the document counts of each step and the token shares of each source."""
    packed = open_artifact(root / recipe.target("stage_a/packed").folder).manifest.identity.counts
    for step in ("normalized", "filtered", "deduplicated", "decontaminated"):
        targets = [target for target in recipe.targets() if target.kind.name == f"stage_a/{step}"]
        ledgers = [open_artifact(root / target.folder).manifest.identity.ledger for target in targets]
        fates = Counter[str]()
        for fate, reason, count in (outcome for ledger in ledgers for outcome in ledger.other_outcomes()):
            fates[reason or fate] += count
        rows, documents = sum(ledger.rows_in for ledger in ledgers), sum(ledger.out for ledger in ledgers)
        other_rows = "".join(f" + {count:,} {fate}" for fate, count in fates.items() if count)
        yield f"{step:15} {rows:,} {'rows' if step == 'normalized' else 'documents'} in = {documents:,} out{other_rows}"
    packed_rows = f"{packed['rows']:,} rows, {packed['padding_tokens']:,} of padding"
    yield f"{'packed':15} {packed['documents']:,} documents drawn: {packed['tokens']:,} tokens in {packed_rows}"
    table = [("source", "target", "actual", "tokens", "epochs")]
    for source, counts in packed["by_source"].items():
        shares = (f"{float(counts[share]):.1%}" for share in ("asked_share", "share"))
        table.append((source, *shares, f"{counts['packed_tokens']:,}", f"{float(counts['epochs']):.2f}"))
    yield from (f"  {line}" for line in align(table, number_columns={1, 2, 3, 4}))
