"""Fixtures for tests of docs/stage_a.md, whose commands run once."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill, Result, Wrong, only_line, type_page
from stage_a_sources import SITES, sentence, write_notes, write_recipe, write_site, write_sources, write_wikipedia

from pipeline_assets.demo.loopback_hub import LoopbackHub

CARD = """---
license: odc-by
configs:
- config_name: asm_Beng
  data_files: [{split: train, path: data/asm_Beng/train/*}]
- config_name: ben_Beng
  data_files: [{split: train, path: data/ben_Beng/train/*}]
- config_name: eng_Latn
  data_files: [{split: train, path: data/eng_Latn/train/*}]
---
# Pages
"""


def write_dataset(folder: Path, dataset: str, paths: list[str], card: str | None = None) -> None:
    for number, path in enumerate(paths):
        file = folder / "datasets" / dataset / path
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = range(40)
        table = pa.table(
            {
                "text": [sentence(1000 * number + row) for row in rows],
                "id": [f"{dataset}/{number}/{row}" for row in rows],
                "int_score": [2 + row % 3 for row in rows],
            }
        )
        pq.write_table(table, file, row_group_size=10)
    if card is not None:
        (folder / "datasets" / dataset / "README.md").write_text(card, encoding="utf-8")


CARD_OF_DUMPS = """---
configs:
- config_name: CC-MAIN-2013-20
  data_files: [{split: train, path: data/CC-MAIN-2013-20/*}]
---
"""


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_dataset(
        folder, "HuggingFaceFW/fineweb-edu", ["data/CC-MAIN-2013-20/0.parquet", "data/CC-MAIN-2024-10/0.parquet"]
    )
    languages = [f"data/{config}/train/0.parquet" for config in ("asm_Beng", "ben_Beng", "eng_Latn")]
    write_dataset(folder, "HuggingFaceFW/fineweb-2", languages, CARD)
    write_dataset(folder, "me/dumps", ["data/CC-MAIN-2013-20/0.parquet"], CARD_OF_DUMPS)
    with LoopbackHub(folder) as running:
        yield running


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory, hub: LoopbackHub) -> Path:
    """Write the folder that the page's commands expect."""
    import py7zr

    folder = tmp_path_factory.mktemp("work")
    write_wikipedia(folder / "extracted")
    (folder / "dumps").mkdir()
    for site in SITES:
        write_site(folder / "unpacked", site, questions=200)
        with py7zr.SevenZipFile(folder / "dumps" / f"{site}.7z", "w") as archive:
            archive.write(folder / "unpacked" / site / "Posts.xml", "Posts.xml")
    write_notes(folder / "notes")
    (folder / "web.yaml").write_text("length: {min_words: 10}\nmasking: {emails: true, public_ips: true}\n")
    write_sources(folder / "out")

    def keep_one_local_source(content: dict[str, object]) -> None:
        sources = content["sources"]
        assert isinstance(sources, list)
        content["sources"] = [source | {"source": f"my-{source['source']}"} for source in sources[1:2]]

    write_recipe(folder / "out", "", keep_one_local_source, name="stage_a_v1")
    return folder


@pytest.fixture(scope="session")
def typed(corpusmill: Corpusmill, hub: LoopbackHub, work: Path) -> dict[str, Result]:
    answers = type_page("stage_a.md", corpusmill, cwd=work, env={"HF_ENDPOINT": hub.endpoint})
    return {words[1]: result for words, result in answers}


@pytest.fixture
def wrong(corpusmill: Corpusmill, hub: LoopbackHub, work: Path) -> Wrong:
    def answer(*words: object) -> tuple[int, str]:
        result = corpusmill("stage-a", *words, cwd=work, env={"HF_ENDPOINT": hub.endpoint})
        return result.returncode, only_line(result)

    return answer
