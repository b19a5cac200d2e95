"""The commands of `nemotron` that score completions and select rows by score."""

import contextlib
import glob
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_assets.build.pins.model_pin import ModelFolder, ScoringSection
from pipeline_assets.build.recipe import upstream_first
from pipeline_assets.build.rows.row_stores import preview
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Target
from pipeline_assets.commands.build import BuildOptions, build_targets
from pipeline_assets.commands.inputs import folder_or_commit, join_names, local_folder, sealed_targets, slugify
from pipeline_assets.commands.options import RecipeContent, SectionOptions
from pipeline_assets.commands.terminal import align, format_command, print_lines
from pipeline_assets.corpus.nemotron.pools import FILE_NUMBER, POOL_PREFIX, source_split
from pipeline_assets.corpus.nemotron.pools_recipe import needed_columns
from pipeline_assets.corpus.publishing.dataset_card import collect_splits_and_sources
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import has_files, list_files
from pipeline_assets.corpus.scoring.pool_selection import check_pool_file
from pipeline_assets.corpus.scoring.recipe import MIN_BATCH_TOKENS, ScoringRecipe, detect_device
from pipeline_assets.corpus.scoring.scores import scored_summary
from pipeline_assets.corpus.scoring.subset_recipe import SubsetsRecipe
from pipeline_assets.corpus.scoring.subsets import SUBSET_PREFIX
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.staging import StagingView
from pipeline_assets.systems.nemotron import CANDIDATE_POOLS, NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.scoring import (
    NLL_SCORES,
    SCORE_REPORT,
    describe_work,
    report_and_subset_targets,
    scored_splits,
)

_INVALID_IN_SPLIT_NAME = re.compile(r"[^\w.-]+|^[.-]+")  # may be in names of files
ScoresFolder = Annotated[Path, typer.Option("--in-dir", help="Folder of scores, or a parent folder.")]


def score(
    pool: Annotated[str, typer.Option("--pool", help="Folder of pools, or owner/name on the hub.")],
    model: Annotated[str, typer.Option("--model", help="Local folder, or name on the hub.")],
    scoring_keys: Annotated[
        RecipeContent, SectionOptions(ScoringSection, (*ScoringRecipe.model_fields, "max_unknown_fraction"))
    ],
    *,
    revision: Annotated[str | None, typer.Option(help="Model's commit, branch or tag.")] = None,
    pool_revision: Annotated[str | None, typer.Option(help="Commit, branch or tag of pools on the hub.")] = None,
    pool_subdir: Annotated[str | None, typer.Option(help="Score only this folder of the pools.")] = None,
    against: Annotated[str | None, typer.Option(help="Model to compare with, in bits per byte.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the amount of work without scoring.")] = False,
    options: BuildOptions,
) -> None:
    """Score completions with a language model: NLL and bits per byte.

    Example: corpusmill nemotron score --pool out/nemotron/mine/candidate_pools --model models/mine --out-dir out
    """
    if (batch_tokens := scoring_keys["batch_tokens"]) < MIN_BATCH_TOKENS:
        what = f"must be at least {MIN_BATCH_TOKENS}, got {batch_tokens}: it counts tokens, not rows"
        fix = f"for {batch_tokens} rows a batch, set their number times the tokens of a row (--max-length)"
        raise UsageError(what, "--batch-tokens", fix)
    options = options.with_absolute_root()
    run, remote = options.run, options.run.remote_launcher
    scoring_keys = {**scoring_keys, "device": scoring_keys.get("device") or ("cuda" if remote else detect_device())}
    models = [_model_section(model, "--model", revision, run)]
    models += [] if against is None else [_model_section(against, "--against", None, run)]
    for section in models:
        if "path" in section:
            ModelFolder(Path(section["path"])).choose_files()  # refuse the second model before scoring with the first
    names = [Path(section.get("path") or section["name"]).name for section in models]
    if names[0] == names[-1] and models[0] != models[-1]:
        names[-1] += "-against"
    targets_by_model = []
    for section, name in zip(models, names, strict=True):
        keys = {**scoring_keys, "model": section}
        recipe = _write_scoring_recipe(pool, pool_revision, pool_subdir, keys, name, options)
        targets_by_model.append(recipe.final_targets())
    scored = [[target for target in targets if target.kind.name == NLL_SCORES.name] for targets in targets_by_model]
    if dry_run or remote is not None:  # a cost limit covers all models and splits: compare before the first call
        _build_inputs_and_print_work([target for targets in scored for target in targets], run)
    if dry_run:
        return
    for targets in targets_by_model:
        options.build_targets(targets, _score_lines)
    if against is not None:
        print_lines(["", f"{against} compared with {model}, in bits per byte:", *_gap_lines(scored[0], scored[1], run)])
    folder = run.root / Path(*scored[0][0].folder.parts[:3])
    command = format_command("nemotron", "subsets", "--in-dir", folder, "--out-dir", run.root)
    print_lines(["", "to choose training subsets:", f"  {command}"])


