"""What commands that build what a user names share: options, places, and what is said of what was built."""

import contextlib
import glob
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from pipeline_assets.commands.terminal import Strict, log_to_stderr
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, UsageError, key

if TYPE_CHECKING:
    from pipeline_assets.corpus.recipes.run import Run
    from pipeline_assets.corpus.spine.artifact import Artifact
    from pipeline_assets.corpus.spine.checks import CheckResult
    from pipeline_assets.corpus.spine.ledger import Ledger
    from pipeline_assets.corpus.spine.target import Target

Inputs = Annotated[list[str], typer.Option("--input", help="File, folder or quoted pattern; repeatable.")]
SealedInputs = Annotated[list[str], typer.Option("--input", help="Folder of a source, or quoted pattern; repeatable.")]
OutDir = Annotated[Path, typer.Option("--out-dir", help="Data root of what is made.")]
OutFolder = Annotated[Path, typer.Option("--out-dir", help="Folder of what is made.")]
MemoryMib = Annotated[
    int,
    typer.Option(min=1, envvar="CORPUSMILL_MEMORY_MIB", help="What data may take, of all processes; the rest spills."),
]


@dataclass(frozen=True)
class Flags:
    """Options of every command that builds what is named on it."""

    cpu_threads: Annotated[
        int, typer.Option("--cpu-threads", min=0, envvar="CORPUSMILL_WORKERS", help="Worker processes; 0 uses none.")
    ] = min(16, os.cpu_count() or 1)
    log_every: Annotated[int, typer.Option("--log-every", min=1, envvar="CORPUSMILL_LOG_EVERY", help="Seconds.")] = 300
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False
    replace: Annotated[bool, typer.Option("--replace", help="Replace what other settings made.")] = False

    def run(self, root: Path, memory_mib: int | None = None, faiss_gpu: int | None = None) -> "Run":
        """The settings of a build below a root, of options and, for what is none, of the environment; logs as they say.

        Raises:
            UsageError: a variable that can't be used.
        """
        from pipeline_assets.corpus.recipes.run import Run

        run = Run.of(
            root,
            os.environ,
            workers=self.cpu_threads,
            log_every_s=self.log_every,
            memory_mib=memory_mib,
            faiss_gpu=faiss_gpu,
            replace=self.replace,
        )
        log_to_stderr()
        if self.verbose:
            logging.getLogger("corpusmill").setLevel(logging.DEBUG)
        return run


@dataclass(frozen=True)
class StrictFlags(Flags):
    """The same, where warnings of checks may matter."""

    strict: Strict = False


def name_of(source: str) -> str:
    """A source's name as recipes have it: lower case, with hyphens for what can't stand in it."""
    return "".join(letter if letter.isalnum() or letter in "_.-" else "-" for letter in source.lower()).strip("-.")


def sealed_folders(patterns: Sequence[str]) -> list[Path]:
    """Folders that hold a sealed artifact, in the order of the patterns, then of their names; each once.

    Raises:
        UsageError: a pattern matches none, or none that those before it don't.
    """
    from pipeline_assets.corpus.spine.manifest import FILE_NAME

    folders: dict[Path, Path] = {}
    for pattern in patterns:
        matches = sorted(Path(match).absolute() for match in glob.glob(pattern, recursive=True))
        found = [match for match in matches if (match / FILE_NAME).is_file()]
        if not found:
            raise UsageError("no sealed source matches", pattern, "give folders that hold a manifest.json")
        new = {match.resolve(): match for match in found if match.resolve() not in folders}
        if not new:
            raise UsageError("it is given twice", pattern, "give it once")
        folders |= new
    return list(folders.values())


@dataclass(frozen=True)
class Place:
    """Where one thing is made.

    Attributes:
        folder: absolute.
        data_root: whose UI shows it; None where it lies in none.
    """

    folder: Path
    data_root: Path | None

    @classmethod
    def at(cls, out_dir: Path) -> Self:
        """
        Raises:
            UsageError: it is a file, or would lie within an artifact, which is sealed.
        """
        from pipeline_assets.corpus.spine.lineage import root_of
        from pipeline_assets.corpus.spine.manifest import FILE_NAME

        folder = out_dir.absolute()
        if folder.is_file():
            raise UsageError("a file lies where a folder belongs", folder, "give another folder, or move the file away")
        around = next((above for above in folder.resolve().parents if (above / FILE_NAME).is_file()), None)
        if around is not None:
            fix = f"give {key('name', 'it')} another folder"
            raise UsageError(f"it lies within {around}, which is sealed", out_dir, fix)
        return cls(folder, root_of(folder))

    @property
    def root(self) -> Path:
        """What it is built below."""
        return self.data_root or self.folder.parent

    @property
    def below(self) -> Path:
        """Its folder below that."""
        return self.folder.relative_to(self.root)

    def build(self, target: "Target", run: "Run") -> "Artifact":
        """What is made, or is there as asked.

        Raises:
            InputError: as `drive.build`.
        """
        from pipeline_assets.launch import build_one

        return build_one(target, run, self.data_root).artifact

    def warn_of_other_roots(self, folders: Sequence[Path]) -> None:
        """Says which inputs lie outside the data root of what is made of them: there, lineage ends."""
        root = self.root.resolve()
        for folder in folders:
            if not folder.resolve().is_relative_to(root):
                what = f"warning: {folder} lies outside {root}: trace, report and verify --upstream of what is made of"
                fix = "give --out-dir a folder below stage_a/ of its data root"
                typer.echo(f"{what} it will miss it; {fix}", err=True)


