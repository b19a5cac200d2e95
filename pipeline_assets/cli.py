"""`corpusmill`: the commands. Results on stdout, progress on stderr; exit 0 yes, 1 no, 2 wrong use.

Each is a function of its name, in a module that is imported when the command, or its help, is asked for: what others
need, the hub's client or Dagster, costs it nothing.
"""

import functools
import gc
import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from pipeline_assets.commands.output import discard_output, open_closed_streams, writing_output
from pipeline_assets.commands.settings import PANEL, Settings, apply, click_parameters
from pipeline_assets.spine.errors import InputError, UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_GROUPS = {
    "stage-a": (
        "Sources of every kind to Documents of one schema.",
        "normalize --input 'notes/*.jsonl' --out-dir out --domain books --source notes",
    ),
    "dedup": ("Why documents went as duplicates, and which bands find them.", "explain --threshold 0.8"),
    "nemotron": (
        "Rows of the Nemotron datasets, and of others of their layout.",
        "inventory --dataset my/folder --out-dir out",
    ),
    "stage2": ("Licensed corpora to a tokenizer and NumPy token shards.", "process refinedweb_mixture --out-dir out"),
    "stage2 tokenizer": ("The tokenizer of a mixture.", "train --manifest refinedweb_mixture"),
    "parallel": ("Sentence pairs of a translation set, drawn once, and their tokens.", "inspect wmt14_fr_en"),
    "hub": ("A hub on this machine.", "serve ./hub"),
    "tokenizer": ("Pinned tokenizers.", "check FILE"),
    "manifests": ("Manifests that are kept in git.", "export"),
}
# By module: what is typed, and the beginning of its help.
COMMANDS = {
    "commands.admin": {
        "init": "Look at files, and write a recipe for them.",
        "recipes": "List the recipes that there are, with their state.",
        "pin": "Print a dataset's commit; with --recipe, pin it.",
        "tokenizer check": "Check a tokenizer file against its pinned hash.",
        "manifests export": "Copy the manifests of what was built, for commit.",
    },
    "commands.plan": {"plan": "Tell what building a recipe will take; of what is built, planned against real."},
    "commands.build": {
        "run": "Build what a recipe asks for. Warnings of checks come last, again when nothing was to be built."
    },
    "demo.demo": {"demo": "Build small corpora of every system, offline."},
    "demo.mixture": {"stage2 smoke": "Make the shipped mixture, small, up to verified token shards, offline."},
    "demo.stage_a": {"smoke": "Run stage A on five small sources, offline."},
    "demo.nemotron": {"nemotron smoke": "Make six small datasets, their pools, and publish these, offline."},
    "demo.loopback_hub": {"hub serve": "Serve a folder as a hub on loopback, for the real clients."},
    "ui": {"ui": "Open the Dagster UI on a data root; Ctrl-C stops it."},
    "commands.status": {"status": "Tell what lies under the data root, and what needs work."},
    "commands.verify": {"verify": "Hold every file of an artifact against its manifest."},
    "commands.rebuild": {
        "rebuild": "Build an artifact again, beside it, from its manifest; say what differs.",
        "diff": "Tell what makes two artifacts differ, down to their documents.",
    },
    "commands.rows": {
        "trace": "Say which row of which file a token or document came from; with --source, what became of a row.",
        "peek": "Show one sequence or row as a trainer would see it, or one document.",
        "stage-a why": "Say why a document is in or out.",
        "dedup show": "Show a document beside its duplicates, word by word.",
    },
    "commands.stage_a": {
        "stage-a hf-configs": "List a dataset's configs by language and script, matched exactly.",
        "stage-a hf-stream": "Read a sample of hub datasets at a commit.",
        "stage-a ingest-manifest": "Normalise every source of a recipe.",
        "stage-a ingest-wikipedia": "Read what wikiextractor wrote: <doc> elements or JSON lines.",
        "stage-a ingest-stackexchange": "Read sites' Posts.xml or .7z: a source for each, named by its host.",
        "stage-a normalize": "Read local files: .jsonl, .parquet, .txt, compressed or not.",
        "stage-a filter": "Filter what was normalised in the same --out-dir.",
    },
    "commands.corpora": {
        "stage-a dedup": "Drop duplicates of normalised or filtered sources; their order says which is first.",
        "stage-a signatures": "Keep what later corpora are compared by: see `dedup --seen`.",
        "stage-a decontaminate": "Drop documents that hold items of evaluation sets, or cut these out.",
        "stage-a pack": "Pack sources by weight into rows of tokens of one length, of which each token can be traced.",
        "stage-a report": "Tell what sources hold, and what deduplication or decontamination made of them.",
        "dedup explain": "Show how likely a pair is found, by its similarity, and recommend bands, or a distance.",
    },
    "commands.nemotron": {
        "nemotron inventory": "Tell what the rows of each split are: files, columns and types, shares with metadata.",
        "nemotron run-all": "Take the six datasets of the shipped recipe, at their heads, from inventory to pools.",
        "nemotron pools": "Make pools of rows that are sealed already; normalised ones are deduplicated first.",
        "nemotron normalize": "Render the rows of each split as Harmony texts, with exact token counts, as Parquet.",
    },
    "commands.scores": {
        "nemotron score": "Score the completions of pools by a language model: NLL, bits per byte, percentiles.",
        "nemotron percentiles": "Tell how scores that are sealed are spread, by domain, correctness and length.",
        "nemotron subsets": "Choose training subsets by scores that are sealed, as rows and as tokens with a mask.",
    },
    "commands.stage2": {
        "stage2 raw": "Take rows of a hub dataset, with their card, licences and where they are from.",
        "stage2 tokenizer train": "Train the SentencePiece tokenizer that a recipe describes.",
        "stage2 tokenizer check": "Check a tokenizer file against its pinned hash.",
        "stage2 filter": "Filter rows of a hub dataset: repeated windows, length, language.",
        "stage2 process": "Build all that a recipe asks for, up to verified token shards.",
        "stage2 verify": "Read every token shard of a recipe again, and write the inventory of that day.",
        "stage2 docs": "Write the page on the shipped mixtures from their manifests.",
        "stage2 train-config": "Print what a trainer asks of the shards, as YAML.",
    },
    "commands.parallel": {
        "parallel sample": "Draw sentence pairs of a translation set in one pass, and split them once.",
        "parallel encode": "Turn the pairs of a sample into tokens, by a model of theirs or a given one.",
        "parallel inspect": "Show a sample, its tokens, and what padding its batches have.",
    },
    "commands.publish": {
        "export": "Write documents or rows as Parquet or JSON lines, with a dataset card.",
        "nemotron publish": "Make a sealed folder a dataset of a hub, or bring it up to date; needs HF_TOKEN.",
    },
}

