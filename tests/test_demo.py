"""`corpusmill demo` builds stage A from raw files to packed rows and a report."""

import shlex
from pathlib import Path

import dagster as dg
import pytest
from command_results import Corpusmill, Result
from description_checks import check_standards, describe_artifact

from pipeline_assets.corpus.markdown import escape
from pipeline_assets.corpus.publishing.forms import form_lines
from pipeline_assets.instance import open_instance
from pipeline_assets.sealed_sensor import report_sealed_artifacts
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS

pytestmark = pytest.mark.slow
SOURCES = {"handbook", "wikipedia_en", "coffee.stackexchange.com", "notes", "papers"}
KINDS = ("raw", "normalized", "filtered", "deduplicated", "evaluation", "decontaminated", "packed", "report")


@pytest.fixture(scope="module")
def demo(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Run the demo of stage A; tests only read its data root."""
    root = tmp_path_factory.mktemp("demo") / "data"
    result = corpusmill("demo", "--data", root, "--only", "stage_a")
    assert result.returncode == 0, result.stderr
    return root, result


def test_every_artifact_is_rebuilt_identically_and_no_check_fails(demo: tuple[Path, Result]) -> None:
    [line] = [line for line in demo[1].stdout.splitlines() if line.startswith("stage_a ")]

    built, rebuilt, report = line.split("; ")
    assert built.split()[1:3] == ["20", "artifacts"]
    assert rebuilt == "rebuilt, 1 worker: all 20 identical"
    assert report.startswith("stage_a/report sha256:")
    assert demo[1].stderr == "generating the inputs …\n" and "FAILED" not in demo[1].stdout


def test_actual_shares_are_next_to_the_targets(demo: tuple[Path, Result]) -> None:
    lines = [line.split() for line in demo[1].stdout.splitlines()]

    first = lines.index(["source", "target", "actual", "tokens", "epochs"])
    shares = {name: (target, actual) for name, target, actual, _, _ in lines[first + 1 : first + 6]}
    assert {name: target for name, (target, _) in shares.items()} == {
        "handbook": "60.0%",
        "wikipedia_en": "13.0%",
        "coffee.stackexchange.com": "8.0%",
        "notes": "7.0%",
        "papers": "12.0%",
    }
    assert all(abs(float(target[:-1]) - float(actual[:-1])) < 1 for target, actual in shares.values())


def test_output_fits_on_a_screen_and_ends_with_the_next_command(demo: tuple[Path, Result]) -> None:
    root, result = demo

    assert len((result.stdout + result.stderr).splitlines()) <= 21  # 45 for all systems, with the lines of make
    assert (
        result.stdout.splitlines()[-1] == f"view the result:  make ui DATA={root}   (or: corpusmill ui --data {root})"
    )


@pytest.fixture(scope="module", params=["healing", "stage_a", "nemotron", "stage2", "parallel_text"])
def system_demo(
    corpusmill: Corpusmill,
    tmp_path_factory: pytest.TempPathFactory,
    demo: tuple[Path, Result],
    request: pytest.FixtureRequest,
) -> tuple[str, Path, Result]:
    """Run the demo of a system; tests only read its data root."""
    root = tmp_path_factory.mktemp("system") / "a b"
    if request.param == "stage_a":
        return request.param, *demo
    return request.param, root, corpusmill("demo", "--data", root, "--only", request.param)


def test_each_kind_of_artifact_has_a_valid_description_in_every_form(system_demo: tuple[str, Path, Result]) -> None:
    _, root, _ = system_demo
    first = {manifest.kind: folder for folder, manifest in reversed(Lineage(root).manifests.items())}

    assert len(first) >= 3
    for kind, folder in first.items():
        description = describe_artifact(folder, root)
        check_standards(description)
        for form in ("eu-summary", "ab2013"):
            lines = list(form_lines(form, description))
            assert f"| {escape(kind)} " in "".join(lines) or form == "ab2013"
            assert all(line.count(" | ") == 2 for line in lines if line.startswith("| "))


def test_next_steps_of_a_system_work_when_pasted(corpusmill: Corpusmill, system_demo: tuple[str, Path, Result]) -> None:
    system, _, result = system_demo

    lines = result.stdout.splitlines()
    steps = [shlex.split(line) for line in lines[lines.index("  next steps:") + 1 : -1]]
    assert [words[0] for words in steps] == ["corpusmill"] * 3
    assert [words[1] for words in steps][1:] == ["peek", "trace"]
    for words in steps:
        answer = corpusmill(*words[1:])
        assert answer.returncode == 0 and answer.stdout, answer.stderr
    reports = [Path(line.partition("report  ")[2]) for line in lines if line.startswith("  report  ")]
    assert len(reports) == (system in ("stage_a", "nemotron")) and all(path.is_file() for path in reports)


def test_ui_has_partitions_of_the_sources_and_all_are_materialized(demo: tuple[Path, Result]) -> None:
    with open_instance(demo[0]) as instance:
        report_sealed_artifacts(SYSTEMS.load_recipes(demo[0])[0], demo[0], instance)
        for kind in KINDS[:3]:
            assert instance.get_materialized_partitions(dg.AssetKey(["stage_a", "stage_a_v1", kind])) == SOURCES
        for kind in KINDS[3:]:
            assert instance.get_latest_materialization_event(dg.AssetKey(["stage_a", "stage_a_v1", kind])) is not None


def test_demo_killed_during_its_rebuild_rebuilds_again(demo: tuple[Path, Result], corpusmill: Corpusmill) -> None:
    again = corpusmill("demo", "--data", demo[0], "--only", "stage_a")
    (demo[0] / ".rebuilt").write_text("")

    result = corpusmill("demo", "--data", demo[0], "--only", "stage_a")

    assert (again.returncode, result.returncode) == (0, 0), result.stderr
    assert "all 20 artifacts are up to date" in again.stdout and "; rebuilt before; " in again.stdout
    assert "all 20 artifacts are up to date" in result.stdout and "all 20 identical" in result.stdout
