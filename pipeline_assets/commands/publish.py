"""nemotron publish: a sealed folder as a dataset of a hub."""

import os
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.commands.terminal import OptionalRoot, as_bytes, counted, data_root, log_to_stderr, tell
from pipeline_assets.corpus.spine.artifact import open_artifact, sealed_manifest
from pipeline_assets.corpus.spine.files import unreplaced


def publish(
    repo: Annotated[str, typer.Argument(help="owner/name on the hub; made if it isn't there.")],
    folder: Annotated[Path, typer.Argument(help="Sealed folder of inventories, rows or pools.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be sent; send nothing.")] = False,
    public: Annotated[bool, typer.Option("--public", help="A repo that is made can be read by anybody.")] = False,
    allow_unknown_licences: Annotated[
        bool, typer.Option("--allow-unknown-licences", help="Send rows of which nobody knows the licence, too.")
    ] = False,
    onto: Annotated[str | None, typer.Option(help="Somebody else's commit, the head, to go on from.")] = None,
    data: OptionalRoot = None,
) -> None:
    """Example: corpusmill nemotron publish me/pools data/nemotron/nemotron_v1/candidate_pools/nemotron-math-v2"""
    from pipeline_assets.corpus.publishing.hub_repo import HubRepo, token_of
    from pipeline_assets.corpus.publishing.publication import publication_of
    from pipeline_assets.corpus.publishing.publish import plan_publication
    from pipeline_assets.corpus.publishing.publish import publish as send
    from pipeline_assets.corpus.recipes.run import hub_of

    log_to_stderr()
    sealed_manifest(folder)
    with unreplaced(folder):
        place = HubRepo.of(repo, hub_of(data_root(folder, data), os.environ), token_of(os.environ))
        place.check_token()
        made = publication_of(open_artifact(folder), place, allow_unknown=allow_unknown_licences)
        plan = plan_publication(made, place, onto)
        state = f"made, {'public' if public else 'private'}" if plan.parent is None else f"there, at {plan.parent}"
        tell([f"{place.url} {'is' if plan.parent else 'will be'} {state}", *made.terms(), *plan.lines()])
        if not dry_run:
            done = send(made, place, private=not public, onto=onto)
            sent = f"{counted(done.commits, 'commit')} made, {as_bytes(done.bytes)} sent"
            tell([f"{repo} at {done.commit}: {sent}; read back" if done.commits else f"{repo}: all is there already"])
