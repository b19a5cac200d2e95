"""Seeded mutants: their sample, their nearest tests and their process."""

import importlib
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks"))


def programs(*names: str) -> list[ModuleType]:
    return [importlib.import_module(name) for name in names]


def test_a_sample_is_drawn_in_equal_numbers_and_most_of_it_again_after_an_edit() -> None:
    mutants, mutations = programs("mutants", "mutations")
    file = Path("pipeline_assets/spine/kept_work.py")
    found = list(mutations.find_mutants(file))

    drawn = mutants.draw(found, 12, 7)
    less = mutants.draw(random.Random(1).sample(found, len(found)), 12, 7)

    assert [mutant.key for mutant in drawn] == [mutant.key for mutant in less]
    assert len({mutant.rule for mutant in drawn}) == min(12, len({mutant.rule for mutant in found}))


def test_tests_of_the_modules_name_come_first_and_no_test_that_compares_sources() -> None:
    mutations, nearest = programs("mutations", "nearest_tests")
    [mutant, *_] = mutations.find_mutants(Path("pipeline_assets/spine/kept_work.py"))

    tests = nearest.nearest_tests(mutant)

    assert tests[0] == "tests/spine/test_kept_work.py"
    assert not {"tests/test_layout.py", "tests/test_project_files.py"} & set(tests)


def test_functions_and_methods_that_are_loaded_take_the_code_of_the_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [server] = programs("mutant_server")
    file = tmp_path / "made_for_mutants.py"
    file.write_text(
        "def three():\n    return 3\n\n\nclass Box:\n    @property\n    def size(self):\n        return 4\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = importlib.import_module("made_for_mutants")
    functions = server._find_functions()[str(file.resolve())]
    file.write_text(file.read_text().replace("3\n", "30\n").replace("4\n", "40\n"))

    server._change_functions(file, functions)

    assert (made.three(), made.Box().size) == (30, 40)
    del sys.modules["made_for_mutants"]


def test_compiled_kernels_that_import_a_changed_one_are_compiled_again() -> None:
    [mutations] = programs("mutations")

    assert mutations.affected_kernels("pipeline_assets.spine.kept_work") == frozenset()
    assert "pipeline_assets.corpus.dedup.bitmap" in mutations.affected_kernels("pipeline_assets.corpus.dedup.bitmap")
    assert len(mutations.affected_kernels("pipeline_assets.corpus.compiled")) > 10