def build_normalized(recipe: Any, path: Path, run: "Run", strict: bool) -> None:
    """Runs the recipe's sources up to their Documents."""
    from pipeline_assets.systems.stage_a import NORMALIZED, RAW

    build(recipe, path, run, strict, {RAW.name, NORMALIZED.name})


def build(recipe: Any, path: Path, run: "Run", strict: bool, kinds: Collection[str]) -> None:
    """Builds artifacts of these kinds; tells which Documents came out. Errors as `build_each`, or `warning_last`."""

    def build_one(source: str) -> None:
        _build_source(recipe, source, run, kinds)

    with warning_last([target for target in recipe.targets() if target.kind in kinds], run.root, strict):
        build_each([source.source for source in recipe.sources], build_one, "sources", path)


def build_each(parts: Sequence[str], build_one: Callable[[str], None], noun: str, where: Path) -> None:
    """Builds part after part; one that fails keeps none of the others from it.

    Args:
        noun: what parts are, several of them.
    Raises:
        RetryableError: at once, since every part would meet it.
        InputError, UsageError: which of several parts failed, after the others were built; of the only one, why.
    """
    failures: dict[str, InputError] = {}
    for part in parts:
        try:
            build_one(part)
        except InputError as error:
            if isinstance(error, RetryableError) or len(parts) == 1:
                raise
            typer.echo(f"FAILED {part}: {error}", err=True)
            failures[part] = error
    if failures:
        raise some_failed(failures, f"{len(parts)} {noun}", where, "the others are built")


def some_failed(failures: Mapping[str, InputError], parts: str, where: Path, others: str) -> InputError:
    """What to say at the end, when each failure was told in a line.

    Args:
        failures: by part.
        parts: how many there are of what.
        others: what became of them.
    """
    what = f"{len(failures)} of {parts} failed: {', '.join(failures)}"
    is_usage = all(isinstance(error, UsageError) for error in failures.values())
    return (UsageError if is_usage else InputError)(what, where, f"the lines that begin with FAILED say why; {others}")


def check_line(target: "Target", result: "CheckResult") -> str:
    """What a check said of an artifact."""
    return f"check {target.name}: {result.name}: {result.word}: {result.because}"


def tell_warnings(targets: Iterable["Target"], root: Path) -> bool:
    """What checks warned of, said last, where it is read; whether any did."""
    from pipeline_assets.corpus.spine.artifact import read_manifest

    has_warned = False
    for target in targets:
        with contextlib.suppress(InputError):  # of a damaged one there is more to say
            manifest = read_manifest(root / target.folder)
            for one in target.results(root, manifest) if manifest is not None else ():
                if not (one.passed or one.holds_back):
                    typer.echo(check_line(target, one), err=True)
                    has_warned = True
    return has_warned


@contextlib.contextmanager
def warning_last(targets: Sequence["Target"], root: Path, strict: bool) -> Iterator[None]:
    """After the block, and after one that failed, what checks warned of.

    Raises:
        typer.Exit: with 1, if one did and it is `strict`.
    """
    try:
        yield
    except InputError:
        tell_warnings(targets, root)
        raise
    if tell_warnings(targets, root) and strict:
        raise typer.Exit(1)


def _build_source(recipe: Any, source: str, run: "Run", kinds: Collection[str]) -> None:
    from pipeline_assets.corpus.normalize.converted import group_manifest
    from pipeline_assets.corpus.spine.artifact import open_artifact
    from pipeline_assets.launch import run_targets
    from pipeline_assets.systems.stage_a import NORMALIZED

    for outcome in run_targets(recipe, run, source, kinds):
        artifact = open_artifact(run.root / outcome.target.folder)
        if "ledger" in artifact.manifest.identity.counts:
            ledger = artifact.manifest.identity.ledger
            typer.echo(f"{artifact.folder}\n  {artifact.manifest.digest}")
            typer.echo(f"  {ledger.rows_in:,} rows in = {ledger.out:,} documents{_others(ledger)}")
        if outcome.target.kind == NORMALIZED.name:
            typer.echo(f"  {group_manifest(artifact.folder)}")


def _others(ledger: "Ledger") -> str:
    parts = (
        f"{count:,} {fate} ({reason})" if reason else f"{count:,} {fate}" for fate, reason, count in ledger.fates()
    )
    return "".join(f" + {part}" for part in parts)
