"""nemotron score, percentiles, subsets: how likely a model finds completions, and what is chosen by that."""

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
from pipeline_assets.commands.build import Build, build_targets
from pipeline_assets.commands.inputs import folder_named, folder_or_commit, sealed_below, slugify
from pipeline_assets.commands.options import Content, Section
from pipeline_assets.commands.terminal import aligned, as_command, print_lines
from pipeline_assets.corpus.nemotron.pools import POOLS, pooled_split
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import has_files, list_files
from pipeline_assets.corpus.scoring.recipe import MIN_BATCH_TOKENS, ScoringRecipe, detect_device
from pipeline_assets.corpus.scoring.scores import scored_summary
from pipeline_assets.corpus.scoring.subset_recipe import SubsetsRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import find_data_root
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.staging import StagingView
from pipeline_assets.systems.nemotron import CANDIDATE_POOLS, NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.scoring import NLL_SCORES, SCORE_REPORT, estimate_work, score_outputs, scored_splits

Model = Annotated[str, typer.Option("--model", help="A folder here, or a name on the hub.")]
Against = Annotated[str | None, typer.Option("--against", help="Another model: tells the gap in bits per byte.")]
Scores = Annotated[Path, typer.Option("--in-dir", help="Folder of scores, or around some.")]


def score(
    pool: Annotated[str, typer.Option("--pool", help="Folder of pools, or owner/name on the hub.")],
    model: Model,
    scoring: Annotated[Content, Section(ScoringSection, (*ScoringRecipe.model_fields, "max_unknown_fraction"))],
    *,
    revision: Annotated[str | None, typer.Option(help="The model's commit, branch or tag.")] = None,
    pool_revision: Annotated[str | None, typer.Option(help="That of pools on the hub.")] = None,
    pool_subdir: Annotated[str | None, typer.Option(help="Only this folder of the pools.")] = None,
    against: Against = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would take.")] = False,
    build: Build,
) -> None:
    """Example: corpusmill nemotron score --pool out/nemotron/mine/candidate_pools --model models/mine --out-dir out"""
    if scoring["batch_tokens"] < MIN_BATCH_TOKENS:
        what = f"must be at least {MIN_BATCH_TOKENS}, got {scoring['batch_tokens']}: it counts tokens, not rows"
        fix = f"for {scoring['batch_tokens']} rows a batch, give their number times the tokens of a row (--max-length)"
        raise UsageError(what, "--batch-tokens", fix)
    build = build.at_place()
    run, elsewhere = build.run, build.run.remote_launcher
    scoring = {**scoring, "device": scoring.get("device") or ("cuda" if elsewhere else detect_device())}
    models = [_model(model, "--model", revision, run)]
    models += [] if against is None else [_model(against, "--against", None, run)]
    for one in models:
        if "path" in one:
            ModelFolder(Path(one["path"])).choose_files()  # refuses the second before all is scored by the first
    names = [Path(one.get("path") or one["name"]).name for one in models]
    if names[0] == names[-1] and models[0] != models[-1]:
        names[-1] += "-against"
    goals = [
        _scoring_recipe(pool, pool_revision, pool_subdir, {**scoring, "model": one}, name, build).final_targets()
        for one, name in zip(models, names, strict=True)
    ]
    scored = [[target for target in targets if target.kind.name == NLL_SCORES.name] for targets in goals]
    if dry_run or elsewhere is not None:  # a limit on costs covers all models and splits: compare before the first call
        _print_work([target for targets in scored for target in targets], run)
    if dry_run:
        return
    for targets in goals:
        build.targets(targets, _lines)
    if against is not None:
        print_lines(["", f"{against} beside {model}, in bits a byte:", *_gap(scored[0], scored[1], run)])
    folders = " ".join(sorted({str(Path(*one.folder.parts[:3])) for one in scored[0]}))
    command = as_command("nemotron", "subsets", "--in-dir", run.root / folders, "--out-dir", run.root)
    print_lines(["", "to choose training subsets:", f"  {command}"])


def percentiles(in_dir: Scores, build: Build) -> None:
    """Example: corpusmill nemotron percentiles --in-dir out/nemotron/mine/nll_scores --out-dir out"""
    scores = given_scores(in_dir)
    build = build.at_place()
    build.targets(score_outputs(_recipe_name(scores), scores, None), _lines)


def subsets(
    in_dir: Scores,
    rules: Annotated[Path | None, typer.Option(help="YAML: `subsets` of a recipe; default: four rules.")] = None,
    *,
    build: Build,
) -> None:
    """Example: corpusmill nemotron subsets --in-dir out/nemotron/mine/nll_scores --out-dir out"""
    recipe = SubsetsRecipe.from_mapping({} if rules is None else read_yaml(rules), rules or "the default rules")
    scores = given_scores(in_dir)
    [_, target] = score_outputs(_recipe_name(scores), scores, recipe)
    build = build.at_place()
    made = build_targets([target], build.run, build.strict, _subset_lines)
    print_lines(
        ["to publish them, with HF_TOKEN set:", "  " + as_command("nemotron", "publish", "OWNER/NAME", made.folder)]
    )


def _subset_lines(made: Artifact) -> Iterator[str]:
    """How many rows each rule took; why none, where no row says what its conditions ask."""
    identity = made.manifest.identity
    yield f"{made.folder}  {identity.ledger}"
    for rule, rows in identity.counts["subsets"].items():
        unsaid = identity.decisions["rules"][rule].get("unsaid", [])
        why = f": no row says anything in {', '.join(unsaid)}" if unsaid and not rows else ""
        yield f"  {rule}: {rows:,} rows{why}"


