"""The commands `push`, `pull` and `nemotron publish`."""

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.removal_staleness import lacks_applied_entries
from pipeline_assets.build.removal_state import read_removals
from pipeline_assets.build.run import LOG_EVERY, open_hub
from pipeline_assets.commands import terminal
from pipeline_assets.commands.inputs import manifests_below, warn_of_listed_rows
from pipeline_assets.corpus.publishing.hub_repo import HF_TOKEN_VARIABLE, HubRepo, hf_token
from pipeline_assets.corpus.stores.download import Store
from pipeline_assets.corpus.stores.hub_store import HubStore
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.trust.pull import find_ref, pull_all
from pipeline_assets.trust.push import push as push_artifact

_MAX_LISTED = 8
_URL_FORMS = "s3://BUCKET/PREFIX, gs://…, az://CONTAINER/PREFIX, file:///FOLDER or hf://datasets/OWNER/NAME"
_HUB_URL = re.compile(r"hf://(?P<kind>datasets|buckets)/(?P<name>[^/]+/[^/]+)/?(?P<prefix>.*)")
StoreUrl = Annotated[str, typer.Argument(help="s3://, gs://, az://, file:// or hf://datasets URL.", metavar="STORE")]


def publish(
    repo: Annotated[str, typer.Argument(help="owner/name on the hub; created if missing.")],
    folder: Annotated[Path, typer.Argument(help="Sealed folder of rows, pools or subsets, or its parent.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without sending anything.")] = False,
    public: Annotated[bool, typer.Option("--public", help="Create a public repository, not a private one.")] = False,
    allow_unknown_licences: Annotated[
        bool, typer.Option("--allow-unknown-licences", help="Include rows of unknown licence.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files or a card of a different origin.")] = False,
    data: terminal.OptionalRoot = None,
) -> None:
    """Publish a sealed folder as a hub dataset; needs HF_TOKEN.

    Example: corpusmill nemotron publish me/pools data/nemotron/nemotron_v1/candidate_pools/nemotron-math-v2
    """
    from pipeline_assets.corpus.publishing.publication import prepare_publication
    from pipeline_assets.corpus.publishing.publish import plan_publication
    from pipeline_assets.corpus.publishing.publish import publish as send

    terminal.log_to_stderr()
    folder = _find_publishable(folder)
    require_manifest(folder)
    root = terminal.data_root(folder, data)
    hub_repo = HubRepo.open(repo, open_hub(root, os.environ), hf_token(os.environ))
    warn_of_listed_rows(folder, root)
    with forbid_replacement(folder), hub_repo.limit_requests():
        owners = hub_repo.check_token()
        artifact = open_artifact(folder)
        publication = prepare_publication(artifact, hub_repo, allow_unknown_licences=allow_unknown_licences)
        plan = plan_publication(publication, hub_repo, replaces=replace)
        details = [*publication.describe_terms(), *plan.lines()]
        terminal.print_lines([*_repo_lines(hub_repo, plan.parent, owners, public), *details])
        if not dry_run:
            commit, plan = send(publication, hub_repo, private=not public, replaces=replace)
            sent = terminal.format_bytes(plan.upload_bytes)
            summary = f"{pluralize(len(plan.commits), 'commit')} created, {sent} sent and read back"
            terminal.print_lines([f"{repo} at {commit}: {summary}" if plan.commits else f"{repo}: already up to date"])


def _find_publishable(folder: Path) -> Path:
    """Return the folder if it is sealed, else the only final artifact below it.

    An artifact is final if it is not a direct input of another publishable artifact below the folder. Raise UsageError
    if there are several final artifacts or none.
    """
    from pipeline_assets.corpus.publishing.publication import ROW_KINDS

    if (folder / MANIFEST_FILE).exists():
        return folder
    manifests = {path: manifest for path, manifest in manifests_below(folder) if manifest.kind in ROW_KINDS}
    used = {entry["digest"] for manifest in manifests.values() for entry in manifest.identity.upstream}
    last = [path for path, manifest in manifests.items() if manifest.digest not in used]
    if not last:
        raise UsageError("no sealed rows to publish found", folder, "choose a folder of pools or normalized rows")
    if len(last) > 1:
        names = ", ".join(map(str, last[:_MAX_LISTED]))
        raise UsageError(f"expected one folder to publish, got {len(last)}: {names}", folder, "pass one of them")
    terminal.print_lines([f"publishing {last[0]}"], err=True)
    return last[0]


def _repo_lines(repo: HubRepo, head_commit: str | None, owners: Collection[str], is_public: bool) -> Iterator[str]:
    if head_commit is not None:
        yield f"{repo.url} exists, at {head_commit}"
        if is_public and (repo.access_settings() or {}).get("private"):
            yield "the repository is private; --public only affects new ones: make it public on its page"
        return
    yield f"{repo.url} will be created, {'public' if is_public else 'private'}"
    owner = repo.name.partition("/")[0]
    if owner not in owners:
        yield f"the token belongs to {', '.join(owners)} and may lack permission to create it for {owner}"


