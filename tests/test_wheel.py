"""The installed wheel works in an empty folder, without the checkout on its path."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
from pathlib import Path

import pytest
from checkout import copy_checkout
from command_results import Result
from free_ports import free_port

PROJECT = Path(__file__).parents[1]
EXTRAS = ("py3langid", "sentencepiece")  # modules that `pip install .` does not install
NOTEBOOK = """
from corpusmill import open_folder, run
run("notes")
print(open_folder("data/stage_a/notes/packed/notes").trace(token=0)[0].text.source)
"""
MODAL = "from modal_jobs.nll_scoring import build_image; build_image([])"


def run(*args: object, cwd: Path, **variables: str) -> Result:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CORPUSMILL_", "HF_"))}
    result = subprocess.run([*map(str, args)], cwd=cwd, env=base | variables, capture_output=True, text=True)
    assert result.returncode == 0, f"{args}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and return the `bin` folder of its environment.

    The environment has the wheel's dependencies, without packages of optional parts. They come from the tests'
    environment: a line in a .pth file adds its folder without its .pth files, so the editable installation of the
    project stays inactive.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source, wheels, environment = folder / "source", folder / "wheels", folder / "environment"
    copy_checkout(source)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", wheels, source, cwd=folder)
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    [wheel] = wheels.glob("*.whl")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    paths = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip()
    hidden = "; ".join(f"sys.modules[{name!r}] = None" for name in EXTRAS)
    Path(paths, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\nimport sys; {hidden}\n")
    return environment / "bin"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def notes(installed: Path, empty: Path) -> Path:
    """Build a small folder with `init` and `run` in the empty folder, and return it."""
    (empty / "mine").mkdir()
    (empty / "mine" / "rows.jsonl").write_text("".join(f'{{"text": "Row {row} of words."}}\n' for row in range(20)))
    run(installed / "corpusmill", "init", "notes", "--input", "mine", cwd=empty)
    run(installed / "corpusmill", "run", "notes", cwd=empty)
    return empty


@pytest.mark.slow
def test_a_source_distribution_contains_the_linked_files(installed: Path) -> None:
    source = installed.parents[1] / "source"
    code = "from setuptools.build_meta import build_sdist; print(build_sdist('..'))"

    archive = run(sys.executable, "-c", code, cwd=source).stdout.splitlines()[-1]

    with tarfile.open(source.parent / archive) as tar:
        shipped = {name.partition("/shipped/")[2] for name in tar.getnames() if tar.getmember(name).isfile()} - {""}
    assert shipped >= {"constraints.txt", "dagster.yaml", "workspace.yaml", "manifests/licences.json"}
    assert {name for name in shipped if name.startswith("manifests/recipes/")} == {
        path.relative_to(PROJECT).as_posix() for path in (PROJECT / "manifests" / "recipes").glob("*.yaml")
    }


@pytest.mark.slow
def test_the_wheel_is_imported_from_its_environment(installed: Path, empty: Path) -> None:
    modules = "corpusmill, pipeline_assets, resources, modal_jobs"
    code = f"import {modules}; print(*(module.__file__ for module in ({modules})))"

    imported = run(installed / "python", "-c", code, cwd=empty).stdout.split()

    assert all(Path(path).is_relative_to(installed.parent) for path in imported)


@pytest.mark.slow
def test_smoke_runs(installed: Path, empty: Path) -> None:
    assert "corpusmill ui --data out" in run(installed / "corpusmill", "smoke", cwd=empty).stdout


@pytest.mark.slow
def test_the_python_api_builds_and_opens_a_folder(installed: Path, notes: Path) -> None:
    source = run(installed / "python", "-c", NOTEBOOK, cwd=notes).stdout

    assert "rows.jsonl" in source


@pytest.mark.slow
def test_a_build_from_a_wheel_records_no_commit_of_its_parent_folder(installed: Path, notes: Path) -> None:
    """An environment is often inside the checkout of another project."""
    repository = installed.parents[1]
    run("git", "init", "-q", cwd=repository)
    identity = {name: "none" for role in ("AUTHOR", "COMMITTER") for name in (f"GIT_{role}_NAME", f"GIT_{role}_EMAIL")}
    run("git", "commit", "-q", "--allow-empty", "-m", "Start", cwd=repository, **identity)

    run(installed / "corpusmill", "run", "notes", "--replace", cwd=notes)

    manifest = json.loads((notes / "data/stage_a/notes/packed/notes/manifest.json").read_text())
    assert manifest["provenance"]["git_sha"] is None


@pytest.mark.slow
def test_the_demo_runs_and_names_missing_extras(installed: Path, empty: Path) -> None:
    lines = run(installed / "corpusmill", "demo", cwd=empty).stdout.splitlines()

    skipped = [line for line in lines if line.startswith("skipped ")]
    assert [line.partition(":")[0] for line in skipped] == [
        "skipped stage2, which needs the extra languages",
        "skipped stage2, which needs the extra tokenizers",
        "skipped parallel_text, which needs the extra tokenizers",
    ]
    constraints = re.search(r"-c (\S+) 'py3langid[<>=.,0-9]+'$", skipped[0])
    assert constraints is not None and Path(constraints[1]).is_relative_to(installed.parent)
    assert "py3langid==" in Path(constraints[1]).read_text()


@pytest.mark.slow
def test_the_ui_answers_with_the_built_assets(installed: Path, notes: Path) -> None:
    port = free_port()
    command = [installed / "corpusmill", "ui", "--data", "data", "--port", str(port)]
    query = json.dumps({"query": "{ assetNodes { assetKey { path } } }"}).encode()
    graphql = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", query, {"Content-Type": "application/json"}, method="POST"
    )

    with subprocess.Popen(command, cwd=notes, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as ui:
        try:
            assert ui.stdout is not None
            assert any(line.startswith("Dagster UI") for line in ui.stdout)
            with urllib.request.urlopen(graphql, timeout=120) as response:
                nodes = json.load(response)["data"]["assetNodes"]
        finally:
            ui.terminate()

    assert any(node["assetKey"]["path"][1] == "notes" for node in nodes)


@pytest.mark.slow
def test_the_modal_image_is_built_from_a_wheel(installed: Path, empty: Path) -> None:
    run(installed / "python", "-c", MODAL, cwd=empty)
