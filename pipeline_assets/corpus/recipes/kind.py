"""Kinds of artifacts: which stage makes one, how, and what is asked of it then. Assets build by them, and so does a
rebuild from a manifest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.store import RowStore
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.audit import Verdict, files_match_manifest, ledger_adds_up
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.check_record import CheckResult, keep_results
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.reads import logged
from pipeline_assets.corpus.spine.target import Content, Outside, Target


class Build(Protocol):
    """Seals the artifact that a target describes; one that is there as asked is not touched."""

    def __call__(self, target: Target, run: Run) -> Artifact:
        """The sealed artifact, below the run's data root, as are those that it is made from."""


Make = Callable[[Building, Target, Run], Content]
Describe = Callable[[Target, Path], Content]
Rows = list[dict[str, str]]


def _nowhere(manifest: Manifest, root: Path) -> Outside | None:
    return None


Judge = Callable[[Artifact, Target, Path], Verdict]


@dataclass(frozen=True)
class Check:
    """A question that is asked of every artifact of a kind.

    Attributes:
        question: what must hold, in a sentence.
        judge: of the artifact, its target and the data root.
        is_blocking: whether a failure holds the artifact back; else it is a warning.
    """

    name: str
    question: str
    judge: Judge
    is_blocking: bool = True


def check(judge: Callable[[Artifact], Verdict], *, is_blocking: bool = True) -> Check:
    """The question that a judge's name and docstring say, of an artifact alone."""
    return Check(*_said(judge), lambda artifact, target, root: judge(artifact), is_blocking)


def check_beside(judge: Judge, *, is_blocking: bool = True) -> Check:
    """Likewise, of an artifact beside what it was made from, or is compared to."""
    return Check(*_said(judge), judge, is_blocking)


def _said(judge: Callable[..., Verdict]) -> tuple[str, str]:
    """Its name, and its question."""
    return judge.__name__, (judge.__doc__ or "").split("\n\n")[0].strip()


def _files_match(artifact: Artifact, target: Target, root: Path) -> Verdict:
    from pipeline_assets.corpus.recipes import systems  # which imports every kind

    return systems.files_match_manifest(artifact)


FILES = Check(*_said(files_match_manifest), _files_match)
LEDGER = check(ledger_adds_up)


@dataclass(frozen=True)
class Kind:
    """One kind of artifact: the only place where it is described.

    Attributes:
        name: `system/artifact`.
        stage: the rule that makes it, at the version that this program has.
        build: makes one from its target alone, so that a target read from a manifest will do.
        description: what it is, for people: one line, then more.
        formats: of its files, as the UI marks it.
        outside: where the files of this machine lie that a sealed one below a data root was made from; None where
            there are none.
        labels: names of its files that are no content: they carry a time or a path.
        checks: what is asked of every one. The first is whether its files are as sealed: else nothing more is asked.
        rows: what tracing, peeking, comparing and proving ask of its rows; None where it has none.
        preview: what a person would want to see of it first; by default, where it has rows, the first of them.
        beside: writes what lies beside every one.
    """

    name: str
    stage: StageVersion
    build: Build
    description: str
    formats: frozenset[str] = frozenset()
    outside: Callable[[Manifest, Path], Outside | None] = _nowhere
    labels: tuple[str, ...] = ()
    checks: tuple[Check, ...] = (FILES,)
    rows: type[RowStore] | None = None
    preview: Callable[[Artifact], Rows] | None = None
    beside: Callable[[Artifact], object] | None = None

    def ask(self, target: Target, root: Path) -> list[tuple[Check, Verdict]]:
        """What the checks say of a sealed artifact. All of it that applies is kept beside the artifact at once: what a
        crash comes before is asked again.

        Raises:
            OSError: it can't be kept.
        """
        try:
            artifact = open_artifact(root / target.folder)
        except InputError as damaged:
            return [(FILES, Verdict(False, str(damaged)))]
        said: list[tuple[Check, Verdict]] = []
        for one in self.checks:
            if not said or said[0][1].holds:
                said.append((one, _judged(one, artifact, target, root)))
        results = [
            CheckResult(one.name, verdict.holds, one.is_blocking and not verdict.is_slight, verdict.because)
            for one, verdict in said
            if verdict.applies
        ]
        keep_results(artifact.folder, artifact.manifest.digest, results)
        return said


def _judged(one: Check, artifact: Artifact, target: Target, root: Path) -> Verdict:
    """The verdict; what can't be read fails its check rather than the run."""
    try:
        return one.judge(artifact, target, root)
    except InputError as error:
        return Verdict(False, str(error))


def by_files(make: Make) -> Build:
    """Builds artifacts that hold files: `make` writes them into the building folder."""

    def build(target: Target, run: Run) -> Artifact:
        named = run.naming(target.partition)
        return target.build(run.root, lambda building: make(building, target, named), run.replace, run.provenance())

    return build


def by_members(describe: Describe) -> Build:
    """Builds artifacts whose content is others, folders inside them: `describe` says what they are together."""

    def build(target: Target, run: Run) -> Artifact:
        with logged() as reads:
            content = describe(target, run.root)
            reads.finish()
        return target.seal_members(run.root, content, run.provenance())

    return build
