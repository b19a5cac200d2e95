"""`corpusmill demo`: stage A beside healing, in one data root, from raw to packed, and once more."""

from pathlib import Path

import dagster as dg
import pytest
from answers import Corpusmill, Typed

from pipeline_assets.events import report_sealed
from pipeline_assets.instance import open_instance
from pipeline_assets.systems.registry import recipes_of

pytestmark = pytest.mark.slow
SOURCES = {"python_help", "wikipedia_en", "coffee.stackexchange.com", "notes", "papers"}
KINDS = ("raw", "normalized", "filtered", "deduplicated", "evaluation", "decontaminated", "packed", "report")


@pytest.fixture(scope="module")
def demo(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Typed]:
    """A data root with stage A alone, and what the command said. Tests only read it."""
    root = tmp_path_factory.mktemp("demo") / "data"
    result = corpusmill("demo", "--data", root, "--only", "stage_a")
    assert result.returncode == 0, result.stderr
    return root, result


def test_every_step_of_five_sources_is_built_and_no_check_fails(demo: tuple[Path, Typed]) -> None:
    lines = [line.split() for line in demo[1].stdout.splitlines()]

    built = [line[2:4] for line in lines if line[:1] == ["built"]]
    assert [kind for kind, _ in built] == [
        *[f"stage_a/{kind}" for _ in SOURCES for kind in KINDS[:3]],
        *[f"stage_a/{kind}" for kind in KINDS[3:]],
    ]
    assert {name for kind, name in built if kind == "stage_a/raw"} == {f"stage_a_v1/{source}" for source in SOURCES}
    assert "FAILED" not in demo[1].stdout


def test_it_fits_a_screen_and_ends_with_what_to_do_next(demo: tuple[Path, Typed]) -> None:
    root, result = demo

    assert len((result.stdout + result.stderr).splitlines()) <= 40  # with healing fifty
    assert result.stdout.splitlines()[-1] == f"look at it:  make ui DATA={root}   (or: corpusmill ui --data {root})"


def test_all_of_it_comes_out_the_same_again(demo: tuple[Path, Typed]) -> None:
    root, result = demo

    folder = root / "stage_a" / "stage_a_v1"
    rebuilt = [line for line in result.stdout.splitlines() if line.startswith("rebuild ")]
    assert rebuilt == [
        f"rebuild {folder / 'packed/stage_a_v1'} --upstream --workers 0: all 19 artifacts identical",
        f"rebuild {folder / 'report/stage_a_v1'} --workers 0: it is identical",
    ]


def test_the_ui_has_partitions_of_the_sources_and_all_is_materialized(demo: tuple[Path, Typed]) -> None:
    with open_instance(demo[0]) as instance:
        report_sealed(recipes_of(demo[0])[0], demo[0], instance)
        for kind in KINDS[:3]:
            assert instance.get_materialized_partitions(dg.AssetKey(["stage_a", "stage_a_v1", kind])) == SOURCES
        for kind in KINDS[3:]:
            assert instance.get_latest_materialization_event(dg.AssetKey(["stage_a", "stage_a_v1", kind])) is not None


def test_a_demo_that_was_killed_while_it_rebuilt_shows_that_once_more(
    demo: tuple[Path, Typed], corpusmill: Corpusmill
) -> None:
    shown = demo[0] / ".rebuilt"
    packed, _ = shown.read_text().splitlines()
    shown.write_text(packed)

    result = corpusmill("demo", "--data", demo[0], "--only", "stage_a")

    assert result.returncode == 0, result.stderr
    [line] = [line for line in result.stdout.splitlines() if line.startswith("rebuild ")]
    assert line.endswith("report/stage_a_v1 --workers 0: it is identical")
