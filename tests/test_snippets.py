"""Every Python snippet of README, docs and the Python API runs as written.

Each snippet runs in its own process.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import code_blocks
from stage_a_sources import write_ship_recipe

import corpusmill
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.parallel_text.draw import materialize
from pipeline_assets.corpus.parallel_text.encode import encode
from pipeline_assets.corpus.parallel_text.sample import SampleSource
from pipeline_assets.corpus.parallel_text.translation_files import TranslationFile
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS

PROJECT = Path(__file__).parents[1]
HERE = Path(__file__).parent
TORCH = {"pipeline_assets.corpus.batching", "corpusmill.loader"}
SECONDS_TO_LOAD = {"datasets", "megatron.core.datasets.indexed_dataset", *TORCH}
OPTIONAL = {"duckdb": "duckdb", "megatron.core": "megatron.core"}
TIMEOUT_S = 240
PYTHONPATH = os.pathsep.join(map(str, (PROJECT, PROJECT / "pipeline_assets" / "api")))


def read_imports(code: str) -> set[str]:
    statements = [*ast.walk(ast.parse(code))]
    plain = {alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names}
    from_imports = [node for node in statements if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in from_imports for alias in node.names}
    return plain | names | {str(node.module) for node in from_imports}


def collect_snippets() -> list[object]:
    """Collect the snippets by page; snippets that load a large library are slow."""
    pages = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
    named = [(f"{page.stem}-{n}", code) for page in pages for n, code in enumerate(code_blocks(page, "python"), 1)]
    lines = str(corpusmill.__doc__).splitlines(keepends=True)
    named.append(("corpusmill", "".join(line.removeprefix("    ") for line in lines if line.startswith("    "))))
    return [
        pytest.param(code, id=name, marks=[pytest.mark.slow] if read_imports(code) & SECONDS_TO_LOAD else [])
        for name, code in named
    ]


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory: pytest.TempPathFactory, demo_root: Path) -> Path:
    """Create a folder with the paths that the snippets name; they only add to it."""
    folder = tmp_path_factory.mktemp("user")
    data, out = folder / "data", folder / "out"
    build_notes(folder, data)
    (data / "stage_a" / "stage_a_v1").symlink_to("notes")
    for name in ("corpora", "megatron"):
        (data / name).symlink_to(demo_root / name)
    build_pairs(folder, data)
    build_mixture(folder, out)
    build_token_files(folder, out)
    return folder


def build_notes(folder: Path, data: Path) -> None:
    path = write_ship_recipe(folder / "notes", data, 300)
    assert [*run_targets(SYSTEMS.read_recipe(path, data).targets(), Run(data, RunSettings(workers=0)))]


def build_pairs(folder: Path, data: Path) -> None:
    from sentence_pairs import synthetic_pair

    path = folder / "pairs" / "train.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps({"translation": synthetic_pair(row)}) + "\n" for row in range(200)))
    source = SampleSource(dataset="local", revision="", splits=("train",))
    files = [TranslationFile(path.name, lambda: path)]
    sample = materialize(files=files, languages=("fr", "en"), source=source, folder=folder / "drawn")
    encode(sample, None, data / "parallel_text" / "wmt14_fr_en" / "token_cache")


def build_mixture(folder: Path, out: Path) -> None:
    from stage2_build import build, write_local_mixture

    build(write_local_mixture(folder), out)
    (out / "stage2" / "R").symlink_to("local")
    for name, corpus in (("refinedweb", "first"), ("code", "second")):
        (out / "stage2" / "local" / "shards" / name).symlink_to(corpus)


def build_token_files(folder: Path, out: Path) -> None:
    from subset_pools import build_subsets, scored, talk

    rows = [talk(f"row-{number}") for number in range(4)]
    split = scored(folder, "math/low", rows, [float(number) for number in range(4)])
    subsets = build_subsets(folder / "made", [split], {"anchor": {"percentile": [0, 100]}}, tokens=True)
    target = out / "nemotron" / "nemotron_scored" / "training_subsets"
    target.parent.mkdir(parents=True)
    target.symlink_to(subsets.folder)


@pytest.mark.parametrize("code", collect_snippets())
def test_a_snippet_runs_in_a_fresh_process(code: str, user_folder: Path, demo_root: Path) -> None:
    for package, module in OPTIONAL.items():
        if module in {name[: len(module)] for name in read_imports(code)}:
            pytest.importorskip(package, reason=f"{package} is not installed")
    if read_imports(code) & TORCH:
        pytest.importorskip("torch", reason="torch is not installed")
    commit = next((demo_root / "corpora" / "fineweb_edu").glob("*/shards")).parent
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "HF_HUB_OFFLINE": "1", "HF_HOME": str(user_folder / "hf")}

    result = subprocess.run(
        [sys.executable, "-c", code.replace("<commit>", commit.name)],
        cwd=user_folder,
        env=environment,
        input='{"recipes": []}',  # tests/test_json_log.py gives that snippet the status of a real data root
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )

    assert result.returncode == 0, result.stderr


def test_pages_have_snippets() -> None:
    assert len(collect_snippets()) >= 12
