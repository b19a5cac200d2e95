"""The commands and examples of the README and the docs work."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pydantic
import pytest
import yaml
from command_results import Corpusmill, code_blocks, read_commands

from pipeline_assets.build.pins.model_pin import ScoringSection
from pipeline_assets.commands.catalog import COMMANDS, GROUPS
from pipeline_assets.corpus.harmony import parse
from pipeline_assets.corpus.harmony.message import Reason
from pipeline_assets.corpus.scoring import score_shard, token_rows
from pipeline_assets.corpus.scoring.scores import COLUMN_DESCRIPTIONS
from pipeline_assets.corpus.scoring.subset_recipe import SubsetRule, SubsetsRecipe
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.systems.nemotron import KINDS, NemotronRecipe
from resources.store import Store

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
PAGES = [PROJECT / "README.md", *sorted(DOCS.glob("*.md"))]


def read_readme_commands() -> tuple[list[list[str]], list[list[str]]]:
    commands = [command for command in read_commands(PROJECT / "README.md") if command[0] != "ui"]
    first = [command[0] for command in commands].index("pin")
    return commands[:first], commands[first:]


@pytest.mark.slow
def test_the_commands_for_a_local_folder_run(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "my_folder"
    folder.mkdir()
    (folder / "notes.md").write_text("# A note\n\nOf some words alone.\n")
    (folder / "rows.jsonl").write_text("".join(f'{{"text": "Row {row} of words."}}\n' for row in range(20)))
    commands, _ = read_readme_commands()
    assert [command[0] for command in commands] == ["init", "run", "trace"]

    for command in commands:
        result = corpusmill(*(arg.replace("~", str(tmp_path)) for arg in command), cwd=tmp_path)

        assert result.returncode == 0, result.stderr
    assert "rows.jsonl" in result.stdout or "notes.md" in result.stdout


@pytest.mark.slow
def test_the_commands_for_real_data_run_on_a_hub(
    corpusmill: Corpusmill, demo_root: Path, demo_hub: LoopbackHub, tmp_path: Path
) -> None:
    shutil.copytree(demo_root / "recipes", tmp_path / "data" / "recipes")
    _, commands = read_readme_commands()
    assert [command[0] for command in commands] == ["pin", "plan", "run", "verify"]

    for command in commands:
        result = corpusmill(*command, cwd=tmp_path, env={"HF_ENDPOINT": demo_hub.endpoint})

        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_every_command_in_prose_exists(page: Path) -> None:
    text, groups = page.read_text(encoding="utf-8"), "|".join(GROUPS)
    mentioned = re.findall(rf"`corpusmill ((?:(?:{groups}) )?[a-z-]+)", text)

    assert [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not (page.parent / link).exists()] == []
    assert set(mentioned) <= {*GROUPS, *(command for module in COMMANDS.values() for command in module)}


def test_extras_in_pages_and_messages_exist_and_the_table_of_the_readme_is_complete() -> None:
    sources = [*(PROJECT / "pipeline_assets").rglob("*.py"), *(PROJECT / "resources").rglob("*.py")]
    read = {path: path.read_text(encoding="utf-8") for path in (*PAGES, *sources)}

    installing = re.compile(r"(?:install_hint\([\"']|not_installed\(error, [\"']|'\.\[)(\w+)")
    named = {extra for text in read.values() for extra in installing.findall(text)}

    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"faiss", "scoring", "stackexchange", "tokenizers"} <= named <= set(extras)
    assert [path for path, text in read.items() if re.search(r"pip install '?corpusmill\b", text)] == []
    rows = re.findall(r"^\| `(\w+)` \|", read[PROJECT / "README.md"], re.MULTILINE)
    assert set(rows) == set(extras) - {"dev", "peers", "test"}


def test_every_kind_of_nemotron_has_its_folder_in_the_table() -> None:
    page = (DOCS / "nemotron.md").read_text(encoding="utf-8")

    named = {name.partition("/")[0] for name in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)}

    missing = sorted({kind.name.partition("/")[2] for kind in KINDS} - named)
    assert not missing, f"add rows of {missing} to the table of folders in nemotron.md"


def read_tables(heading: str, page: str) -> dict[str, str]:
    """Map each name in the tables of a section to the other cells of its row."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`[^`|]+` ?)+)\| (.+) \|$", section, re.MULTILINE)
    return {name: cells for names, cells in rows for name in re.findall("`([^`]+)`", names)}


