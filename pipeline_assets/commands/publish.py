"""export, publish: what is sealed, for others: a folder that other programs read, a dataset of a hub."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline_assets.build.run import Run, open_hub
from pipeline_assets.commands.terminal import (
    OptionalRoot,
    as_bytes,
    data_root,
    echo,
    log_to_stderr,
    pluralize,
    print_lines,
)
from pipeline_assets.spine.artifact import open_artifact, require_manifest
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.files import forbid_replacement
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import FILE_NAME
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.corpus.publishing.hub_repo import HubRepo

_PUBLISHED = {
    f"nemotron/{name}"
    for name in ("normalized_shards", "hf_layout", "deduplicated", "candidate_pools", "nll_scores", "training_subsets")
}
_SHOWN = 8


def publish(
    repo: Annotated[str, typer.Argument(help="owner/name on the hub; made if it isn't there.")],
    folder: Annotated[
        Path, typer.Argument(help="Sealed folder of inventories, rows, pools or subsets, or around one.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be sent; send nothing.")] = False,
    public: Annotated[bool, typer.Option("--public", help="A repo that is made can be read by anybody.")] = False,
    allow_unknown_licences: Annotated[
        bool, typer.Option("--allow-unknown-licences", help="Send rows of which nobody knows the licence, too.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what was published of something else, or a card of another hand.")
    ] = False,
    data: OptionalRoot = None,
) -> None:
    """Example: corpusmill nemotron publish me/pools data/nemotron/nemotron_v1/candidate_pools/nemotron-math-v2"""
    from pipeline_assets.corpus.publishing.hub_repo import HubRepo, hf_token
    from pipeline_assets.corpus.publishing.publication import prepare_publication
    from pipeline_assets.corpus.publishing.publish import plan_publication
    from pipeline_assets.corpus.publishing.publish import publish as send

    log_to_stderr()
    folder = _publishable(folder)
    require_manifest(folder)
    place = HubRepo.open(repo, open_hub(data_root(folder, data), os.environ), hf_token(os.environ))
    with forbid_replacement(folder), place.limits():
        owners = place.check_token()
        made = prepare_publication(open_artifact(folder), place, allow_unknown=allow_unknown_licences)
        plan = plan_publication(made, place, replaces=replace)
        print_lines([*_state(place, plan.parent, owners, public), *made.terms(), *plan.lines()])
        if not dry_run:
            commit, plan = send(made, place, private=not public, replaces=replace)
            sent = f"{pluralize(len(plan.parts), 'commit')} made, {as_bytes(plan.bytes)} sent"
            print_lines([f"{repo} at {commit}: {sent}; read back" if plan.parts else f"{repo}: all is there already"])


def _publishable(folder: Path) -> Path:
    """Return the folder if it is sealed, else the only one below it whose rows nothing else there has."""
    if (folder / FILE_NAME).exists():
        return folder
    places = sorted(path.parent for path in folder.absolute().rglob(FILE_NAME))
    found = {place: manifest for place in places if (manifest := open_artifact(place).manifest).kind in _PUBLISHED}
    used = {entry["digest"] for manifest in found.values() for entry in manifest.identity.upstream}
    last = [place for place, manifest in found.items() if manifest.digest not in used]
    if not last:
        raise UsageError("no rows to publish are sealed here", folder, "give a folder of pools or normalized rows")
    if len(last) > 1:
        names = ", ".join(map(str, last[:_SHOWN]))
        raise UsageError(f"expected one folder to publish, got {len(last)}: {names}", folder, "give one of them")
    print_lines([f"publishing {last[0]}"], err=True)
    return last[0]


def _state(place: "HubRepo", parent: str | None, owners: Collection[str], public: bool) -> Iterator[str]:
    if parent is not None:
        yield f"{place.url} is there, at {parent}"
        if public and (place.settings() or {}).get("private"):
            yield "it is private, and --public is of a repo that is made: make it public on its page"
        return
    yield f"{place.url} will be made, {'public' if public else 'private'}"
    owner = place.name.partition("/")[0]
    if owner not in owners:
        yield f"the token is of {', '.join(owners)}: it may not be allowed to make it for {owner}"


def export(
    folder: Annotated[Path, typer.Argument(help="Folder of documents, or of normalised rows.")],
    out: Annotated[Path, typer.Option(help="Folder that is made.")],
    to: Annotated[Literal["parquet", "jsonl", "hf"], typer.Option(help="Format; hf: as on a hub.")] = "parquet",
    data: OptionalRoot = None,
) -> None:
    """Example: corpusmill export data/stage_a/notes/deduplicated/notes --to hf --out exported/notes"""
    from pipeline_assets.build.rows.export import export as export_rows
    from pipeline_assets.build.rows.row_stores import open_rows

    root = data_root(folder, data)
    with forbid_replacement(folder):
        require_manifest(folder)
        made = export_rows(
            open_rows(folder, SYSTEMS.kinds, Lineage(root)),
            to,
            out,
            Run.from_settings(root, os.environ).settings.zstd_level,
        )
    echo(f"{out}: {made.rows:,} rows in {len(made.files):,} files, {as_bytes(made.bytes)}, and README.md")