def given_scores(folder: Path) -> list[Target]:
    """Scores that are sealed in a folder or below it, with what they were made from.

    Raises:
        UsageError: there are none; else as `sealed_below`.
    """
    if not (scores := [*sealed_below(folder, NLL_SCORES).values()]):
        raise UsageError("no scores are sealed there", folder, "give a folder that `nemotron score` or `run` made")
    return scores


def _recipe_name(scores: Sequence[Target]) -> str:
    return "-".join(sorted({one.name.partition("/")[0] for one in scores}))


def _model(model: str, option: str, revision: str | None, run: Run) -> dict[str, Any]:
    """The model as a recipe has it: a folder, or what the hub has at the commit that the revision has now."""
    found = folder_or_commit(run.require_hub("a model").for_models(), model, option, revision)
    return found if "path" in found else {"name": model, **found}


def _scoring_recipe(
    pool: str, revision: str | None, subdir: str | None, scoring: Content, model: str, build: Build
) -> NemotronRecipe:
    """Write the recipe that scores pools: sealed ones of the data root are upstream, others are pinned by file."""
    ScoringSection.from_mapping(scoring, "the command")  # refuses an option before anything is read
    folder, run = folder_named(pool, "--pool"), build.run
    sealed = {} if folder is None or subdir else sealed_below(folder, CANDIDATE_POOLS)
    if sealed and all(find_data_root(one.folder) == run.root for one in sealed.values()):
        pools: Content = {"sealed_pools": [_sealed_section(one, run.root) for one in sealed.values()]}
        names = sorted({one.name.partition("/")[0] for one in sealed.values()})
        names = [str(one.partition) for one in sealed.values()] if len(sealed) == 1 else names
    else:
        places = [str(one.folder) for one in sealed.values()] or [pool]
        pools = {"datasets": [pools_section(place, revision, run.require_hub("pools"), subdir) for place in places]}
        names = [Path(pool).absolute().name, *([subdir] if subdir else [])]
    name = "-".join(["score", *map(slugify, [*names, model])])
    recipe, _ = build.write(NemotronRecipe, {"system": "nemotron", "name": name, "scoring": scoring, **pools})
    print_lines(recipe.warnings(), err=True)
    return recipe


def _print_work(scores: Sequence[Target], run: Run) -> None:
    """Build the inputs of scores, and print what the scores that are not sealed would take."""
    for _ in run_targets(upstream_first([above for one in scores for above in one.upstream]), run):
        pass
    works = []
    for target in (target for target in scores if not target.matches_recipe(run.root)):
        with tempfile.TemporaryDirectory() as scratch:
            works.append(estimate_work(target, run, StagingView(Path(scratch))))
    print_lines(f"{work.split}: {work.rows:,} rows, about {work.text_bytes:,} bytes of text" for work in works)
    if run.remote_launcher is not None:
        for line in run.remote_launcher.describe_costs(works):
            print_lines([line])


def _lines(made: Artifact) -> Iterator[str]:
    if made.manifest.kind == NLL_SCORES.name:
        yield f"{made.folder}  {scored_summary(made.manifest.identity.counts)}"
    elif made.manifest.kind == SCORE_REPORT.name:
        rows = preview(made, SYSTEMS.kinds)
        yield from aligned([tuple(rows[0]), *(tuple(row.values()) for row in rows)]) if rows else []
        yield f"{made.folder / 'report.html'}"


def _sealed_section(pools: Target, root: Path) -> dict[str, Any]:
    """Return the recipe's section of sealed pools: their folder below the data root, and the splits that have rows."""
    files = open_artifact(pools.folder).manifest.identity.files
    splits = list(dict.fromkeys(pooled_split(file.path) for file in files))
    return {"folder": pools.folder.relative_to(root).as_posix(), "dataset": str(pools.partition), "splits": splits}


def pools_section(pool: str, revision: str | None, hub: HubFiles, subdir: str | None = None) -> dict[str, Any]:
    """Pools that weren't made here as a dataset of a recipe: the files of each split, by patterns.

    Args:
        subdir: the folder whose files alone are meant; that of a pool may be given by the pool's name.
    Raises:
        UsageError: there is no such folder and no such dataset, or it has no Parquet.
    """
    section = folder_or_commit(hub, pool, "--pool", revision, "--pool-revision")
    path = Path(section["path"]) if "path" in section else None
    if path is None:
        names = [file.path for file in hub.list_files(pool, section["revision"])]
    else:
        names = [file.name for file in list_files(path, ["**/*"])] if has_files(path) else []
    splits: dict[str, set[str]] = {}
    folders = [] if subdir is None else [f"{subdir.strip('/')}/", f"{POOLS}{subdir.strip('/')}/"]
    for name in names:
        is_meant = not folders or any(f"/{name}".find(f"/{one}") >= 0 for one in folders)
        if is_meant and name.endswith(".parquet"):
            splits.setdefault(pooled_split(name), set()).add(re.sub(r"(?<=-)\d{5}(?=-of-|\.)", "[0-9]" * 5, name))
    if not splits:
        what = "it has no Parquet" + (f" in {' or '.join(folders)}" if folders else "")
        raise UsageError(what, pool, "give pools: Parquet with the columns id, text and loss_mode")
    files = {split: sorted(patterns) for split, patterns in sorted(splits.items())}
    return {"dataset": path.name if path else pool, **section, "splits": list(files), "files": files}


def _gap(first: Sequence[Target], second: Sequence[Target], run: Run) -> list[str]:
    from pipeline_assets.corpus.scoring.score_gap import score_gap

    with tempfile.TemporaryDirectory() as scratch:
        folder = StagingView(Path(scratch))
        with scored_splits(first, run, folder) as one, scored_splits(second, run, folder) as other:
            gap = score_gap(one, other)
            rows = gap.rows()
            return [*aligned(rows, range(1, len(rows[0]))), *gap.warnings()]
