"""The sensor that shows what is built: it holds a data root against the instance, and reports what is new.

So what builds, a command or another machine, needs no Dagster for it, and an instance that was lost is filled again:
with the newest content of each artifact, and what its checks said of it.
"""

import contextlib
import graphlib
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg

from pipeline_assets.corpus.spine.artifact import CheckResult, kept_results, open_artifact, record_path
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.events import Shown, asset_key, evaluations, materialization, newest_shown, shown_targets
from pipeline_assets.systems.registry import KINDS, recipe_of_folders

_OUTDATED = "not as asked"  # no code version: what has it is stale
_EVERY_S = 15
_LOOKING_SHARE = 0.05
_AT_MOST_S = 30.0  # Dagster ends a sensor after 60; the next tick goes on


def sensor_of(recipes: Sequence[Recipe], root: Path) -> dg.SensorDefinition:
    """The sensor of a data root. It runs unless it is switched off; where nothing changed, it reads manifests and lists
    source files.
    """
    asked = _asked(recipes, root)
    rests_until = 0.0  # looks at a large root take a twentieth of the time, no more

    @dg.sensor(
        name="sealed_artifacts",
        description=f"Shows what was built in {root} outside of Dagster, and what its checks said",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sealed_artifacts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        nonlocal rests_until
        if (began := time.monotonic()) < rests_until:
            return dg.SkipReason("the last look took long: there is a rest between two")
        there = _sealed(asked, root)
        seen = _fingerprint(there)
        rests_until = began + (time.monotonic() - began) / _LOOKING_SHARE
        if seen == context.cursor:
            return dg.SkipReason("nothing was built since the last look")
        reported = _report(there, root, context.instance)
        if reported is None:
            return dg.SkipReason("there is more to report than fits into a look: the next one goes on")
        context.update_cursor(seen)
        return dg.SkipReason(f"events reported: {reported}")

    return sealed_artifacts


def report_sealed(recipes: Sequence[Recipe], root: Path, instance: dg.DagsterInstance) -> None:
    """Reports what the instance doesn't know yet; of a lot, what can be told in half a minute."""
    _report(_sealed(_asked(recipes, root), root), root, instance)


@dataclass(frozen=True)
class _Sealed:
    """What lies in a folder, as an asset.

    Attributes:
        target: None of what a command made that had no recipe.
        is_outdated: whether the files that it lists are others by now.
    """

    folder: Path
    kind: str
    digest: str
    shown: Shown
    target: Target | None = None
    is_outdated: bool = False


_Asked = Mapping[tuple[Path, str], Sequence[tuple[Target, Shown]]]
"""By folder and kind what recipes ask for there."""


def _asked(recipes: Sequence[Recipe], root: Path) -> _Asked:
    recipe_of = recipe_of_folders(recipes, root)
    asked: dict[tuple[Path, str], list[tuple[Target, Shown]]] = {}
    for recipe in recipes:
        for target, shown in shown_targets(recipe, root, recipe_of):
            asked.setdefault((root / target.folder, target.kind), []).append((target, shown))
    return asked


def _sealed(asked: _Asked, root: Path) -> list[_Sealed]:
    """All that is sealed below a data root, upstream first: of each recipe that asks for it; else by its own name."""
    lineage = Lineage(root)
    made_from = {one.digest: [entry.digest for entry in one.upstream] for one in lineage.sealed.values()}
    ranks = {digest: rank for rank, digest in enumerate(graphlib.TopologicalSorter(made_from).static_order())}
    found = []
    for folder, one in sorted(lineage.sealed.items(), key=lambda item: ranks[item[1].digest]):
        for target, shown in asked.get((folder, one.kind), ()):
            is_outdated = target.outside is not None and target.state(root)[0] == "stale"
            found.append(_Sealed(folder, one.kind, one.digest, shown, target, is_outdated))
        if (folder, one.kind) not in asked and one.kind in KINDS:
            name, _, partition = one.name.partition("/")
            shown = Shown(asset_key(one.kind, name), partition or None, str(KINDS[one.kind].stage.version))
            found.append(_Sealed(folder, one.kind, one.digest, shown))
    return found


def _fingerprint(sealed: Sequence[_Sealed]) -> str:
    """Changes with what is sealed, with what recipes ask of it, with source files, and when checks are asked again."""
    lines = []
    for one in sealed:
        asked_at = 0
        with contextlib.suppress(FileNotFoundError):
            asked_at = record_path(one.folder).stat().st_mtime_ns
        shown = one.shown
        words = (shown.key.to_user_string(), shown.partition, one.digest, shown.code, one.is_outdated, asked_at)
        lines.append(" ".join(map(str, words)))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _report(sealed: Sequence[_Sealed], root: Path, instance: dg.DagsterInstance) -> int | None:
    """How many events were news; None where time ran out before the last. A damaged artifact is passed over."""
    deadline, count, log = time.monotonic() + _AT_MOST_S, 0, instance.event_log_storage
    kinds = {one.shown.key: one.kind for one in sealed}
    known_of = {key: newest_shown(instance, key) for key in kinds}
    results: dict[dg.AssetKey, dict[str | None, Sequence[CheckResult]]] = {key: {} for key in kinds}
    stale: dict[int, bool] = {}
    for one in sealed:
        shown = one.shown
        results[shown.key][shown.partition] = kept_results(one.folder, one.digest) or ()
        digest, code = known_of[shown.key].get(shown.partition, ("", ""))
        is_stale = one.target is not None and _is_stale(one.target, root, stale)
        if digest == one.digest and is_stale == (code != shown.code):
            continue
        if time.monotonic() > deadline:
            return None
        with contextlib.suppress(InputError):
            said = replace(shown, code=_OUTDATED) if is_stale else shown
            instance.report_runless_asset_event(materialization(open_artifact(one.folder), said, instance))
            count += 1
    for key, kind in kinds.items():
        checks = [dg.AssetCheckKey(key, check.name) for check in KINDS[kind].checks]
        known = log.get_latest_asset_check_execution_by_key(checks)
        newest = instance.get_latest_materialization_event(key)
        for event in evaluations(key, KINDS[kind], results[key]):
            record = known.get(event.asset_check_key)
            if record is None or _is_older(record.event, newest) or _words(record.evaluation) != _words(event):
                if time.monotonic() > deadline:
                    return None
                instance.report_runless_asset_event(event)
                count += 1
    return count


def _is_stale(target: Target, root: Path, known: dict[int, bool]) -> bool:
    """Whether `status` calls it stale: it isn't as asked, or what it is made from isn't, or is held back.

    Args:
        known: of targets that were asked for, by their identity: recipes share them.
    """
    if id(target) not in known:
        states = [one.state(root)[0] for one in target.upstream]
        known[id(target)] = (
            target.state(root)[0] == "stale"
            or not {"damaged", "failed"}.isdisjoint(states)
            or any(_is_stale(one, root, known) for one in target.upstream)
        )
    return known[id(target)]


def _is_older(said: dg.EventLogEntry | None, newest: dg.EventLogEntry | None) -> bool:
    """Whether a check said something before the newest materialization: then the UI takes it for not asked."""
    return newest is not None and (said is None or said.timestamp < newest.timestamp)


def _words(event: dg.AssetCheckEvaluation | None) -> tuple[object, ...]:
    """What makes an evaluation news."""
    return () if event is None else (event.passed, event.severity, event.description)
