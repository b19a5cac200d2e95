"""Test files in the order in which they probably notice a change of a function."""

import re
from functools import cache
from pathlib import Path

from mutations import PROJECT, Mutant, imported_modules, module_name, names_imported

NOT_RUN = {"test_layout", "test_project_files", "test_mutants"}  # they compare sources, and notice any change
_TYPED = re.compile(r"\b(corpusmill|started|root|demo_root|stage_a_root|notes_root|demo_hub)\b[(,)]")


def nearest_tests(mutant: Mutant) -> list[str]:
    """List the test files of the module's name, its importers, those of its importers, and its folder.

    Among equals, tests that name the function come first, then tests of functions before those of typed commands, and
    small files.
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
    return [entry[-1] for entry in sorted(ranked)]


@cache
def test_files() -> dict[Path, tuple[str, frozenset[str]]]:
    """Return the text and the imports of each test file."""
    paths = sorted(path for path in (PROJECT / "tests").rglob("test_*.py") if path.stem not in NOT_RUN)
    texts = {path.relative_to(PROJECT): path.read_text() for path in paths}
    return {path: (text, names_imported(text.encode())) for path, text in texts.items()}
