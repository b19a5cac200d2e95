"""Test files in the order in which they probably notice a change of a function."""

import re
from functools import cache
from pathlib import Path

from mutations import PROJECT, Mutant, imported_modules, module_name, names_imported

RULES = {"sync dropped": ["tests/test_layout.py::test_files_are_written_by_durable_alone"]}
CRASHES = ("tests/crashes/test_power_loss.py", "tests/crashes/test_crash_matrix.py")
NOT_RUN = {"test_layout", "test_project_files", "test_mutants"}  # they compare sources, and notice any change
_TYPED = re.compile(r"\b(corpusmill|started|root|demo_root|stage_a_root|notes_root|demo_hub)\b[(,)]")


def nearest_tests(mutant: Mutant, files: int = 12) -> list[str]:
    """List the nearest test files of a mutant, after the test of its rule.

    These are files named after the module, its importers, files named after importers, and the files of its folder.

    Among equals, tests that name the function come first, then tests of functions before those of typed commands, and
    small files. Crashes follow for syncs, and for modules by which files are written.
    """
    module = module_name(mutant.file)
    importers = {name.rpartition(".")[2] for name, found in imported_modules().items() if module in found}
    folder = Path("tests", *mutant.file.parts[1:-1])
    command = f'"{mutant.file.stem.replace("_", "-")}"'
    is_command = "commands" in mutant.file.parts
    names = re.compile(rf"\b({'|'.join(map(re.escape, mutant.names))})\b")
    ranked = []
    for path, (text, imported) in test_files().items():
        stem = path.stem.removeprefix("test_")
        is_typed = bool(_TYPED.search(text))
        ranks = (
            stem == mutant.file.stem or (path.parent == folder and stem.startswith(mutant.file.stem)),
            module in imported
            or (is_command and is_typed and command in text)
            or ("api" in folder.parts and stem == "api"),
            stem in importers,
            path.parent == folder and folder != Path("tests"),
            mutant.file.stem in stem or stem in mutant.file.stem.split("_"),  # such as test_trace of trace_rows
        )
        if any(ranks):
            ranked.append((ranks.index(True), not names.search(text), is_typed, len(text), str(path)))
    crashes = CRASHES if mutant.rule == "sync dropped" or "spine" in mutant.file.parts else ()
    return [*RULES.get(mutant.rule, []), *[entry[-1] for entry in sorted(ranked)][:files], *crashes]


@cache
def test_files() -> dict[Path, tuple[str, frozenset[str]]]:
    """Return the text and the imports of each test file."""
    paths = sorted(path for path in (PROJECT / "tests").rglob("test_*.py") if path.stem not in NOT_RUN)
    texts = {path.relative_to(PROJECT): path.read_text() for path in paths}
    return {path: (text, names_imported(text.encode())) for path, text in texts.items()}
