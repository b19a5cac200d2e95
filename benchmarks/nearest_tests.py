"""Test files in the order in which they probably notice a change of a function."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from mutations import PACKAGES, PROJECT, Mutant, imported_modules, module_name, names_imported

from pipeline_assets.commands.catalog import COMMANDS

RULES = {"sync dropped": ["tests/test_layout.py::test_files_are_written_by_durable_alone"]}
CRASHES = ("tests/crashes/test_power_loss.py", "tests/crashes/test_crash_matrix.py")
NOT_RUN = {"test_layout", "test_project_files", "test_mutants"}  # they compare sources, and notice any change
_TYPED = re.compile(r"\b(corpusmill|started|root|demo_root|stage_a_root|notes_root|demo_hub)\b[(,)]")
_PHRASE_CHARACTERS = 12  # so long is a piece of a message that no other function prints


def nearest_tests(mutant: Mutant, files: int = 12) -> list[str]:
    """List the nearest test files of a mutant, after the test of its rule.

    These are files that quote messages of the function, files named after the module, its importers, tests with
    builders that import it, files named after importers or that import one, and the files of its folder. Among equals,
    tests that name the function come first, then files that share a word with the module's name, then tests of
    functions before those of typed commands, and small files. Crashes follow for syncs, and for modules by which
    files are written.
    """
    module = module_name(mutant.file)
    importing = {name for name, found in imported_modules().items() if module in found}
    importers = {name.rpartition(".")[2] for name in importing}
    words = set(mutant.file.stem.split("_"))
    folder = Path("tests", *mutant.file.parts[1:-1])
    commands = COMMANDS.get(module.partition(".")[2], {mutant.file.stem.replace("_", "-"): ""})
    typed = ['"' + command.replace(" ", '", "') + '"' for command in commands]  # as tests write the words
    is_command = "commands" in mutant.file.parts or "demo" in mutant.file.parts
    names = re.compile(rf"\b({'|'.join(map(re.escape, mutant.names))})\b")
    phrases = _phrases(mutant)
    ranked = []
    for path, (text, direct, by_builders) in read_test_files().items():
        stem = path.stem.removeprefix("test_")
        is_typed = bool(_TYPED.search(text))
        is_near = path.parent == folder and folder != Path("tests")
        is_here = is_near or path.parent == Path("tests")
        is_named = is_here and stem.startswith(mutant.file.stem)
        ranks = (
            is_named or (is_near and any(phrase in text for phrase in phrases)),
            any(phrase in text for phrase in phrases),
            module in direct
            or (is_command and is_typed and any(command in text for command in typed))
            or ("api" in folder.parts and stem == "api"),
            module in by_builders and is_near,
            stem in importers or module in by_builders,
            is_near,
            not importing.isdisjoint(direct),
            mutant.file.stem in stem or stem in words,  # such as test_trace of trace_rows
        )
        if any(ranks):
            is_other = words.isdisjoint(stem.split("_"))
            ranked.append((ranks.index(True), not names.search(text), is_other, is_typed, len(text), str(path)))
    crashes = CRASHES if mutant.rule == "sync dropped" or "spine" in mutant.file.parts else ()
    return [*RULES.get(mutant.rule, []), *[entry[-1] for entry in sorted(ranked)][:files], *crashes]


def _phrases(mutant: Mutant) -> set[str]:
    """Return pieces of messages in the changed function and those that it calls."""
    called = re.findall(r"\w+(?=\()", mutant.before)
    found = _messages()
    return found[mutant.file, mutant.names[0]].union(
        *(texts for (_, name), texts in found.items() if name in called and len(name) > 7)
    )


@cache
def _messages() -> dict[tuple[Path, str], set[str]]:
    """Return long texts that only one function has, by its file and name."""
    found: dict[tuple[Path, str], set[str]] = defaultdict(set)
    for path in (path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef):
                parts = (part for child in node.body[bool(ast.get_docstring(node)) :] for part in ast.walk(child))
                values = (part.value for part in parts if isinstance(part, ast.Constant))
                texts = (value.strip() for value in values if isinstance(value, str))
                found[path.relative_to(PROJECT), node.name] |= {
                    text for text in texts if len(text) >= _PHRASE_CHARACTERS and " " in text
                }
    counts = Counter(text for texts in found.values() for text in texts)
    return defaultdict(set, {key: {text for text in texts if counts[text] == 1} for key, texts in found.items()})


@cache
def read_test_files() -> dict[Path, tuple[str, frozenset[str], frozenset[str]]]:
    """Return the text of each test file, its imports, and the imports of its builders."""
    folders = (PROJECT / "tests" / name for name in ("builders", "harness", "oracles"))
    builders = {path.stem: names_imported(path.read_bytes()) for folder in folders for path in folder.glob("*.py")}
    files = {}
    for path in sorted((PROJECT / "tests").rglob("test_*.py")):
        if path.stem not in NOT_RUN:
            direct = names_imported(path.read_bytes())
            by_builders = frozenset().union(*(builders[name] for name in direct & builders.keys()))
            files[path.relative_to(PROJECT)] = (path.read_text(), direct, by_builders)
    return files
