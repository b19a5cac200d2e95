"""The Python API `corpusmill`: its names, its imports and its errors."""

import subprocess
import sys
from importlib.metadata import version
from inspect import signature
from pathlib import Path

import pytest

import corpusmill
from corpusmill import OpenedArtifact, open_folder, run
from pipeline_assets.spine.errors import InputError, UsageError

API = Path(__file__).parents[1] / "pipeline_assets" / "api"
V1 = Path("megatron", "healing_text_v1")


def test_all_lists_the_functions_and_the_class() -> None:
    names = ["OpenedArtifact", "__version__", "labels", "loader", "open_folder", "run"]
    assert corpusmill.__all__ == names
    assert corpusmill.__version__ == version("corpusmill")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'corpusmill' has no attribute 'pack'"):
        _ = corpusmill.pack  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["run", "open_folder"])
def test_functions_are_typed_and_described(name: str) -> None:
    function = getattr(corpusmill, name)
    parameters = signature(function).parameters.values()

    assert all(parameter.annotation is not parameter.empty for parameter in parameters)
    assert function.__doc__
    assert (API / "corpusmill" / "py.typed").exists()


def test_the_import_loads_neither_dagster_nor_torch(tmp_path: Path) -> None:
    """Run outside of the checkout, so that the installed package is imported."""
    code = "import corpusmill, sys; print(corpusmill.__version__, {'dagster', 'torch'} & set(sys.modules))"

    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert result.stdout.split() == [version("corpusmill"), "set()"]


def test_loader_and_labels_are_those_of_batching() -> None:
    batching = pytest.importorskip("pipeline_assets.corpus.batching", reason="torch is not installed")

    assert (corpusmill.loader, corpusmill.labels) == (batching.loader, batching.labels)


def test_a_recipe_that_is_built_is_opened_by_kind(demo_root: Path) -> None:
    artifacts = run("healing_text_v1", demo_root)

    splits = artifacts["healing/megatron_split"]
    assert [split.folder for split in splits] == [demo_root / V1 / "train", demo_root / V1 / "valid"]
    assert all(isinstance(split, OpenedArtifact) for split in splits)


def test_a_folder_has_a_manifest_and_origins(demo_root: Path) -> None:
    train = open_folder(demo_root / V1 / "train")

    [traced] = train.trace(token=9)
    assert train.manifest.kind == "healing/megatron_split"
    assert traced.token is not None and traced.token.position == 9


def test_wrong_use_is_one_line(demo_root: Path, tmp_path: Path) -> None:
    train = open_folder(demo_root / V1 / "train")

    with pytest.raises(UsageError, match=r"train: expected one of row, doc_id and token, got 2; pass one of them$"):
        train.trace(row=0, token=0)
    with pytest.raises(UsageError, match="train: expected a corpus of documents, got healing/megatron_split"):
        next(train.documents())
    with pytest.raises(InputError, match="none: "):
        open_folder(tmp_path / "none")
    with pytest.raises(UsageError):
        run("none", tmp_path)