def percentiles(in_dir: ScoresFolder, options: BuildOptions) -> None:
    """Show the spread of scores by domain, correctness and length.

    Example: corpusmill nemotron percentiles --in-dir out/nemotron/mine/nll_scores --out-dir out
    """
    outputs = _targets_from_sealed_scores(in_dir, None)
    options.with_absolute_root().build_targets(outputs, _score_lines)


def subsets(
    in_dir: ScoresFolder,
    rules: Annotated[Path | None, typer.Option(help="Recipe's `subsets` as YAML. Default: seven rules.")] = None,
    *,
    options: BuildOptions,
) -> None:
    """Select training subsets by score, as rows and as masked tokens.

    Example: corpusmill nemotron subsets --in-dir out/nemotron/mine/nll_scores --out-dir out
    """
    recipe = SubsetsRecipe.from_mapping(
        {} if rules is None else read_yaml(rules, "rules file"), rules or "the default rules"
    )
    [_, target] = _targets_from_sealed_scores(in_dir, recipe)
    options = options.with_absolute_root()
    artifact = build_targets([target], options.run, options.strict, _subset_lines)
    if not any(artifact.manifest.identity.counts["subsets"].values()):
        return
    with contextlib.suppress(UsageError):  # rows that name no dataset cannot be published
        collect_splits_and_sources([artifact])
        command = format_command("nemotron", "publish", "OWNER/NAME", artifact.folder)
        print_lines(["to publish them, with HF_TOKEN set:", f"  {command}"])


def _subset_lines(artifact: Artifact) -> Iterator[str]:
    """Yield the ledger, then each subset's row count.

    For an empty subset, the line also names columns that the subset's rule needs, but that are empty in all rows.
    """
    identity = artifact.manifest.identity
    rules = SubsetsRecipe.from_content(identity.recipe).rules
    yield f"{artifact.folder}  {identity.ledger}"
    for rule, rows in identity.counts["subsets"].items():
        needed = needed_columns(rules[rule].where)
        empty = [name for name in identity.decisions["rules"][rule].get("unsaid", ()) if name in needed]
        reason = f": no row has a value in {', '.join(empty)}" if empty and not rows else ""
        yield f"  {rule}: {pluralize(rows, 'row')}{reason}"


def _targets_from_sealed_scores(folder: Path, subsets: SubsetsRecipe | None) -> list[Target]:
    """Return the targets of `report_and_subset_targets` for the scores below a folder."""
    if not (scores := [*sealed_targets(folder, NLL_SCORES).values()]):
        raise UsageError("no sealed scores found", folder, "choose an output folder of `nemotron score` or `run`")
    name = join_names(sorted({target.name.partition("/")[0] for target in scores}))
    return report_and_subset_targets(name, scores, subsets)


def _model_section(model: str, option: str, revision: str | None, run: Run) -> dict[str, Any]:
    """Return the recipe section of a model: a folder, or a name and commit."""
    section = folder_or_commit(run.require_hub("a model").for_models(), model, option, revision)
    return section if "path" in section else {"name": model, **section}


def _write_scoring_recipe(
    pool: str, revision: str | None, subdir: str | None, scoring: RecipeContent, model_name: str, options: BuildOptions
) -> NemotronRecipe:
    """Write the recipe that scores the pools in a folder or hub repo; return it."""
    ScoringSection.from_mapping(scoring, "the command")  # check the options before reading anything
    folder, run = local_folder(pool, "--pool"), options.run
    sealed = (
        [] if folder is None or subdir or revision is not None else [*sealed_targets(folder, CANDIDATE_POOLS).values()]
    )
    if sealed and not (sealed := [pools for pools in sealed if open_artifact(pools.folder).manifest.identity.files]):
        raise UsageError("the pools have no rows", pool, "choose pools with rows")
    if sealed and all(find_data_root(target.folder) == run.root for target in sealed):
        pools: RecipeContent = {"sealed_pools": [_sealed_pools_section(target, run.root) for target in sealed]}
        names = sorted({target.name.partition("/")[0] for target in sealed})
        names = [str(sealed[0].partition)] if len(sealed) == 1 else names
    else:
        folders = [str(target.folder) for target in sealed] or [pool]
        pools = {"datasets": [pools_section(folder, revision, run.require_hub("pools"), subdir) for folder in folders]}
        names = [Path(pool).absolute().name, *([subdir] if subdir else [])]
    name = join_names(["score", *map(slugify, [*names, model_name])])
    content: RecipeContent = {"system": "nemotron", "name": name, "scoring": scoring, **pools}
    recipe, _ = options.write_recipe(NemotronRecipe, content)
    print_lines(recipe.warnings(), err=True)
    return recipe