_OF_SETS = (
    *("evaluation", "text-column", "id-column", "item", "text-unit", "ngram-words", "min-item-words"),
    *("min-item-overlap", "max-items-per-ngram", "action", "margin-words", "min-kept-words"),
)
# What is typed of a command or an option that there was, and what to do instead.
REMOVED = {
    "parallel overfit": "train on batches of PairLoader, see docs/parallel_text.md",
    "plan --mbit": "no time is planned: divide the bytes to fetch by the network's rate",
    "nemotron publish --onto": "leave it out: publishing continues from the head; --replace replaces another's card",
    "verify --fresh": "leave it out: every verification reads all files",
    "rebuild --put-back": "remove the damaged folder, and run its recipe again: it gets the same digest",
    "plan --gpu-price": "set CORPUSMILL_MODAL_GPU_PRICE: `nemotron score --launcher modal` tells the cost",
    "dedup explain --recall": "leave it out: what is recommended finds 95 % of pairs at the threshold",
    "verify --report": "write what --json prints to a file",
    **dict.fromkeys(
        (f"stage-a decontaminate --{option}" for option in _OF_SETS),
        "write it as a key of the section `decontamination` in the file of --manifest, see docs/decontamination.md",
    ),
}


def _removed(typed: str) -> UsageError:
    return UsageError(f"this {'option' if '--' in typed else 'command'} was removed", typed, REMOVED[typed])


