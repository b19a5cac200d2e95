"""Builds what commands ask for, and shows it where the UI reads: in the instance of the data root."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_assets.corpus.recipes import drive
from pipeline_assets.corpus.recipes.drive import Built
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.checks import CheckResult
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.systems.registry import recipe_of_folders, recipes_of

if TYPE_CHECKING:
    import dagster as dg

logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Outcome:
    """What became of one target.

    Attributes:
        manifest: None where it waits for others, or failed.
        was_current: it was there as asked, nothing was built.
        checks: what they said, if they were asked.
        failure: why it failed, or a check that holds it back.
    """

    target: Target
    manifest: Manifest | None
    was_current: bool
    checks: tuple[CheckResult, ...] = ()
    failure: InputError | None = None


class View:
    """Shows what is built in the UI, as long as the data root's instance can be written: no build depends on it.

    Args:
        root: the data root; None where nothing is to be shown.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root

    def show(self, built: Built, recipe: str) -> None:
        """Reports an artifact, and what its checks said now, to the instance. The first failure is told, and the last.

        Args:
            recipe: the name that its asset has.
        """
        if self._root is None:
            return
        # Dagster is loaded only where there is something to show.
        from pipeline_assets.events import check_evaluations, materialization
        from pipeline_assets.instance import reason_of

        try:
            self._instance.report_runless_asset_event(materialization(built, recipe, self._recipe_of, self._instance))
            for evaluation in check_evaluations(built, recipe):
                self._instance.report_runless_asset_event(evaluation)
        except Exception as error:  # Dagster raises as it likes
            fix = "mend that, or move the folder away: another is made"
            home = self._root.absolute() / "dagster"
            logger.warning("WARNING the UI won't show what is built: %s: %s; %s", home, reason_of(error), fix)
            self._root = None

    @cached_property
    def _instance(self) -> "dg.DagsterInstance":
        from pipeline_assets.instance import open_instance

        assert self._root is not None
        return open_instance(self._root)

    @cached_property
    def _recipe_of(self) -> dict[str, str]:
        assert self._root is not None
        return recipe_of_folders(recipes_of(self._root)[0], self._root)


def run_targets(
    recipe: Recipe,
    run: Run,
    partition: str | None = None,
    kinds: Collection[str] | None = None,
    *,
    goes_on: bool = False,
) -> Iterator[Outcome]:
    """Each target of the recipe, upstream first; those that are current are not built, unless a crash came before their
    checks. One that a check holds back is not built again: it is asked again.

    Args:
        partition: only this partition of partitioned artifacts, and what it is made from.
        kinds: only artifacts of these; None for all.
        goes_on: after a failure with what isn't made from what failed.
    Raises:
        InputError: as a build raised it, or a check holds back what it made. Where it `goes_on`: a RetryableError,
            which every target would meet, a UsageError, which is to be corrected first, or the only failure if no
            target is left after it.
    """
    root = run.root.absolute()  # so that what is said of a file holds in any folder
    run, view = replace(run, root=root), View(root)
    asked = [
        target
        for target in recipe.targets()
        if (target.partition is None or partition is None or target.partition == partition)
        and (kinds is None or target.kind in kinds)
    ]
    failed: set[str] = set()  # roles
    for number, target in enumerate(asked):
        if _is_made_from(failed, target):
            continue
        if _waits(target, asked, root):
            yield Outcome(target, None, False)
            continue
        was_current, is_settled = target.is_sealed(root), target.is_settled(root)
        try:
            if not is_settled:
                view.show(drive.build(target, run), recipe.name)
            target.refuse_failed(root)
        except InputError as failure:
            failed.add(target.role)
            left = [one for one in asked[number + 1 :] if not _is_made_from(failed, one)]
            is_last = all(one.is_settled(root) for one in left)
            if not goes_on or isinstance(failure, RetryableError | UsageError) or (is_last and len(failed) == 1):
                raise
            yield Outcome(target, None, was_current, failure=failure)
        else:
            manifest = read_manifest(root / target.folder)
            checks = () if is_settled or manifest is None else target.results(root, manifest)
            yield Outcome(target, manifest, was_current, checks)


def _is_made_from(roles: Collection[str], target: Target) -> bool:
    return any(upstream.role in roles or _is_made_from(roles, upstream) for upstream in target.upstream)


def _waits(target: Target, asked: Collection[Target], root: Path) -> bool:
    """Whether an artifact of all partitions is made from one that is neither asked for now nor there."""
    roles = {one.role for one in asked}
    return target.partition is None and any(
        one.role not in roles and not one.is_given and not one.is_sealed(root) for one in target.upstream
    )
