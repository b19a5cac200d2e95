"""nemotron: what the rows of the Nemotron datasets are, their texts, and others of their layout."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from pipeline_assets.build.pins.split_pin import find_folder_splits, find_hub_splits
from pipeline_assets.build.recipe_paths import PROJECT_RECIPES
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.commands.build import Build, build_recipe, build_targets
from pipeline_assets.commands.inputs import folder_named, folder_or_commit, sealed_below, slugify, upstream_targets
from pipeline_assets.commands.lines import artifact_lines
from pipeline_assets.commands.options import Content, Section
from pipeline_assets.commands.terminal import as_command, echo, print_lines
from pipeline_assets.corpus.nemotron import dataset_section, sections
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.splits import dataset_key, unknown_split_error
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.section import UNPINNED
from pipeline_assets.systems import nemotron

_ALL = "nemotron_all"  # the recipe that run-all writes
Dataset = Annotated[str, typer.Option("--dataset", help="owner/name on the hub, or a folder here of the same layout.")]


def inventory(
    dataset: Dataset,
    said: Annotated[Content, Section(dataset_section.DatasetSection, ("revision", "splits"))],
    scan: Annotated[Content, Section(sections.Scan)],
    build: Build,
) -> None:
    """Example: corpusmill nemotron inventory --dataset my/folder --out-dir out"""
    _build("inventory", dataset, said, {"scan": scan}, build)


def normalize(
    dataset: Dataset,
    said: Annotated[Content, Section(dataset_section.DatasetSection)],
    rows: Annotated[Content, Section(RowsRecipe)],
    layout: Annotated[Content, Section(sections.HubLayout)],
    *,
    system: Annotated[bool, typer.Option(help="With gpt-oss's system message, or none.")] = True,
    hf_layout: Annotated[bool, typer.Option("--hf-layout", help="All splits in one folder, as on a hub.")] = False,
    build: Build,
) -> None:
    """Example: corpusmill nemotron normalize --dataset my/folder --domain math --out-dir out"""
    if layout["readme"] and not hf_layout:
        what = "it is the card of the folder that --hf-layout makes"
        raise UsageError(what, "--write-readme", "give --hf-layout too")
    rows |= {} if system else {"system": None}
    _build("normalize", dataset, said, {"rows": rows} | ({"hf_layout": layout} if hf_layout else {}), build)


def pools(
    in_dir: Annotated[Path, typer.Option("--in-dir", help="Folder of rows, or around some.")],
    build: Build,
) -> None:
    """Example: corpusmill nemotron pools --in-dir out/nemotron/mine/normalized_shards --out-dir out"""
    build = build.at_place()
    deduplicated, normalised = given_rows(in_dir)
    left = [
        *deduplicated,
        *nemotron.deduplicated_targets("pools", normalised, sections.DeduplicateRecipe.model_validate({})),
    ]
    targets = nemotron.pool_targets("pools", left, PoolsRecipe.model_validate({}), None)

    build.targets(targets, artifact_lines)
    of_datasets = [target for target in targets if target.kind.name == nemotron.CANDIDATE_POOLS.name]
    words = (
        as_command("nemotron", "publish", f"OWNER/{one.partition}", build.out_dir / one.folder) for one in of_datasets
    )
    print_lines(["to publish them, with HF_TOKEN set:", *(f"  {line}" for line in words)])


def run_all(
    max_records: Annotated[int | None, typer.Option(min=1, help="Rows of a split at most, from all over it.")] = None,
    *,
    build: Build,
) -> None:
    """Example: corpusmill nemotron run-all --max-records 1000 --out-dir out"""
    build = build.at_place()
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / "nemotron_v1.yaml")
    place = build.out_dir / "recipes" / f"{_ALL}.yaml"
    known = nemotron.NemotronRecipe.read(place).datasets if place.exists() and not build.replace else ()
    pinned = {one.dataset: one for one in known if one.revision != UNPINNED}
    for section in content["datasets"]:
        earlier = pinned.get(section["dataset"])
        if earlier is not None:
            section |= {"revision": earlier.revision, "splits": list(earlier.splits)}
        else:
            section |= _at_head(section, build.run.require_hub("a dataset"))
        efforts = set(dataset_section.EFFORTS.get(section["dataset"], {}).values())
        section["reasoning_effort"] = {
            split: effort for split in section["splits"] for effort in efforts if split.startswith(effort)
        }
        echo(f"{section['dataset']} at {section['revision']}", err=True)
    content["scan"] |= {"max_rows": max_records}
    content["rows"] |= {"max_rows": max_records}
    recipe, path = build.write(nemotron.NemotronRecipe, content | {"name": _ALL})
    try:
        build_recipe(recipe, path, build.run, strict=build.strict)
    except InputError as error:
        if _spares_others(error):
            _report_on_built(recipe, build.run)
        raise


def _spares_others(error: InputError) -> bool:
    """Check whether an error concerns its own dataset alone: a retry does not help, and others can be built."""
    return isinstance(error, DeniedError) or not isinstance(error, RetryableError)


def _at_head(section: Mapping[str, Any], hub: HubFiles) -> dict[str, Any]:
    """Return commit and splits of now; a dataset that cannot be read has no commit, so that its own build fails."""
    revision = UNPINNED
    try:
        revision = hub.resolve(section["dataset"])
        there = list(find_hub_splits(hub, section["dataset"], revision))
    except InputError as error:
        if not _spares_others(error):
            raise
        print_lines([f"{section['dataset']}: {error}"], err=True)
        return {"revision": revision}
    shipped = [split for split in section["splits"] if split in there]
    return {"revision": revision, "splits": [*shipped, *(split for split in there if split not in shipped)]}


def _report_on_built(recipe: nemotron.NemotronRecipe, run: Run) -> None:
    """Build the report of the datasets whose pools are sealed, in a folder of its own; print which are missing."""
    pools = [
        one
        for one in recipe.targets()
        if one.kind.name == nemotron.CANDIDATE_POOLS.name and one.is_up_to_date(run.root)
    ]
    missing = {dataset_key(section.dataset) for section in recipe.datasets} - {str(one.partition) for one in pools}
    if pools:
        report = nemotron.POOL_REPORT.target(f"{recipe.name}_partial", {}, pools)
        made = build_targets([report], replace(run, replace=True))
        print_lines([f"{made.folder}  without {', '.join(sorted(missing))}"])


def given_rows(folder: Path) -> tuple[list[Target], list[Target]]:
    """(deduplicated, normalised) rows that are sealed in a folder or below it; of a split that is there as both, those
    that are deduplicated. Of a folder as a hub has it, the rows that it was laid out from.

    Raises:
        UsageError: there are none; else as `sealed_below`.
    """
    found = sealed_below(folder, nemotron.DEDUPLICATED, nemotron.NORMALIZED_SHARDS, nemotron.HF_LAYOUT)
    for layout in [one for one in found.values() if one.kind.name == nemotron.HF_LAYOUT.name]:
        for rows in upstream_targets(open_artifact(layout.folder), nemotron.DEDUPLICATED, nemotron.NORMALIZED_SHARDS):
            found.setdefault(rows.role, rows)
    deduplicated = {one.partition: one for one in found.values() if one.kind.name == nemotron.DEDUPLICATED.name}
    normalised = [one for one in found.values() if one.kind.name == nemotron.NORMALIZED_SHARDS.name]
    if not deduplicated and not normalised:
        raise UsageError("no rows are sealed there", folder, "give a folder that `nemotron normalize` or `run` made")
    return [*deduplicated.values()], [one for one in normalised if one.partition not in deduplicated]


def _build(verb: str, dataset: str, said: Content, asked: Mapping[str, Any], build: Build) -> None:
    build = build.at_place()
    section = _dataset_section(dataset, said["revision"], said["splits"], build.run.require_hub("a dataset"))
    if "path" in section and build.out_dir.resolve().is_relative_to(Path(section["path"]).resolve()):
        raise UsageError(f"it lies in the dataset {dataset}", build.out_dir, "give --out-dir a folder outside of it")
    section |= {"domain": said["domain"]} if said.get("domain") is not None else {}
    if "rows" in asked and not (said.get("domain") or dataset_section.known_domain(section["dataset"])):
        domains = ", ".join(get_args(dataset_section.Domain))
        raise UsageError("nobody knows what its rows are about", dataset, f"give --domain one of {domains}")
    if "rows" in asked and "system" not in asked["rows"]:
        known = {dataset_key(name): efforts for name, efforts in dataset_section.EFFORTS.items()}
        efforts = known.get(dataset_key(section["dataset"]), {})
        section["reasoning_effort"] = {split: one for split, one in efforts.items() if split in section["splits"]}
    name = "-".join([verb, slugify(section["dataset"].rpartition("/")[2]), *map(slugify, said["splits"])])
    content = {"system": "nemotron", "name": name, **asked, "datasets": [section]}
    build.recipe(nemotron.NemotronRecipe, content, artifact_lines)


def _dataset_section(dataset: str, revision: str | None, splits: Sequence[str], hub: HubFiles) -> dict[str, Any]:
    """Return the dataset as a recipe has it, with its commit of now and the splits that are there."""
    known = {dataset_key(name): name for name in dataset_section.DOMAINS}  # of these the owner can be left out
    repo = known.get(dataset.lower(), dataset) if folder_named(dataset, "--dataset") is None else dataset
    section = folder_or_commit(hub, repo, "--dataset", revision)
    path = Path(section["path"]) if "path" in section else None
    there = list(find_hub_splits(hub, repo, section["revision"]) if path is None else find_folder_splits(path))
    if not there:
        raise UsageError("it has no JSON lines and no Parquet", dataset, "give a dataset of rows")
    unknown = next((split for split in splits if split not in there), None)
    if unknown is not None:
        raise unknown_split_error(unknown, there, dataset)
    return {"dataset": path.name if path else repo, **section, "splits": list(dict.fromkeys(splits)) or there}
