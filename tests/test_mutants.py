"""Seeded mutants: their sample, nearest tests and process."""

import importlib
import random
import sys
from pathlib import Path

import mutants
import mutations
import pytest
from mutant_server import _change_functions, _find_functions
from nearest_tests import nearest_tests


def test_a_sample_is_equal_per_rule_and_independent_of_order() -> None:
    file = Path("pipeline_assets/spine/kept_work.py")
    all_mutants = list(mutations.find_mutants(file))

    sample = mutants.draw(all_mutants, 12, 7)
    shuffled_sample = mutants.draw(random.Random(1).sample(all_mutants, len(all_mutants)), 12, 7)

    assert [mutant.key for mutant in sample] == [mutant.key for mutant in shuffled_sample]
    assert len({mutant.rule for mutant in sample}) == min(12, len({mutant.rule for mutant in all_mutants}))


@pytest.mark.slow
def test_nearest_tests_begin_with_the_modules_own_and_omit_source_checks() -> None:
    [mutant, *_] = mutations.find_mutants(Path("pipeline_assets/spine/kept_work.py"))

    tests = nearest_tests(mutant)

    assert tests[0] == "tests/spine/test_kept_work.py"
    assert not {"tests/test_layout.py", "tests/test_project_files.py"} & set(tests)


@pytest.mark.slow
def test_loaded_functions_and_methods_get_the_changed_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "made_for_mutants.py"
    file.write_text(
        "def three():\n    return 3\n\n\nclass Box:\n    @property\n    def size(self):\n        return 4\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("made_for_mutants")
    functions = _find_functions()[str(file.resolve())]
    file.write_text(file.read_text().replace("3\n", "30\n").replace("4\n", "40\n"))

    _change_functions(file, functions)

    assert (module.three(), module.Box().size) == (30, 40)
    del sys.modules["made_for_mutants"]


def test_compiled_kernels_that_import_a_changed_one_are_recompiled() -> None:
    assert mutations.affected_kernels("pipeline_assets.spine.kept_work") == frozenset()
    assert "pipeline_assets.corpus.dedup.bitmap" in mutations.affected_kernels("pipeline_assets.corpus.dedup.bitmap")
    assert len(mutations.affected_kernels("pipeline_assets.corpus.compiled")) > 10