class Program(TyperGroup):
    """The commands, each also by its own name without its group's."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (typed := " ".join(args[:2])) in REMOVED:
            raise _removed(typed)
        commands = [words for helps in COMMANDS.values() for words in helps]
        return super().resolve_command(ctx, expand_group(args, _GROUPS, commands))


app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="LLM training data whose every token traces to a row at a hub commit.",
    epilog="Example: corpusmill run healing_text_v1 --workers 2",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),  # `--out_dir` is `--out-dir`
    },
    cls=Program,
)


def command(group: typer.Typer, name: str, help: str, load: Callable[[], Callable[..., bool | None]]) -> None:
    """Adds a command to a group; its function is loaded, and its options are made, when they are asked for."""

    class Lazy(TyperCommand):
        def get_params(self, ctx: Any) -> Any:
            if not self.params:
                from pipeline_assets.commands.options import make_command

                command = make_command(load())
                self.params, self.callback, self.epilog = command.params, command.callback, command.epilog
            return super().get_params(ctx)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            parameters = self.get_params(ctx)
            several = {option for one in parameters if getattr(one, "multiple", False) for option in one.opts}
            if all(parameter.param_type_name == "option" for parameter in parameters):
                args = repeat_option(args, several)
            return super().parse_args(ctx, args)

        def format_options(self, ctx: Any, formatter: Any) -> None:
            shown = self.params
            also = [one.opts[0] for one in shown if getattr(one, "rich_help_panel", None) == PANEL]
            self.params = [one for one in shown if getattr(one, "rich_help_panel", None) != PANEL]
            super().format_options(ctx, formatter)
            self.params = shown
            with formatter.section(PANEL):
                formatter.write_text(f"{', '.join(also)}: see corpusmill --help")

    group.command(name, cls=Lazy, help=help, short_help=None if group is app else help)(lambda: None)


def _assemble() -> None:
    groups = {"": app}
    for name, (help, example) in _GROUPS.items():
        within, _, own = name.rpartition(" ")
        groups[name] = typer.Typer(help=help, epilog=f"Example: corpusmill {name} {example}")
        groups[within].add_typer(groups[name], name=own, no_args_is_help=True)
    for module, helps in COMMANDS.items():
        for words, help in helps.items():
            group, _, name = words.rpartition(" ")
            command(groups[group], name, help, functools.partial(_function, module, name.replace("-", "_")))


def _function(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"pipeline_assets.{module}"), name)


_assemble()


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("corpusmill"))
        raise typer.Exit


@dataclass(frozen=True)
class _Leading(Settings):
    data: Annotated[str | None, typer.Option(metavar="FOLDER", help="Data root of the command.")] = None
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False


def _options(**given: Any) -> None:
    """LLM training data whose every token traces to a row at a hub commit."""
    apply({name: value for name, value in given.items() if name != "version"})


_options.__signature__ = inspect.Signature([*click_parameters(_Leading)])  # type: ignore[attr-defined]
app.callback()(_options)


def main() -> None:
    """The console script: errors of the user's world are one line, never a traceback."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads would do nothing here but spin
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    gc.set_threshold(50_000)  # looking again and again through what imports made took a tenth of a short command
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that isn't UTF-8 is shown with escapes, as is a lone surrogate.
            stream.reconfigure(errors="backslashreplace")
    try:
        _refuse_other_encodings()
        status = app(prog_name="corpusmill", standalone_mode=False)
        with writing_output():
            sys.stdout.flush()
        sys.exit(status)
    except BrokenPipeError:  # whoever read the output has ended, as `head` does
        discard_output()
        sys.exit(1)
    except TyperException as error:
        if "\n" not in error.format_message():
            _fail(_refused(error))
        from pipeline_assets.commands.terminal import echo

        echo(error.format_message(), err=True)  # the help of a group, of which no command was typed
        sys.exit(error.exit_code)
    except InputError as error:
        _fail(error)
    except OSError as error:
        from pipeline_assets.spine.disk_errors import explain

        _fail(explain(error, Path(os.fsdecode(error.filename or os.getcwd()))))


