"""The `corpusmill` program.

Results go to stdout, progress to stderr. Exit status 0 means success, 1 a negative result or failure, 2 wrong usage.

The module of a command is imported only when the command or its help is requested, because imports of the hub client
and Dagster take seconds.
"""

import contextlib
import functools
import gc
import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption
from typer.exceptions import TyperException

from pipeline_assets.commands.catalog import COMMANDS, GROUPS, REMOVED_NAMES
from pipeline_assets.commands.help_text import CommandGroup, name_value_type, write_epilog
from pipeline_assets.commands.interrupts import end_on_ctrl_c
from pipeline_assets.commands.output import discard_output, open_closed_streams, writing_output
from pipeline_assets.commands.settings import HELP_PANEL, Settings, set_variables, signature_parameters
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import require_utf8_names
from pipeline_assets.spine.json_log import check_log_format

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def _removed_name_error(name: str) -> UsageError:
    return UsageError(f"this {'option' if '--' in name else 'command'} was removed", name, REMOVED_NAMES[name])


class Program(CommandGroup):
    """Group of all commands; `corpusmill pack` finds the command `stage-a pack`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (typed := " ".join(args[:2])) in REMOVED_NAMES:
            raise _removed_name_error(typed)
        if args[:1] != ["doctor"]:  # `doctor` reports all invalid settings itself
            check_log_format(os.environ)
        commands = [words for helps in COMMANDS.values() for words in helps]
        return super().resolve_command(ctx, expand_group(args, GROUPS, commands))

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if isinstance(parameter, TyperOption) and parameter.name in ("install_completion", "show_completion"):
                parameter.hidden = True  # all commands must fit on a screen; docs/operations.md names these options
        return parameters


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


def add_command(group: typer.Typer, name: str, help: str, importer: Callable[[], Callable[..., bool | None]]) -> None:
    """Add a command to a group; `importer` imports the command's code on first use."""

    class LazyCommand(TyperCommand):
        def get_params(self, ctx: Any) -> Any:
            if not self.params:
                from pipeline_assets.commands.options import make_command

                command = make_command(importer())
                self.params, self.callback = command.params, command.callback
                for parameter in self.params:
                    if isinstance(parameter, TyperOption):
                        name_value_type(parameter)
                self.epilog = inspect.cleandoc(command.epilog or "").removeprefix(help).strip()
            return super().get_params(ctx)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            parameters = self.get_params(ctx)
            repeatable = {option for entry in parameters if getattr(entry, "multiple", False) for option in entry.opts}
            if all(parameter.param_type_name == "option" for parameter in parameters):
                args = repeat_option(args, repeatable)
            words = [*args]
            try:
                rest = super().parse_args(ctx, args)
            except TyperException as error:
                vars(error)["ctx"] = getattr(error, "ctx", None) or ctx  # unset for an option without its value
                raise
            if any(word == "" or (word.startswith("--") and word.endswith("=")) for word in words):
                _reject_empty_paths(parameters, ctx.params)
            return list(rest)

        def format_options(self, ctx: Any, formatter: Any) -> None:
            parameters = self.params
            settings = [entry for entry in parameters if getattr(entry, "rich_help_panel", None) == HELP_PANEL]
            self.params = [entry for entry in parameters if entry not in settings]
            super().format_options(ctx, formatter)
            self.params = parameters
            with formatter.section(HELP_PANEL):
                formatter.write_text(f"{', '.join(entry.opts[0] for entry in settings)}: see corpusmill --help")

        def format_epilog(self, ctx: Any, formatter: Any) -> None:
            write_epilog(formatter, self.epilog)

    group.command(name, cls=LazyCommand, help=help, short_help=None if group is app else help)(lambda: None)


def _reject_empty_paths(parameters: Iterable[Any], values: Mapping[str, object]) -> None:
    """Raise UsageError for an empty path, which Path would read as `.`."""
    for parameter in parameters:
        value = values.get(parameter.name)
        if Path() in (value if isinstance(value, list | tuple) else [value]):
            is_option = parameter.param_type_name == "option"
            raise _empty_path_error(parameter.opts[0] if is_option else parameter.name.upper())


def _empty_path_error(name: str) -> UsageError:
    return UsageError("must not be empty", name, "pass a path; . is the current folder")


def _add_all_commands() -> None:
    groups = {"": app}
    for name, (help, example) in GROUPS.items():
        parent, _, short_name = name.rpartition(" ")
        groups[name] = typer.Typer(help=help, epilog=f"Example: corpusmill {name} {example}", cls=CommandGroup)
        groups[parent].add_typer(groups[name], name=short_name, no_args_is_help=True)
    for module, helps in COMMANDS.items():
        for words, help in helps.items():
            group, _, name = words.rpartition(" ")
            add_command(groups[group], name, help, functools.partial(_load_function, module, name.replace("-", "_")))


def _load_function(module: str, name: str) -> Any:
    with end_on_ctrl_c():
        return getattr(importlib.import_module(f"pipeline_assets.{module}"), name)


_add_all_commands()


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        typer.echo(version("corpusmill"))
        raise typer.Exit


@dataclass(frozen=True)
class _LeadingOptions(Settings):
    data: Annotated[str | None, typer.Option(metavar="FOLDER", help="Data root. Default: data.")] = None
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False


def _set_leading_options(**values: Any) -> None:
    """Set environment variables for the options that precede the command's name."""
    if values["data"] == "":
        raise _empty_path_error("--data")
    set_variables({name: value for name, value in values.items() if name != "version"})


