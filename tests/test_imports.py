"""Imports that cost time at each start: pandas in any command, Nemotron in others.

pandas takes 0.3 CPU seconds and 40 MiB per process. `refused_imports` guards each process of a command that a test
types; these tests cover the rest of the claim.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import DOCS, read_commands
from refused_imports import refusing_environment, take_notes

from pipeline_assets.cli import expand_group
from pipeline_assets.commands.catalog import COMMANDS, GROUPS

TESTS = Path(__file__).parent
NAMES = [words for helps in COMMANDS.values() for words in helps]
TYPED = re.compile(r'\b(?:corpusmill|typed|started|in_shell)\(\s*((?:"[^"\n]*",?\s*)+)')


def run_python(code: str, notes: Path) -> str:
    """Run code in a process that refuses pandas; return the record of its imports."""
    paths = "import sys; sys.path[:0] = ['tests/builders', 'tests/harness']\n"
    environment = refusing_environment(notes)
    subprocess.run([sys.executable, "-c", paths + code], cwd=TESTS.parent, env=environment, check=True)
    return take_notes(notes)


@pytest.mark.parametrize(
    "code",
    [
        "import contextlib\nwith contextlib.suppress(ImportError): import pandas",
        "import pyarrow; pyarrow.schema([('ids', pyarrow.int32())]).empty_table()",
        "import pyarrow, multiprocessing\n"
        "worker = multiprocessing.get_context('fork').Process(target=pyarrow.Table.from_pylist, args=([{'ids': 1}],))\n"
        "worker.start(); worker.join()",
    ],
    ids=["plain", "by a library", "in a fork"],
)
def test_an_import_is_recorded_even_if_a_library_ignores_its_failure(code: str, tmp_path: Path) -> None:
    assert run_python(code, tmp_path / "notes").startswith("pandas was imported by ")


def test_each_command_is_typed_by_a_test() -> None:
    sources = [file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py")]
    pages = {page for source in sources for page in re.findall(r'type_page\("(.+?)"', source)} | {"seeds.md"}
    typed = [words for page in pages for words in read_commands(DOCS / page)]
    typed += [re.findall(r'"(.*?)"', line) for source in sources for line in TYPED.findall(source)]

    lines = [" ".join(expand_group(words, GROUPS, NAMES)) + " " for words in typed]
    assert [name for name in NAMES if not any(line.startswith(f"{name} ") for line in lines)] == []


@pytest.mark.slow
@pytest.mark.parametrize("system", ["healing", "stage_a", "nemotron", "stage2", "parallel_text"])
def test_workers_of_a_system_import_no_pandas(system: str, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from demo_systems import build_system
from pipeline_assets.spine.engine import RunSettings
if __name__ == "__main__":
    assert build_system({system!r}, Path({str(tmp_path / "root")!r}), RunSettings(2))
"""
    assert run_python(code, tmp_path / "notes") == ""


def test_pages_of_other_systems_load_no_code_of_nemotron() -> None:
    code = """
import sys
from pipeline_assets.systems import healing, parallel_text, stage2_mixture, stage_a
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, capture_output=True, text=True, check=True)

    packages = ("jinja2", "pipeline_assets.corpus.chat_templates", "pipeline_assets.corpus.nemotron")
    assert "pipeline_assets.corpus.packing" in loaded.stdout.split()
    assert [name for name in loaded.stdout.split() if name.startswith(packages)] == []