def _refuse_other_encodings() -> None:
    """Refuse names that aren't UTF-8: Parquet's library and the UI's database take no other."""
    for name in (*sys.argv[1:], os.environ.get("CORPUSMILL_DATA", ""), os.getcwd()):
        if not name.isprintable() and any(0xDC80 <= ord(letter) <= 0xDCFF for letter in name):
            raise UsageError("this name isn't UTF-8", name, "rename it, or type another")


def _refused(error: TyperException) -> UsageError:
    """What the parser of the command line says, in the form of all other errors."""
    import pydantic

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "corpusmill"
    cause = error.__cause__
    if (
        isinstance(error, typer.BadParameter)
        and error.param is not None
        and isinstance(cause, pydantic.ValidationError)
    ):
        complaint = cause.errors(include_url=False)[0]
        source = context.get_parameter_source(error.param.name) if context is not None else None
        where = error.param.envvar if getattr(source, "name", "") == "ENVIRONMENT" else error.param.opts[0]
        return UsageError(f"it is {complaint['input']!r}", where, _range_error(complaint))
    what = error.format_message().rstrip(".")
    where = command.partition(" ")[2] or "command line"
    option = f"{where} {getattr(error, 'option_name', '')}"
    if option in REMOVED:
        return _removed(option)
    return UsageError(what[:1].lower() + what[1:], where, f"see {command} --help")


_RANGE_ERRORS = {
    "greater_than_equal": "give {ge:.10g} or more",
    "less_than_equal": "give {le:.10g} at most",
    "int_parsing": "give a whole number",
    "int_parsing_size": "give a smaller number",
    "float_parsing": "give a number",
}


def _range_error(complaint: "ErrorDetails") -> str:
    if (wanted := _RANGE_ERRORS.get(complaint["type"])) is not None:
        return wanted.format(**complaint.get("ctx", {}))
    return complaint["msg"].removeprefix("Value error, ").rstrip(".")


def _fail(error: InputError) -> None:
    from pipeline_assets.commands.terminal import print_lines

    lines = [(("corpusmill", "red"), f": {one}") for one in (error, *error.others)]
    print_lines([*lines, *getattr(error, "__notes__", [])], err=True)
    sys.exit(2 if isinstance(error, UsageError) else 1)


def expand_group(words: list[str], groups: Collection[str], commands: Collection[str]) -> list[str]:
    """The words with the group of a command whose own name was typed: `dedup --input` is `stage-a dedup --input`.

    Args:
        groups: one of which may be a command's name too.
        commands: in full, `stage-a dedup`.
    """
    name, after = "".join(words[:1]), words[1:2]
    is_group = name in groups and (not after or not after[0].startswith("-") or after[0] in ("-h", "--help"))
    found = [command for command in commands if command.partition(" ")[2] == name]
    if not name or is_group or name in commands or not found:
        return words
    meant = next((command for command in found if command.startswith("stage-a ")), found[0])
    return [*meant.split(), *words[1:]]  # of two `normalize` that of stage A


def repeat_option(words: list[str], repeatable: Collection[str]) -> list[str]:
    """The words with the option before each of its values: `--input a b` is `--input a --input b`, as a shell leaves a
    pattern that it has read.
    """
    told: list[str] = []
    option = None
    for place, word in enumerate(words):
        if word.startswith("-") and word != "-":
            option = word if word in repeatable else None
        elif option is not None and place and words[place - 1] != option:
            told.append(option)
        told.append(word)
    return told


if __name__ == "__main__":
    main()
