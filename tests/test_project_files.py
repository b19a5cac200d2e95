"""Project files agree with the code and the installed packages."""

import fnmatch
import hashlib
import re
import runpy
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from pipeline_assets.systems.registry import SYSTEMS

PROJECT = Path(__file__).parents[1]
# Published with the text at apache.org/licenses/LICENSE-2.0.txt.
APACHE_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_pytest_enters_every_folder_of_tests(pytestconfig: pytest.Config) -> None:
    tests = PROJECT / "tests"
    folders = {name for path in tests.rglob("test_*.py") for name in path.relative_to(tests).parts[:-1]}

    patterns = pytestconfig.getini("norecursedirs")

    assert "build" in folders
    assert [name for name in sorted(folders) if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []


def test_the_licence_is_the_standard_text() -> None:
    assert hashlib.sha256((PROJECT / "LICENSE").read_bytes()).hexdigest() == APACHE_SHA256


def test_the_changelog_names_every_change_of_a_stage_version() -> None:
    """Replay the changelog from its oldest version to the version of every kind."""
    sections = (PROJECT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    versions: dict[str, str] = {}

    for section in reversed(sections):
        for kind, old, new in re.findall(r"^- `([\w/]+)` (?:(\d+) → )?(\d+|removed)\b", section, re.MULTILINE):
            assert versions.get(kind, "") == old, f"{section.split()[0]}: {kind} {old} → {new}"
            versions[kind] = new

    assert sections[0].startswith("Unreleased\n")
    current = {kind: version for kind, version in versions.items() if version != "removed"}
    written = {name: str(kind.stage.version) for name, kind in SYSTEMS.kinds.items()}
    differing = sorted({name for name, _ in current.items() ^ written.items()})
    assert not differing, f'add a line for each of {differing} to "Digests" of "Unreleased" in CHANGELOG.md'


def test_every_package_with_a_copyleft_licence_is_listed_in_the_readme() -> None:
    """All extras but `peers` are installed; packages without licence data are ignored."""
    rows = re.findall(r"^\| ([\w, -]+) \| A?L?GPL", (PROJECT / "README.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in row.split(", ")}

    copyleft = set()
    for package in metadata.distributions():
        if "_vendor" in str(package.locate_file("")):  # parts of setuptools, covered by its licence
            continue
        fields = [package.metadata.get(field) or "" for field in ("License-Expression", "License")]
        classifiers = [name for name in package.metadata.get_all("Classifier", []) if name.startswith("License")]
        if "GPL" in " ".join([fields[0] or fields[1][:60], *classifiers]):
            copyleft.add(package.name)

    assert {"wikiextractor", "py7zr", "psycopg2-binary"} <= copyleft
    assert copyleft <= listed


def test_unknown_names_and_addresses_are_marked_blanks() -> None:
    texts = {name: (PROJECT / name).read_text() for name in ("SECURITY.md", "CITATION.cff", "pyproject.toml")}

    assert not [name for name, text in texts.items() if re.search(r"[\w.]+@[\w-]+\.\w|https?://|orcid", text)]
    assert "[BLANK: " in texts["SECURITY.md"]
    assert [author["name"] for author in yaml.safe_load(texts["CITATION.cff"])["authors"]] == ["[BLANK: authors]"]


def test_the_citation_has_version_and_licence_of_the_package() -> None:
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    assert (citation["title"], citation["version"]) == (project["name"], project["version"])
    assert (citation["license"], citation["abstract"]) == (project["license"], project["description"])


def test_the_workflow_has_the_steps_of_ci() -> None:
    """The tests on samples are excluded, because no runner has samples."""
    step = re.compile(r"^ *(?:- run: )?(make .+)$", re.MULTILINE)
    workflow = PROJECT / ".github" / "workflows" / "ci.yml"

    steps = [command for command in step.findall((PROJECT / ".ci" / "run").read_text()) if "SAMPLES" not in command]

    assert "make hooks" in steps
    assert step.findall(workflow.read_text()) == steps
    assert [command["run"] for command in yaml.safe_load(workflow.read_text())["jobs"]["test"]["steps"][2:]] == steps


def test_the_hooks_are_local_and_run_tools_of_the_environment() -> None:
    config = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]

    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert [hook["entry"].split(" --")[0] for hook in hooks] == [
        ".venv/bin/ruff format",
        ".venv/bin/ruff check",
        ".venv/bin/mypy",
    ]


def test_the_list_of_files_in_agents_md_is_up_to_date() -> None:
    names = runpy.run_path(str(PROJECT / ".ci" / "tree.py"))
    [listed] = names["BLOCK"].findall((PROJECT / "AGENTS.md").read_text())

    assert listed == names["tree"](), "run `make tree`"


def test_the_docs_have_a_row_for_every_kind() -> None:
    pages = [path.read_text() for path in (PROJECT / "docs").glob("*.md") if path.name != "manifest.md"]
    cells = re.findall(r"^\| `([^`]+)`", "\n".join(pages), re.MULTILINE)  # a kind, or the folder of its artifacts
    listed = {*cells, *(cell.partition("/")[0] for cell in cells)}

    missing = [name for name in SYSTEMS.kinds if listed.isdisjoint({name, name.partition("/")[2]})]
    assert missing == [], "add a row to the table of artifacts on the system's page in docs/"


def test_the_guide_for_a_kind_of_source_runs_every_test_over_all_kinds() -> None:
    guide = (PROJECT / "docs" / "architecture.md").read_text().partition("\n## Add a kind of source")[2]
    command = guide[guide.index("-m pytest") : guide.index("7. **Docs.**")].split()
    paths = {argument.partition("::")[0] for argument in command if argument.startswith("tests/")}
    imports_all_kinds = re.compile(r"from stage_a_sources import .*\bSOURCES\b|import .*\bFileSource\b")

    tests = {path.relative_to(PROJECT).as_posix(): path.read_text() for path in (PROJECT / "tests").rglob("test_*.py")}
    users = {name for name, text in tests.items() if imports_all_kinds.search(text)}

    assert "tests/test_trace_sources.py" in users
    assert sorted(users - paths) == []
    assert [path for path in sorted(paths) if not (PROJECT / path).exists()] == ["tests/corpus/readers/test_new.py"]


def test_each_section_of_contributing_md_has_six_steps_and_names_existing_files() -> None:
    sections = (PROJECT / "CONTRIBUTING.md").read_text().split("\n## ")[1:]

    assert {section.partition("\n")[0]: len(re.findall(r"^\d\. ", section, re.MULTILINE)) for section in sections} == {
        "Set up": 6,
        "Run the quick tests": 6,
        "Change a golden digest": 6,
        "Add a filter": 6,
        "Add a source": 6,
        "Add an artifact": 6,
        "Add a system": 6,
    }
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", "".join(sections))
    roots = (PROJECT, PROJECT / "pipeline_assets", PROJECT / "pipeline_assets" / "corpus")
    missing = [
        path for path in paths if not path.startswith(".venv") and not any((root / path).exists() for root in roots)
    ]
    assert missing == []
