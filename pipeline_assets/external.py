"""What artifacts are read from and nobody builds: hub datasets at their commit, folders, tokenizer files, the licence
table. Each is a node of the lineage, on which everything hangs that reads it, of any recipe; a sensor looks at them.

What a look finds decides nothing: artifacts are read at their pins. So an observation carries no data version, which
would make everything below it stale.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg

from pipeline_assets.build.pins.model_pin import MODEL_STAGE, ModelFolder
from pipeline_assets.build.pins.split_pin import SplitFolder
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.licences import TABLE, licence_table
from pipeline_assets.corpus.packing.recipe import TokenizerPath
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_http import RepoType
from pipeline_assets.corpus.readers.source_folder import SourceFolder, modified_ns
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256
from resources.store import Hub

_SHORT = 12  # letters of a commit or a digest in a key
_EVERY_S = 600
_AT_MOST_S = 30.0  # Dagster ends a sensor after 60; the next look goes on
Observation: TypeAlias = Callable[[Path, HubFiles], dict[str, Any]]


@dataclass(frozen=True)
class External:
    """One of them.

    Attributes:
        key: what people call it comes last, which is what a node of the UI shows.
        kind: whose sign the UI shows.
        pinned: what recipes say of it.
        observe: what is there now, below a data root or on a hub; InputErrors and OSErrors where it can't be told.
    """

    key: dg.AssetKey
    description: str
    kind: str
    pinned: Mapping[str, str] = field(hash=False)
    observe: Observation = field(compare=False)

    def spec(self) -> dg.AssetSpec:
        """Its node."""
        return dg.AssetSpec(
            self.key, description=self.description, group_name="sources", kinds={self.kind}, metadata=self.pinned
        )


def external_sources(targets: Iterable[Target], root: Path) -> dict[dg.AssetKey, External]:
    """What artifacts below a data root are read from, beside artifacts, by key."""
    return {one.key: one for target in targets for one in _externals(target, root)}


def _externals(target: Target, root: Path) -> Iterable[External]:
    dataset, commit = target.recipe.get("dataset"), target.recipe.get("revision")
    if isinstance(target.external_inputs, SourceFolder):
        yield _folder(target.external_inputs, root)
    elif isinstance(target.external_inputs, SplitFolder | ModelFolder):
        yield _folder(SourceFolder(target.external_inputs.path, ("**/*",)), root)
    elif not target.upstream and isinstance(dataset, str) and isinstance(commit, str):
        yield _on_hub("dataset", dataset, commit)
    elif target.stage == MODEL_STAGE:
        yield _on_hub("model", str(target.recipe["name"]), str(commit))
    if target.tokenizer is not None:
        path = target.external_inputs.path if isinstance(target.external_inputs, TokenizerPath) else VOCABULARY
        yield _tokenizer(target.tokenizer["family"], target.tokenizer["sha256"], path)
    if "licences" in target.recipe:
        yield _LICENCES


def _on_hub(repo_type: RepoType, name: str, commit: str) -> External:
    def look(root: Path, hub: HubFiles) -> dict[str, Any]:
        head = (hub.for_models() if repo_type == "model" else hub).resolve(name)
        return {"head of main": head, "is at the head": head == commit}

    key = dg.AssetKey(["hub", commit[:_SHORT], *name.split("/")])
    pinned = {repo_type: name, "commit": commit}
    return External(key, f"Hub {repo_type} {name} at commit {commit}", "huggingface", pinned, look)


def _folder(folder: SourceFolder, root: Path) -> External:
    path = folder.path  # one folder is one node, however recipes write it
    path = path.relative_to(root) if path.is_relative_to(root) else path

    def look(root: Path, hub: HubFiles) -> dict[str, Any]:
        files = folder.resolve_path(root).files()
        listing = [(one.name, one.bytes, modified) for one, modified in zip(files, modified_ns(files), strict=True)]
        digest = hashlib.sha256(json.dumps(listing).encode()).hexdigest()
        return {"files": len(files), "bytes": sum(one.bytes for one in files), "listing sha256": digest}

    key = dg.AssetKey(["files", *(part for part in path.parts if part != "/")])
    return External(key, f"Files in {path}", "file", {"path": str(path)}, look)


def _tokenizer(family: str, sha256: str, path: Path) -> External:
    def look(root: Path, hub: HubFiles) -> dict[str, Any]:
        found = file_sha256(root / path)
        return {"sha256": found, "is as pinned": found == sha256}

    key = dg.AssetKey(["tokenizers", sha256[:_SHORT], family])
    return External(key, f"Tokenizer {family}", "file", {"sha256": sha256, "path": str(path)}, look)


_LICENCES = External(
    dg.AssetKey(["tables", "licences"]),
    "Tags of licences, and what each asks for",
    "json",
    {"path": str(TABLE)},
    lambda root, hub: {"licences": len(licence_table()), "sha256": licence_table().digest()},
)


def unusable_recipe_node(error: InputError) -> dg.AssetSpec:
    """A recipe that can't be used, as a node that says why."""
    name = Path(str(error.where).partition(".yaml:")[0]).stem
    return dg.AssetSpec(
        ["recipes_left_out", name],
        description="\n\n".join(map(str, (error, *error.others))),
        group_name="recipes_left_out",
        kinds={"yaml"},
    )


def build_observer(externals: Collection[External], root: Path) -> dg.SensorDefinition:
    """The sensor that looks at them: where a head moved, or files changed, the node says so."""

    @dg.sensor(
        name="external_sources",
        description="Looks at hub datasets, folders, tokenizer files and the licence table: heads and digests",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def external_sources(context: dg.SensorEvaluationContext, hub: Hub) -> dg.SensorResult:
        seen: dict[str, Any] = json.loads(context.cursor or "{}")
        files, deadline = hub.files(root, tries=1), time.monotonic() + _AT_MOST_S
        events = []
        # The one that was looked at longest ago comes first: what a look has no time for, the next one begins with.
        for one in sorted(externals, key=lambda one: seen.get(one.key.to_user_string(), {}).get("at", 0.0)):
            if time.monotonic() > deadline:
                break
            try:
                found = one.observe(root, files)
            except (InputError, OSError) as error:
                found = {"can't be read": str(error)}
            name = one.key.to_user_string()
            if seen.get(name, {}).get("found") != found:
                events.append(dg.AssetObservation(one.key, metadata={**one.pinned, **found}))
            seen[name] = {"at": time.time(), "found": found}
        known = {one.key.to_user_string() for one in externals}
        cursor = json.dumps({name: look for name, look in seen.items() if name in known})
        return dg.SensorResult(asset_events=events, cursor=cursor)

    return external_sources
