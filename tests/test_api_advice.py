"""Errors of the Python API: advice, and folders that were removed or are relative."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stage_a_build import NO_COMMIT, local_source
from stage_a_sources import write_recipe

from corpusmill import open_folder, run
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage


def test_errors_name_the_arguments_that_help(tmp_path: Path) -> None:
    def write(domain: str) -> str:
        source = local_source(tmp_path, "notes", [{"text": "A note.", "key": "note-1"}]) | {"domain": domain}
        return str(write_recipe(tmp_path, NO_COMMIT, lambda content: content.update(sources=[source]), "notes"))

    corpus = run(write("letters"), tmp_path, workers=0)["stage_a/normalized"][0]

    with pytest.raises(InputError, match=r"; use `row`$"):
        corpus.trace(token=0)
    with pytest.raises(InputError, match=r"; set another `name` in the recipe, or run with `replace=True`$"):
        run(write("diaries"), tmp_path, workers=0)
    with pytest.raises(InputError, match=r"or a recipe of a data root other than .*, pass `data`$"):
        run("none", tmp_path)


def test_opened_artifacts_survive_chdir_and_a_removed_folder_is_named(
    copy_root: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = copy_root("stage_a")
    sealed = {manifest.kind: folder.relative_to(root) for folder, manifest in Lineage(root).manifests.items()}
    monkeypatch.chdir(root)
    corpus, packed = open_folder(sealed["stage_a/filtered"]), open_folder(sealed["stage_a/packed"]).packed()

    monkeypatch.chdir(tmp_path)

    assert corpus.table().num_rows == len([*corpus.documents()]) > 0
    assert len(pickle.loads(pickle.dumps(packed))) == len(packed) > 0
    shutil.rmtree(corpus.folder)
    with pytest.raises(InputError, match=r": folder not found; pass the folder of a finished artifact$"):
        corpus.table()


def test_the_advice_about_a_missing_input_names_no_command_line_option(copy_root: Callable[[str], Path]) -> None:
    """Traces in Python take no `--data`."""
    root = copy_root("stage_a")
    folders = {manifest.kind: folder for folder, manifest in Lineage(root).manifests.items()}
    shutil.rmtree(folders["stage_a/packed"].parents[1] / "decontaminated")

    with pytest.raises(InputError, match=r"; use the data root that contains it, or build it again from its recipe$"):
        open_folder(folders["stage_a/packed"]).trace(row=0)
