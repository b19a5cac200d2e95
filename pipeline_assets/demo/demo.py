"""The demo, which builds and rebuilds a small corpus of each system offline."""

import logging
import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from pipeline_assets.build.run import Run
from pipeline_assets.commands import terminal
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.spine import durable
from pipeline_assets.spine.install_hints import install_hint
from pipeline_assets.spine.plural import pluralize

HUB_TOKEN = "hf_loopback"  # for reading; a writable hub has its own token
System = Literal["healing", "stage_a", "nemotron", "stage2", "parallel_text"]
_EXTRAS: dict[System, dict[str, str]] = {  # optional modules and their extras
    "stage2": {"py3langid": "languages", "sentencepiece": "tokenizers"},
    "parallel_text": {"sentencepiece": "tokenizers"},
}


def demo(
    data: terminal.Root = Path("data/demo"),
    only: Annotated[System | None, typer.Option(help="Run only this system.")] = None,
    workers: terminal.Workers = 2,
) -> None:
    """Build small corpora of every system, offline.

    Example: corpusmill demo --data data/demo
    """
    terminal.check_root(data)
    Run.from_settings(data, os.environ)  # rejects invalid settings
    terminal.log_to_stderr()
    if not os.environ.get(terminal.VERBOSE_VARIABLE):
        logging.getLogger("corpusmill").setLevel(logging.WARNING)
    durable.make_folder(data)  # fails early if the folder is not writable
    missing: dict[System, list[str]] = {system: missing_extras(system) for system in get_args(System)}
    selected = [system for system, extras in missing.items() if not extras] if only is None else [only]
    terminal.echo("generating the inputs …", err=True)
    # The modules that build the demos take half a second to import, so the line comes first.
    from pipeline_assets.demo.corpora import write_inputs
    from pipeline_assets.demo.demos import build_demo

    for system in selected:
        write_inputs(data, system)
    with LoopbackHub(data / HUB_FOLDER, writable="nemotron" in selected) as hub:
        os.environ.update({"HF_TOKEN": HUB_TOKEN} | hub.client_environment())
        commits = hub.commits()
        datasets = pluralize(len(commits), "generated dataset")
        terminal.echo(f"{datasets} on a hub on loopback, in {data / HUB_FOLDER}")
        for system in selected:
            terminal.print_lines(build_demo(system, data, commits, workers, system == only or system == "stage_a"))
    for system, extras in missing.items() if only is None else ():
        for extra in extras:
            terminal.echo(f"skipped {system}, which needs the extra {extra}: {install_hint(extra)}")
    where = "" if data == Path("data/demo") else f" DATA={shlex.quote(str(data))}"
    terminal.echo(f"view the result:  make ui{where}   (or: {terminal.format_command('ui', '--data', data)})")


def missing_extras(system: System) -> list[str]:
    """List the package extras that a system's demo needs and that are not installed."""
    return sorted({extra for module, extra in _EXTRAS.get(system, {}).items() if find_spec(module) is None})
