"""Sources whose bytes changed though their sizes and times did not: nothing is sealed of them under a good digest."""

import os
import shutil
from pathlib import Path

import pytest
from stage_a_root import step

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.systems.registry import KINDS
from pipeline_assets.systems.stage_a import StageARecipe


@pytest.mark.parametrize("workers", [0, 2])
def test_a_source_changed_since_it_was_hashed_is_named_and_nothing_is_sealed(notes_root: Path, workers: int) -> None:
    recipe = StageARecipe.read(notes_root / "recipes" / "mixed.yaml")
    [target] = [target for target in recipe.targets() if target.kind == "stage_a/normalized"]
    shutil.rmtree(step(notes_root, "normalized", "notes"))
    source = min(path for path in (notes_root / "sources" / "notes").rglob("*") if path.is_file())
    status, data = source.stat(), bytearray(source.read_bytes())
    data[data.index(b'"text"') + 12] ^= 1
    source.write_bytes(data)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(InputError) as refused:
        KINDS[target.kind].build(target, Run(notes_root, EngineSettings(workers=workers)))

    assert refused.value.where == str(source)
    assert refused.value.fix == (
        "its bytes changed since they were hashed: give them back, or touch the file and run the recipe again"
    )
    assert not step(notes_root, "normalized", "notes").exists()
