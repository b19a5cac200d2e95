"""The command `describe`, which describes a dataset as a standard or law requires."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline_assets.commands.terminal import OptionalRoot, data_root, print_lines
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.lineage import collect_chain
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.registry import SYSTEMS

Form = Literal["croissant", "spdx", "in-toto", "eu-summary", "ab2013", "answers"]
# Share of the domains to list, by the answer to `small_provider`, in the template of the European Commission.
_DOMAIN_SHARE_BY_ANSWER = {"yes": 0.05, "no": 0.1}


def describe(
    folder: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    form: Annotated[Form, typer.Option("--as", help="Form; `answers` lists questions to the publisher.")],
    answers: Annotated[Path | None, typer.Option(help="YAML file with answers to the questions.")] = None,
    data: OptionalRoot = None,
) -> None:
    """Describe a dataset as a standard or a law requires.

    Example: corpusmill describe data/megatron/healing_text_v1 --as croissant > croissant.json
    """
    from pipeline_assets.build.rows.row_facts import row_facts
    from pipeline_assets.corpus.publishing.description import Description, chain_facts, merge_sources, stored_files
    from pipeline_assets.corpus.publishing.forms import form_lines, load_disclosures, read_answers, render_standard

    require_manifest(folder)
    if form == "answers":
        questions = load_disclosures()["questions"].items()
        print_lines((line,) for key, question in questions for line in (f"# {question}", f"{key}:"))
        return
    root, known = data_root(folder, data), {} if answers is None else read_answers(answers)
    is_law = form in ("eu-summary", "ab2013")
    with forbid_replacement(folder):
        manifest, chain = open_artifact(folder).manifest, collect_chain(folder, root)
        facts = {name: found for name, found in chain_facts(chain).items() if found}
        if is_law or (form != "in-toto" and "licences" not in facts):
            stated_by_rows = row_facts(chain, SYSTEMS.kinds, _DOMAIN_SHARE_BY_ANSWER[known.get("small_provider", "no")])
            sources = merge_sources(facts.get("sources", ()), stated_by_rows["sources"])
            facts = {**stated_by_rows, **facts, "sources": sources}
        description = Description(manifest, [*stored_files(folder)], facts, known)
    lines = form_lines(form, description) if is_law else [render_standard(form, description)]
    print_lines((line,) for line in lines)
