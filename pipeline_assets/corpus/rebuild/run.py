"""Builds an artifact again from its manifest, beside the sealed one, and judges it."""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_assets.corpus.rebuild.chain import Step, read_chain
from pipeline_assets.corpus.rebuild.outcome import Outcome, judge
from pipeline_assets.corpus.rebuild.put_back import put_back
from pipeline_assets.corpus.rebuild.scratch import Scratch, scratch_folder
from pipeline_assets.corpus.recipes.drive import build_again
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Damage, read_manifest, verify_stored
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.provenance import versions

logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Rebuild:
    """What came of a rebuild.

    Attributes:
        outcomes: upstream first, the artifact that was asked for last.
        kept: folder of the rebuilt artifacts, by their targets' folders; None if it was removed.
    """

    outcomes: Sequence[Outcome]
    kept: Path | None

    @property
    def is_identical(self) -> bool:
        """Whether all came out as their manifests say, and are still sealed so."""
        return all(outcome.verdict == "identical" for outcome in self.outcomes)

    @property
    def is_sound(self) -> bool:
        """Whether what is sealed now is as all manifests say: as it was, or because copies were put back."""
        return all(outcome.verdict == "identical" or outcome.replaced is not None for outcome in self.outcomes)

    def copy_of(self, outcome: Outcome) -> Path | None:
        """Where the rebuilt copy is; None if it was removed, or put back."""
        return None if self.kept is None or outcome.replaced is not None else self.kept / outcome.step.target.folder


def rebuild(
    folder: Path,
    run: Run,
    with_upstream: bool = False,
    keep: bool = False,
    puts_back: bool = False,
) -> Rebuild:
    """The artifact in `folder` built again from what its manifest says, in `rebuilds` of the data root.

    The sealed folder isn't touched, unless copies are put back. Artifacts that are read are hashed as they are, so that
    a damaged one is not taken for a rebuild that differs. A rebuild that was killed is gone on with.

    Args:
        run: upstream artifacts are found in its data root by digest.
        with_upstream: whether what it is made from is built again too, from the hub on; then nothing that is sealed is
            read but manifests, and the files of `folder` to be held against theirs.
        keep: whether the rebuilt copy stays; one that differs always does.
        puts_back: whether copies take the places of what is damaged in `folder`; the damaged is kept.
    Raises:
        UsageError, InputError: see `read_chain`; a damaged input; what a build raises.
    """
    chain = read_chain(folder, run.root, with_upstream)
    asked = chain.steps[-1].manifest
    here = versions()
    ticket = {"digest": asked.digest, "with_upstream": with_upstream, "versions": here}
    with scratch_folder(run.root, _name(asked), ticket) as scratch:
        aside = replace(run, root=scratch.folder, replace=True)
        outcomes: list[Outcome] = []
        for step in chain.steps:
            if any(_is_unlike(outcome, step) for outcome in outcomes):
                outcomes.append(Outcome(step, "not rebuilt"))
                continue
            logger.info("rebuild: %s %s", step.manifest.kind, step.manifest.name)
            _drop_damaged(scratch.folder / step.target.folder)
            try:
                artifact = build_again(step.target, aside)
            except InputError as error:
                raise chain.explained(error) from None
            is_asked = step.place is not None and step.place.absolute().is_relative_to(folder.absolute())
            outcomes.append(judge(step, artifact.manifest, artifact.folder, here, holds_sealed=is_asked))
        if puts_back:
            outcomes = list(_put_back(outcomes, scratch))
        done = Rebuild(outcomes, scratch.kept)
        if keep or not done.is_sound:
            scratch.keep()
            return done
        scratch.remove()
        return Rebuild(outcomes, None)


def _put_back(outcomes: Sequence[Outcome], scratch: Scratch) -> Iterator[Outcome]:
    """The outcomes, after copies took the places of what is damaged."""
    scratch.end()
    for outcome in outcomes:
        step = outcome.step
        if outcome.verdict == "damaged" and step.place is not None:
            copy, kept = scratch.folder / step.target.folder, scratch.kept.with_name(_name(step.manifest))
            yield replace(outcome, replaced=put_back(copy, step.place, step.manifest, kept))
        else:
            yield outcome


def _name(manifest: Manifest) -> str:
    """Of an artifact's folder among the rebuilds."""
    return re.sub(r"[^\w.-]+", "-", f"{manifest.name}-{manifest.digest.partition(':')[2][:12]}")


def _is_unlike(outcome: Outcome, step: Step) -> bool:
    """Whether a step is made from what came out different, so that it would too."""
    return outcome.verdict in ("different", "not rebuilt") and outcome.step.target in step.target.upstream


def _drop_damaged(folder: Path) -> None:
    """What an interrupted rebuild sealed, and is no more as it was: a copy may take a sealed artifact's place."""
    try:
        manifest = read_manifest(folder)
    except InputError:
        durable.remove(folder)
        return
    if manifest is not None and any(isinstance(item, Damage) for item in verify_stored(folder, manifest)):
        durable.remove(folder)