def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    store: StoreUrl,
    upstream: Annotated[bool, typer.Option("--upstream", help="Push all upstream artifacts too.")] = False,
    data: terminal.OptionalRoot = None,
) -> None:
    """Copy a sealed artifact to an object store, or resume the copy.

    Example: corpusmill push data/megatron/healing_text_v1 s3://bucket/corpora --upstream
    """
    require_manifest(folder)
    root = terminal.data_root(folder, data)
    warn_of_listed_rows(folder, root)
    with _open_store(store, root) as opened:
        pushed = push_artifact(folder, root, opened, with_upstream=upstream, log_every_s=LOG_EVERY.read(os.environ))
    main, count = pushed.ref.artifacts[0], pluralize(pushed.artifacts, "artifact")
    state = "new" if pushed.earlier_digest is None else f"was {pushed.earlier_digest}"
    state = "unchanged" if pushed.earlier_digest == main.digest else state
    sent = f"{terminal.format_bytes(pushed.sent_bytes)} sent of {terminal.format_bytes(pushed.bytes)} in {count}"
    compared = "content" if store.startswith("hf:") else "name and size"
    present = "" if pushed.sent_bytes == pushed.bytes else f"; the rest is in the store, compared by {compared}"
    terminal.echo(f"{main.folder}: {main.digest} ({state}), {sent}{present}")


def pull(
    store: StoreUrl,
    folder: Annotated[Path, typer.Argument(help="Folder for the artifact.")],
    ref: Annotated[str | None, typer.Option(help="Name in the store, if FOLDER has another.")] = None,
    upstream: Annotated[bool, typer.Option("--upstream", help="Pull the pushed upstream artifacts too.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another artifact or a damaged one.")] = False,
    data: terminal.OptionalRoot = None,
) -> None:
    """Copy an artifact from an object store; pull again to resume.

    Example: corpusmill pull s3://bucket/corpora data/megatron/healing_text_v1 --upstream
    """
    root = data or find_data_root(folder)
    if upstream and root is None:
        fix = "pass the root of upstream artifacts with --data"
        raise UsageError("the folder is not inside a data root", folder, fix)
    root, typed = (root or folder.parent).resolve(), folder.resolve()
    if data is not None and not typed.is_relative_to(root):
        raise UsageError(f"the folder is not inside the data root {data}", folder, "choose one inside, or omit --data")
    name = typed.relative_to(root).as_posix() if typed.is_relative_to(root) else None
    with _open_store(store, root) as opened:
        found = find_ref(opened, ref, name)
        log_every_s = LOG_EVERY.read(os.environ)
        pulled = pull_all(opened, found, folder, root if upstream else None, replace, log_every_s)
    main, size = found.artifacts[0], terminal.format_bytes(pulled.bytes)
    compared = "intact" if replace else "compared by size (--replace compares the content)"
    present = f"; already present: {pulled.present_artifacts:,}, {compared}" if pulled.present_artifacts else ""
    pulled_size = f"{size} pulled in {pluralize(pulled.artifacts, 'artifact')}"
    terminal.echo(f"{folder}: {main.digest} of {main.folder}, {pulled_size}{present}")
    lacks_upstream = all(entry.belongs_to(main) for entry in found.artifacts)
    if upstream and lacks_upstream and require_manifest(folder).identity.upstream:
        what = "no upstream artifacts were pulled, because none were pushed"
        terminal.echo(f"warning: {main.folder}: {what}; push it with --upstream, then pull again", err=True)
    removals = read_removals(root)
    if lacking := [manifest for manifest in pulled.manifests if lacks_applied_entries(removals, manifest)]:
        what = f"{lacking[0].kind} {lacking[0].name} was built with entries that the removal list of {root} lacks"
        fix = "put its forgotten rows on this list, or copy the folder `removals` of its data root"
        terminal.echo(f"warning: {what}; before it is built again here, {fix}", err=True)


@contextlib.contextmanager
def _open_store(url: str, root: Path) -> Iterator[Store]:
    """Open the store at a URL; raise UsageError if the URL is not valid for a store."""
    terminal.log_to_stderr()
    typed, url = url, url.rstrip("/")
    if ("@" in url and not url.startswith("file:///")) or "?" in url:
        raise UsageError("the URL must not contain credentials or options", "STORE", "set them in the environment")
    if (hub := _HUB_URL.fullmatch(url)) is not None:
        repo = HubRepo.open(hub["name"], open_hub(root, os.environ), os.environ.get(HF_TOKEN_VARIABLE) or None)
        prefix = f"{hub['prefix']}/" if hub["prefix"] else ""
        with repo.limit_requests():
            yield HubStore(url, repo, prefix, hub["kind"] == "buckets")
    elif url.startswith(("s3://", "gs://", "az://", "file:///")):
        yield ObjectStore.open(url)
    else:
        raise UsageError("not the URL of a store", typed, f"write {_URL_FORMS}")
