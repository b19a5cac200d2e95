"""External inputs as Dagster assets that a sensor observes.

External inputs are hub repositories at a commit, local folders, tokenizer files and the licence table. Each is one node
of the asset graph, upstream of every asset that reads the input, in any recipe. Assets of recipe versions are not
connected to these nodes.

Observations have no data version and make no asset stale; `sealed_sensor` marks assets stale if local files changed.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg

from pipeline_assets.build.pins.model_pin import MODEL_STAGE, ModelFolder
from pipeline_assets.build.pins.split_pin import SplitFolder
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.licences import TABLE_PATH, licence_table
from pipeline_assets.corpus.markdown import escape
from pipeline_assets.corpus.packing.recipe import TokenizerPath
from pipeline_assets.corpus.readers.hub_errors import RepoType
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFolder, modification_times_ns
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH
from pipeline_assets.sensor_cursor import read_cursor
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.visible import to_one_line
from resources.store import Hub

SOURCES_GROUP, INVALID_GROUP = "sources", "recipes_left_out"
_KEY_HASH_CHARACTERS = 12  # characters of a commit or a digest in a key
_INTERVAL_S = 600
_MAX_TICK_S = 30.0  # Dagster ends a sensor after 60 s; the next tick continues
_HUB_WAIT_S = 10.0  # longer waits for a hub, which sends bytes slowly or not, would exceed that
ObserveFunction: TypeAlias = Callable[[Path, HubFiles], dict[str, Any]]
_Observation: TypeAlias = tuple[float, dict[str, Any]]  # time in seconds since 1970, and values
_NEVER: _Observation = (0.0, {})


@dataclass(frozen=True)
class ExternalAsset:
    """External input of artifacts, as an asset.

    The UI shows the last part of `key` as the name, and `dagster_kind` as an icon. `pinned_values`, which recipes pin,
    are metadata of the asset. `observe` reads the current values in a data root or on a hub; it raises InputError or
    OSError if they are unreadable.
    """

    key: dg.AssetKey
    description: str
    dagster_kind: str
    pinned_values: Mapping[str, str] = field(hash=False)
    observe: ObserveFunction = field(compare=False)

    def spec(self) -> dg.AssetSpec:
        return dg.AssetSpec(
            self.key,
            description=self.description,
            group_name=SOURCES_GROUP,
            kinds={self.dagster_kind},
            metadata=self.pinned_values,
        )


def external_assets(targets: Iterable[Target], root: Path) -> dict[dg.AssetKey, ExternalAsset]:
    """Return the external inputs of targets by asset key."""
    return {external.key: external for target in targets for external in _list_external_assets(target, root)}


def _list_external_assets(target: Target, root: Path) -> Iterable[ExternalAsset]:
    dataset, commit = target.recipe.get("dataset"), target.recipe.get("revision")
    if isinstance(target.external_inputs, SourceFolder):
        yield _folder_asset(target.external_inputs, root)
    elif isinstance(target.external_inputs, SplitFolder | ModelFolder):
        yield _folder_asset(SourceFolder(target.external_inputs.path, ("**/*",)), root)
    elif commit == UNPINNED:
        pass  # no node until a commit is pinned
    elif not target.upstream and isinstance(dataset, str) and isinstance(commit, str):
        yield _hub_asset("dataset", dataset, commit)
    elif target.stage == MODEL_STAGE:
        yield _hub_asset("model", str(target.recipe["name"]), str(commit))
    if target.tokenizer is not None:
        path = target.external_inputs.path if isinstance(target.external_inputs, TokenizerPath) else VOCABULARY_PATH
        yield _tokenizer_asset(target.tokenizer["family"], target.tokenizer["sha256"], path)
    if "licences" in target.recipe:
        yield _LICENCE_TABLE_ASSET


def _hub_asset(repo_type: RepoType, name: str, commit: str) -> ExternalAsset:
    def observe(root: Path, hub: HubFiles) -> dict[str, Any]:
        head = (hub.for_models() if repo_type == "model" else hub).resolve(name)
        return {"head of main": head, "is at the head": head == commit}

    key = dg.AssetKey(["hub", commit[:_KEY_HASH_CHARACTERS], *name.split("/")])
    pinned = {repo_type: name, "commit": commit}
    return ExternalAsset(key, f"Hub {repo_type} {name} at commit {commit}", "huggingface", pinned, observe)


def _folder_asset(folder: SourceFolder, root: Path) -> ExternalAsset:
    path = folder.path  # one folder is one asset, even if recipes write its path in different ways
    path = path.relative_to(root) if path.is_relative_to(root) else path

    def observe(root: Path, hub: HubFiles) -> dict[str, Any]:
        files = folder.resolve_path(root).files()
        times = modification_times_ns(files)
        listing = [(file.name, file.bytes, time_ns) for file, time_ns in zip(files, times, strict=True)]
        digest = hashlib.sha256(json.dumps(listing).encode()).hexdigest()
        return {"files": len(files), "bytes": sum(file.bytes for file in files), "listing sha256": digest}

    key = dg.AssetKey(["files", *map(_key_part, path.parts)])
    return ExternalAsset(key, f"Files in {escape(str(path))}", "file", {"path": str(path)}, observe)


def _key_part(name: str) -> str:
    """Replace characters that Dagster forbids in keys; add a hash if there are any."""
    valid = re.sub("[^A-Za-z0-9_.-]", "_", name)
    return name if valid == name else f"{valid}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _tokenizer_asset(family: str, sha256: str, path: Path) -> ExternalAsset:
    def observe(root: Path, hub: HubFiles) -> dict[str, Any]:
        actual = file_sha256(root / path)
        return {"sha256": actual, "matches the pin": actual == sha256}

    key = dg.AssetKey(["tokenizers", sha256[:_KEY_HASH_CHARACTERS], family])
    return ExternalAsset(key, f"Tokenizer {family}", "file", {"sha256": sha256, "path": str(path)}, observe)


_LICENCE_TABLE_ASSET = ExternalAsset(
    dg.AssetKey(["tables", "licences"]),
    "Licence tags with their terms",
    "json",
    {"path": str(TABLE_PATH)},
    lambda root, hub: {"licences": len(licence_table()), "sha256": licence_table().digest()},
)


def invalid_file_assets(
    recipe_errors: Mapping[str, InputError], schedule_errors: Sequence[InputError]
) -> Iterator[dg.AssetSpec]:
    """Yield an asset for each invalid recipe and one for schedules, with their errors."""
    errors_by_name = {to_one_line(name): [error, *error.others] for name, error in recipe_errors.items()}
    if schedule_errors:  # a recipe file may be called `schedules.yaml.yaml`
        errors_by_name.setdefault("schedules.yaml", []).extend(schedule_errors)
    for name, errors in errors_by_name.items():
        text = "\n\n".join(escape(str(error)) for error in errors)
        yield dg.AssetSpec([INVALID_GROUP, name], description=text, group_name=INVALID_GROUP, kinds={"yaml"})


def external_inputs_sensor(assets: Collection[ExternalAsset], root: Path) -> dg.SensorDefinition:
    """Return the sensor that observes external inputs and reports changed values."""

    @dg.sensor(
        name="external_sources",
        description="Observes heads of hub repositories, files of folders, tokenizer files and the licence table",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def external_sources(context: dg.SensorEvaluationContext, hub: Hub) -> dg.SensorResult:
        seen = read_cursor(context.cursor, dict[str, _Observation], {})
        files = replace(hub.files(root, tries=1), progress_s=_HUB_WAIT_S, timeout_s=_HUB_WAIT_S)
        deadline = time.monotonic() + _MAX_TICK_S
        events = []
        # The oldest observation comes first, so that the next tick starts with the inputs that this one does not reach.
        for external in sorted(assets, key=lambda entry: seen.get(entry.key.to_user_string(), _NEVER)[0]):
            if time.monotonic() > deadline:
                break
            try:
                values = external.observe(root, files)
            except (InputError, OSError) as error:
                values = {"cannot be read": str(error)}
            name = external.key.to_user_string()
            if seen.get(name, _NEVER)[1] != values:
                events.append(dg.AssetObservation(external.key, metadata={**external.pinned_values, **values}))
            seen[name] = (time.time(), values)
        known = {external.key.to_user_string() for external in assets}
        cursor = json.dumps({name: observed for name, observed in seen.items() if name in known})
        return dg.SensorResult(asset_events=events, cursor=cursor)

    return external_sources