def _build_inputs_and_print_work(scores: Sequence[Target], run: Run) -> None:
    """Build the inputs of scores; print the remaining work, with its cost on Modal."""
    for _ in run_targets(upstream_first([upstream for target in scores for upstream in target.upstream]), run):
        pass
    splits = []
    for target in (target for target in scores if not target.matches_recipe(run.root)):
        with tempfile.TemporaryDirectory() as scratch:
            splits.append(describe_work(target, run, StagingView(Path(scratch))))
    lines = [f"{work.split}: {pluralize(work.rows, 'row')}, about {work.text_bytes:,} bytes of text" for work in splits]
    print_lines(lines or ["nothing to score: the scores of all splits are current"])
    if run.remote_launcher is not None:
        print_lines(run.remote_launcher.describe_costs(splits))


def _score_lines(artifact: Artifact) -> Iterator[str]:
    if artifact.manifest.kind == NLL_SCORES.name:
        yield f"{artifact.folder}  {scored_summary(artifact.manifest.identity.counts)}"
    elif artifact.manifest.kind == SCORE_REPORT.name:
        rows = preview(artifact, SYSTEMS.kinds)
        yield from align([tuple(rows[0]), *(tuple(row.values()) for row in rows)]) if rows else []
        yield f"{artifact.folder / 'report.html'}"


def _sealed_pools_section(pools: Target, root: Path) -> dict[str, Any]:
    """Return the recipe section of sealed pools, with the splits that have rows."""
    files = open_artifact(pools.folder).manifest.identity.files
    splits = list(dict.fromkeys(source_split(file.path) for file in files))
    return {"folder": pools.folder.relative_to(root).as_posix(), "dataset": str(pools.partition), "splits": splits}


def pools_section(pool: str, revision: str | None, hub: HubFiles, subdir: str | None = None) -> dict[str, Any]:
    """Return the recipe section of external pools, with file patterns for each split.

    `subdir` restricts the files to a folder or a named pool. A `rows.parquet` next to `tokens.npy` is skipped. Raise
    UsageError if no file remains or two splits get the same name, and InputError if a local file is not a valid pool.
    """
    section = folder_or_commit(hub, pool, "--pool", revision, "--pool-revision")
    path = Path(section["path"]) if "path" in section else None
    if path is None:
        names = [file.path for file in hub.list_files(pool, section["revision"])]
    else:
        names = [file.name for file in list_files(path, ["**/*"])] if has_files(path) else []
    splits, stored_names = dict[str, set[str]](), dict[str, str]()
    folders = [] if subdir is None else [f"{subdir.strip('/')}/", f"{POOL_PREFIX}{subdir.strip('/')}/"]
    token_tables = {name.removesuffix("tokens.npy") + "rows.parquet" for name in names if name.endswith("/tokens.npy")}
    tables = [name for name in names if name.endswith(".parquet") and name not in token_tables]
    chosen = [name for name in tables if not folders or any(f"/{folder}" in f"/{name}" for folder in folders)]
    for name, stored in _splits_by_file(chosen).items():
        split = _INVALID_IN_SPLIT_NAME.sub("_", stored) or "_"
        if (other := stored_names.setdefault(split, stored)) != stored:
            what = f"the files of {other!r} and of {stored!r} would be one split, {split}"
            raise UsageError(what, pool, "rename the files of one of them, or score them with --pool-subdir")
        if path is not None:
            check_pool_file(path / name)
        pattern, numbers = FILE_NUMBER.subn(_any_digits, glob.escape(name))
        splits.setdefault(split, set()).add(pattern if numbers else name)
    if not splits:
        what = "no Parquet files found" + (f" in {' or '.join(folders)}" if folders else "")
        raise UsageError(what, pool, "choose pools: Parquet files with the columns id, text and loss_mode")
    files = {split: sorted(patterns) for split, patterns in sorted(splits.items())}
    return {"dataset": path.name if path else pool, **section, "splits": list(files), "files": files}


def _any_digits(number: re.Match[str]) -> str:
    return re.sub(r"\d", "[0-9]", number[0])


def _splits_by_file(names: Sequence[str]) -> dict[str, str]:
    """Map the file names of pools to split names."""
    datasets, datasets_by_split = dict[str, str](), dict[str, set[str]]()
    for name in names:
        parents = name.split("/")[:-1]
        dataset = [folder for folder in parents if not folder.startswith((POOL_PREFIX, SUBSET_PREFIX))]
        datasets[name] = "/".join(dataset) if len(dataset) < len(parents) else ""
        datasets_by_split.setdefault(source_split(name), set()).add(datasets[name])
    # A split name of several datasets becomes DATASET/SPLIT, because rows of two datasets may have equal ids.
    return {
        name: f"{dataset}/{split}".strip("/") if len(datasets_by_split[split := source_split(name)]) > 1 else split
        for name, dataset in datasets.items()
    }


def _gap_lines(model_scores: Sequence[Target], against_scores: Sequence[Target], run: Run) -> list[str]:
    from pipeline_assets.corpus.scoring.score_gap import compare_scores

    with tempfile.TemporaryDirectory() as scratch:
        folder = StagingView(Path(scratch))
        with scored_splits(model_scores, run, folder) as base, scored_splits(against_scores, run, folder) as other:
            gap = compare_scores(base, other)
            rows = gap.table_rows()
            return [*align(rows, range(1, len(rows[0]))), *gap.warnings()]
