"""Opening a token cache while it is replaced never mixes two caches."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from interrupted import interrupted

from pipeline_assets.corpus.parallel_text import token_cache
from pipeline_assets.corpus.parallel_text.token_cache import ENCODE_META_FILE, open_cache
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.folder_exchange import exchange

LATER_ID = "later"


@pytest.fixture
def cache(cache: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cache, tmp_path / "cache"))


@pytest.fixture
def later(cache: Path) -> Path:
    """Return a cache with equally many pairs and tokens, all different."""
    folder = Path(shutil.copytree(cache, cache.with_name("later")))
    for side in ("src", "tgt"):
        ids = np.load(folder / f"{side}.ids.npy")
        np.save(folder / f"{side}.ids.npy", np.full_like(ids, 7))
    meta = json.loads((folder / ENCODE_META_FILE).read_text())
    (folder / ENCODE_META_FILE).write_text(json.dumps({**meta, "experiment_id": LATER_ID}))
    return folder


def describe(folder: Path) -> str:
    """Return the cache that each part comes from, or the error message."""
    try:
        opened = open_cache(folder)
    except InputError as error:
        return str(error)
    parts = {opened.meta.experiment_id == LATER_ID, *((ids == 7).all() for ids in opened.ids.values())}
    return " and ".join("later" if is_later else "earlier" for is_later in sorted(parts))


def test_a_cache_replaced_at_any_line_of_its_opening_is_never_mixed(cache: Path, later: Path) -> None:
    description, lines = interrupted(lambda: describe(cache), [token_cache], {})
    descriptions = [description]

    for line in range(1, lines + 1):
        descriptions.append(
            interrupted(lambda: describe(cache), [token_cache], {line: lambda: exchange(later, cache)})[0]
        )
        exchange(later, cache)

    replaced = f"{cache}: the folder was replaced while it was read; run the same command again"
    assert set(descriptions) == {"earlier", "later", replaced}
    assert descriptions.count(replaced) > 4


def test_a_worker_that_finds_another_cache_advises_to_open_it_again(cache: Path, later: Path) -> None:
    stored = pickle.dumps(open_cache(cache))
    exchange(later, cache)

    with pytest.raises(RetryableError, match=r"cache: the folder was replaced .*; open the cache again$"):
        pickle.loads(stored)