_set_leading_options.__signature__ = inspect.Signature([*signature_parameters(_LeadingOptions)])  # type: ignore[attr-defined]
app.callback()(_set_leading_options)


def main() -> None:
    """Run the console script, and print expected errors without a traceback."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads would only spin here
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    gc.set_threshold(50_000)  # scanning the imported objects repeatedly took a tenth of a short command
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names that are not UTF-8 and lone surrogates are printed with escapes.
            stream.reconfigure(errors="backslashreplace")
    current_folder = os.curdir
    try:
        current_folder = _current_folder()
        _check_encoding(current_folder)
        is_help = not {"--help", "--version"}.isdisjoint(sys.argv)  # these only write output
        with writing_output() if is_help else contextlib.nullcontext():
            status = app(prog_name="corpusmill", standalone_mode=False)
        with writing_output():
            sys.stdout.flush()
        sys.exit(status)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        discard_output()
        sys.exit(1)
    except TyperException as error:
        if isinstance(error, typer.BadParameter) or "\n" not in error.format_message():
            _exit_with_error(_usage_error(error))
        from pipeline_assets.commands.terminal import echo

        echo(error.format_message(), err=True)  # the help of a group that was typed without a command
        sys.exit(error.exit_code)
    except InputError as error:
        _exit_with_error(error)
    except OSError as error:
        from pipeline_assets.spine.disk_errors import explain_os_error

        _exit_with_error(explain_os_error(error, Path(os.fsdecode(error.filename or current_folder))))


def _current_folder() -> str:
    """Return the current folder; UsageError if it was removed, or replaced by a build."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        fix = "change to another folder, or to this one again (`cd .`) if it was replaced"
        raise UsageError("the current folder was removed", os.environ.get("PWD", os.curdir), fix) from None


def _check_encoding(current_folder: str) -> None:
    """Raise UsageError if file names, an argument or a folder are not UTF-8.

    The folders are the data root and the current one. Parquet and the UI require UTF-8.
    """
    require_utf8_names()
    for name in (*sys.argv[1:], os.environ.get("CORPUSMILL_DATA", ""), current_folder):
        if not name.isprintable() and any(0xDC80 <= ord(letter) <= 0xDCFF for letter in name):
            raise UsageError("the name is not UTF-8", name, "rename the file or folder")


def _usage_error(error: TyperException) -> UsageError:
    """Convert an error of the command-line parser to a UsageError."""
    import pydantic

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "corpusmill"
    parameter, cause = getattr(error, "param", None), error.__cause__
    if parameter is not None and isinstance(cause, pydantic.ValidationError):
        details = cause.errors(include_url=False)[0]
        source = context.get_parameter_source(parameter.name) if context is not None else None
        where = parameter.envvar if getattr(source, "name", "") == "ENVIRONMENT" else parameter.opts[0]
        return UsageError(_value_error_text(details), where, f"see {command} --help")
    what = " ".join(error.format_message().split()).rstrip(".")
    where = command.partition(" ")[2] or "command line"
    option = f"{where} {getattr(error, 'option_name', '')}"
    if option in REMOVED_NAMES:
        return _removed_name_error(option)
    return UsageError(what[:1].lower() + what[1:], where, f"see {command} --help")


_NUMBER_RULES = {
    "greater_than_equal": "at least {ge:.10g}",
    "less_than_equal": "at most {le:.10g}",
    "int_parsing": "an integer",
    "int_parsing_size": "a smaller integer",
    "float_parsing": "a number",
}


def _value_error_text(details: "ErrorDetails") -> str:
    if (rule := _NUMBER_RULES.get(details["type"])) is not None:
        return f"must be {rule.format(**details.get('ctx', {}))}, got {details['input']!r}"
    return details["msg"].removeprefix("Value error, ").rstrip(".")


def _exit_with_error(error: InputError) -> None:
    from pipeline_assets.commands.terminal import print_lines

    lines = [(("corpusmill", "red"), f": {failure}") for failure in (error, *error.others)]
    print_lines([*lines, *getattr(error, "__notes__", [])], err=True)
    sys.exit(2 if isinstance(error, UsageError) else 1)


def expand_group(arguments: list[str], groups: Collection[str], commands: Collection[str]) -> list[str]:
    """Insert the missing group of a command, such as `stage-a` before `pack`.

    A group and a command may have the same name: `dedup --input` becomes `stage-a dedup --input`.
    """
    name, following = "".join(arguments[:1]), "".join(arguments[1:2])
    is_group = name in groups and (not following.startswith("-") or following in ("-h", "--help"))
    matches = [command for command in commands if command.partition(" ")[2] == name]
    if not name or is_group or name in commands or not matches:
        return arguments
    # `normalize` exists in two groups; without a group it is stage A's.
    full_name = next((command for command in matches if command.startswith("stage-a ")), matches[0])
    return [*full_name.split(), *arguments[1:]]


def repeat_option(arguments: list[str], repeatable_options: Collection[str]) -> list[str]:
    """Repeat an option before each value: `--input a b` becomes `--input a --input b`.

    A shell expands an unquoted pattern to several values after one option.
    """
    repeated: list[str] = []
    option = None
    for index, word in enumerate(arguments):
        if word.startswith("-") and word != "-":
            option = word if word in repeatable_options else None
        elif option is not None and index and arguments[index - 1] != option:
            repeated.append(option)
        repeated.append(word)
    return repeated


if __name__ == "__main__":
    main()