def test_the_page_on_scores_has_every_column_reason_and_key() -> None:
    page = (DOCS / "scoring.md").read_text(encoding="utf-8")
    descriptions = read_tables("What scores say", page)

    assert {name: descriptions.get(name) for name in COLUMN_DESCRIPTIONS} == COLUMN_DESCRIPTIONS
    text_reasons = set(re.findall(r"Reason\.([A-Z_]+)", Path(parse.__file__).read_text())) | {Reason.NOT_ENCODABLE.name}
    reasons = {
        *(token_rows.NO_TEXT, token_rows.NO_COMPLETION, token_rows.NO_COMPLETION_LEFT, token_rows.UNKNOWN_LOSS_MODE),
        *(score_shard.NOT_FINITE, score_shard.OUT_OF_MEMORY, *(Reason[name] for name in text_reasons)),
    }
    assert reasons - set(descriptions) == set()
    fields = {key: field for key, field in ScoringSection.model_fields.items() if key != "model"}
    defaults = {key: format_default(field) for key, field in fields.items()}
    assert {key: text.partition(" |")[0] for key, text in read_tables("Recipe", page).items()} == defaults
    keys = [*SubsetsRecipe.model_fields, *SubsetRule.model_fields]
    assert [key for key in keys if f"`{key}`" not in page] == []


def format_default(field: pydantic.fields.FieldInfo) -> str:
    return f"`{field.default if isinstance(field.default, str) else json.dumps(field.default)}`"


def test_recipes_of_the_page_on_scores_are_valid_and_its_rules_are_the_defaults() -> None:
    recipe, rules = map(yaml.safe_load, code_blocks(DOCS / "scoring.md", "yaml"))

    subsets = SubsetsRecipe.from_mapping(rules["subsets"], "the page")
    assert NemotronRecipe.from_mapping(recipe, "the page").subsets == subsets
    recipes = [text for text in code_blocks(DOCS / "nemotron.md", "yaml") if "system:" in text]
    parsed = [NemotronRecipe.from_mapping(yaml.safe_load(text), "the page") for text in recipes]
    assert [recipe.rows is not None and recipe.rows.chat_template is not None for recipe in parsed] == [False, True]
    assert all(recipe.scoring is not None for recipe in parsed)


def test_the_launchpad_example_is_valid_config() -> None:
    example = yaml.safe_load(code_blocks(DOCS / "operations.md", "yaml")[0])

    assert Store(**example["resources"]["store"]["config"]).workers == 2


def test_make_has_the_targets_and_variables_of_the_readme() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    targets = [(target, "") for target in re.findall(r"^make ([a-z-]+)", readme, re.MULTILINE)]
    mentioned = re.findall(r"`make ([a-z]+) ([A-Z][^`]+)`", readme)

    assert {target for target, _ in targets} == {"demo", "ui", "test"}
    assert {target for target, _ in mentioned} == {"demo", "ui"}
    for target, variables in [*targets, *mentioned]:
        command = ["make", "-n", target, *variables.split()]
        planned = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
        assert [arg for arg in variables.split() if arg.partition("=")[2] not in planned] == []


@pytest.mark.slow
def test_python_of_the_readme_reads_a_split(demo_root: Path) -> None:
    pytest.importorskip("megatron.core.datasets.indexed_dataset", reason="megatron-core is not installed")
    code = next(block for block in code_blocks(DOCS / "healing.md", "python") if "megatron" in block)

    result = subprocess.run(
        [sys.executable, "-c", code.replace('"data/', f'"{demo_root}/') + "\nprint(len(train))"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.stdout.strip() == "572", result.stderr
