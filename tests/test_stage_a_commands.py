"""The stage-a commands as docs/stage_a.md has them, typed one after the other; and one clear line for wrong ones."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stage_a_sources import SITES, sentence, write_notes, write_recipe, write_site, write_sources, write_wikipedia

from resources.loopback_hub import LoopbackHub

PAGE = Path(__file__).parents[1] / "docs" / "stage_a.md"
Typed = subprocess.CompletedProcess[str]
Corpusmill = Callable[..., Typed]
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


def only_line(result: Typed) -> str:
    """The one line that a wrong command leaves, besides progress and how to go on."""
    assert "Traceback" not in result.stderr, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("corpusmill: ")]
    assert len(lines) == 1, result.stderr
    return lines[0].removeprefix("corpusmill: ")


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


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_dataset(
        folder, "HuggingFaceFW/fineweb-edu", ["data/CC-MAIN-2013-20/0.parquet", "data/CC-MAIN-2024-10/0.parquet"]
    )
    languages = [f"data/{config}/train/0.parquet" for config in ("asm_Beng", "ben_Beng", "eng_Latn")]
    write_dataset(folder, "HuggingFaceFW/fineweb-2", languages, CARD)
    with LoopbackHub(folder) as running:
        yield running


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, hub: LoopbackHub) -> Path:
    """A folder as the page's commands expect it: an extraction, dumps, notes, filters, a recipe."""
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

    def of_files_only(content: dict[str, object]) -> None:
        sources = content["sources"]
        assert isinstance(sources, list)
        content["sources"] = [source | {"source": f"my-{source['source']}"} for source in sources[1:2]]

    write_recipe(folder / "out", "", of_files_only, name="stage_a_v1")
    return folder


@pytest.fixture(scope="module")
def typed(corpusmill: Corpusmill, hub: LoopbackHub, work: Path) -> dict[str, Typed]:
    """What every command of the page answered, by its name."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("corpusmill stage-a ")]
    answers = {}
    for words in map(shlex.split, lines):
        result = corpusmill(*words[1:], cwd=work, env={"HF_ENDPOINT": hub.endpoint})
        assert result.returncode == 0, f"{shlex.join(words)}\n{result.stderr}"
        answers[words[2]] = result
    return answers


@pytest.fixture
def wrong(corpusmill: Corpusmill, hub: LoopbackHub, work: Path) -> Callable[..., tuple[int, str]]:
    """Exit status and the one line of a command that can't do what it is told."""

    def answer(*words: object) -> tuple[int, str]:
        result = corpusmill("stage-a", *words, cwd=work, env={"HF_ENDPOINT": hub.endpoint})
        return result.returncode, only_line(result)

    return answer


def test_every_command_of_the_page_runs(typed: dict[str, Typed]) -> None:
    assert list(typed) == [
        "hf-configs",
        "hf-stream",
        "ingest-wikipedia",
        "ingest-stackexchange",
        "normalize",
        "ingest-manifest",
        "filter",
        "report",
        "why",
    ]


def test_configs_are_matched_whole(typed: dict[str, Typed], corpusmill: Corpusmill, hub: LoopbackHub) -> None:
    in_bengali_script = corpusmill(
        "stage-a", "hf-configs", "--dataset", "fineweb-2", "--contains", "ben", env={"HF_ENDPOINT": hub.endpoint}
    )

    assert typed["hf-configs"].stdout == "asm_Beng\n"
    assert in_bengali_script.stdout == "asm_Beng\nben_Beng\n"
    assert "warning: 'ben' is in 1 names whose language it is not: asm_Beng" in in_bengali_script.stderr


def test_a_command_says_what_came_out_of_each_source(typed: dict[str, Typed]) -> None:
    assert "30 rows in = 24 documents + 6 rejected (title_only)" in typed["ingest-wikipedia"].stdout
    assert typed["ingest-stackexchange"].stdout.count("merged") == 2
    assert "out/stage_a/normalized/notes.manifest.json" in typed["normalize"].stdout
    assert "80 rows in = 52 documents + 28 dropped (int_score >= 3)" in typed["hf-stream"].stdout


def test_progress_names_the_source_that_is_built(typed: dict[str, Typed]) -> None:
    for command, beginnings in {
        "hf-stream": ["plan fineweb-edu: ", "fetch fineweb-edu: ", "normalize fineweb-edu: ", "publish fineweb-edu: "],
        "ingest-stackexchange": [f"{step} {site}: " for site in SITES for step in ("hash", "spill", "normalize")],
        "filter": ["filter notes: ", "filter wikipedia: "],
    }.items():
        lines = [line.partition(" ")[2] for line in typed[command].stderr.splitlines()]
        assert [one for one in beginnings if not any(line.startswith(one) for line in lines)] == []


def test_the_recipe_that_ran_and_the_groups_manifest_are_written(typed: dict[str, Typed], work: Path) -> None:
    recipe = (work / "out" / "recipes" / "wikipedia.yaml").read_text(encoding="utf-8")
    group = work / "out" / "stage_a" / "normalized" / "wikipedia.manifest.json"

    assert "dump_date: '2026-11-01'" in recipe
    assert group.read_bytes() == (group.parent / "wikipedia" / "manifest.json").read_bytes()


def test_status_misses_nothing_that_no_command_was_asked_for(
    typed: dict[str, Typed], work: Path, corpusmill: Corpusmill
) -> None:
    report = json.loads(corpusmill("status", "--data", work / "out", "--json").stdout)

    states = {one["recipe"]: {row["state"] for row in one["artifacts"]} for one in report["recipes"]}
    by_hand = states.pop("stage_a_v1")
    assert by_hand == {"current", "missing"}
    assert set(states) == {"fineweb-edu", "wikipedia", "stackexchange", "notes", "filter-web"}
    assert all(found == {"current"} for found in states.values())


def test_the_report_counts_what_was_filtered(typed: dict[str, Typed], work: Path) -> None:
    report = json.loads((work / "out" / "stage_a" / "report" / "report.json").read_bytes())

    assert set(report["sources"]) == {"fineweb-edu", "wikipedia", *SITES, "notes"}
    assert report["sources"]["wikipedia"]["documents"] == 24
    assert report["licences"]["unknown"]["documents"] > 0


def test_why_tells_where_from_and_every_measurement(typed: dict[str, Typed]) -> None:
    lines = typed["why"].stdout.splitlines()

    assert lines[1].strip().startswith("from     AA/wiki_00 row ")
    assert "  licence  cc-by-sa-4.0 (date: 2026-11-01)" in lines
    assert "  kept" in lines
    assert "    few_words 61 > 10" in lines


def test_a_column_that_no_document_has_a_value_for_is_a_warning(corpusmill: Corpusmill, work: Path) -> None:
    columns = ("--text-column", "body.text", "--license-column", "licens")

    result = corpusmill(
        *(
            "stage-a",
            "normalize",
            "--input",
            "notes/*.jsonl",
            "--out-dir",
            "misspelt",
            "--domain",
            "d",
            "--source",
            "n",
        ),
        *columns,
        cwd=work,
    )

    assert result.returncode == 0, result.stderr
    assert (
        "named_columns_have_values: WARNING: n: no document has a value for `licens`: is it misspelt?" in result.stderr
    )


def test_a_source_that_its_filters_empty_does_not_keep_the_others_from_theirs(
    corpusmill: Corpusmill, typed: dict[str, Typed], work: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(work / "out" / "stage_a" / "normalized", out / "stage_a" / "normalized")
    (tmp_path / "long.yaml").write_text("length: {min_words: 50}\n")
    words = ("--filters", tmp_path / "long.yaml", "--source", "notes", "--source", "wikipedia")

    result = corpusmill("stage-a", "filter", *words, "--out-dir", out)

    assert result.returncode == 1
    assert only_line(result) == (
        f"{out}/recipes/filter-long.yaml: 1 of 2 sources failed: notes; "
        "the lines that begin with FAILED say why; the others are built"
    )
    [failed] = [line for line in result.stderr.splitlines() if line.startswith("FAILED ")]
    assert failed.startswith("FAILED notes: ") and failed.endswith("loosen its filters, or leave the source out")
    assert "24 rows in = 24 documents" in result.stdout
    assert "to go on" not in result.stderr


def test_bad_rows_are_not_told_to_be_tried_again(corpusmill: Corpusmill, work: Path) -> None:
    words = ("--input", "notes/*.jsonl", "--out-dir", "bad_rows", "--domain", "d", "--source", "n")

    result = corpusmill("stage-a", "normalize", *words, cwd=work)

    assert result.returncode == 1
    assert "40 of 40 rows are rejected" in only_line(result)
    assert "to go on" not in result.stderr


class TestWrong:
    def test_an_input_that_is_not_there(self, wrong: Callable[..., tuple[int, str]]) -> None:
        status, line = wrong("ingest-wikipedia", "--input", "nowhere", "--dump-date", "2026-11-01", "--out-dir", "bad")

        assert status == 2
        assert line == "nowhere: no file matches; correct the path, or quote the pattern for the shell"

    def test_no_licence_of_an_extraction(self, wrong: Callable[..., tuple[int, str]]) -> None:
        status, line = wrong("ingest-wikipedia", "--input", "extracted", "--out-dir", "bad")

        assert status == 2
        assert line.startswith("stage-a ingest-wikipedia: neither --dump-date nor --license is given")

    def test_a_config_that_does_not_exist_names_the_nearest(self, wrong: Callable[..., tuple[int, str]]) -> None:
        status, line = wrong("hf-stream", "--source", "fineweb-2", "--config-name", "eng_Lat", "--out-dir", "bad")

        assert status == 2
        assert "there is no config 'eng_Lat' among 3; nearest: eng_Latn" in line

    def test_a_licence_that_does_not_exist_names_the_nearest(self, wrong: Callable[..., tuple[int, str]]) -> None:
        common = ("normalize", "--input", "notes/*.jsonl", "--out-dir", "bad", "--domain", "d", "--source", "n")

        status, line = wrong(*common, "--license", "cc-by-sa-4")

        assert status == 2
        assert line.startswith("--license: there is no licence 'cc-by-sa-4'; did you mean cc-by-sa-4.0?")

    def test_a_column_that_is_nowhere_shows_the_first_rows(self, wrong: Callable[..., tuple[int, str]]) -> None:
        status, line = wrong(
            "normalize", "--input", "notes/*.jsonl", "--out-dir", "bad", "--domain", "d", "--source", "n"
        )

        assert status == 1
        assert "40 of 40 rows are rejected, above max_reject_fraction 0.001 (the first: 0.jsonl row 0: no_text" in line

    def test_other_settings_need_replace_and_leave_the_recipe_that_ran(
        self, wrong: Callable[..., tuple[int, str]], typed: dict[str, Typed], work: Path
    ) -> None:
        before = (work / "out" / "recipes" / "wikipedia.yaml").read_bytes()

        status, line = wrong(
            "ingest-wikipedia", "--input", "extracted", "--license", "cc-by-sa-3.0", "--out-dir", "out"
        )

        assert status == 2
        assert "another version is sealed here: the recipe changed" in line
        assert (work / "out" / "recipes" / "wikipedia.yaml").read_bytes() == before

    def test_a_recipe_written_by_hand_is_not_overwritten(
        self, wrong: Callable[..., tuple[int, str]], work: Path
    ) -> None:
        path = work / "bad" / "recipes" / "mine.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("system: stage_a\n", encoding="utf-8")

        status, line = wrong(
            "normalize", "--input", "notes/*.jsonl", "--out-dir", "bad", "--domain", "d", "--source", "mine"
        )

        assert status == 2
        assert line == "bad/recipes/mine.yaml: another recipe is there; rename that file, or run with --replace"
        assert path.read_text(encoding="utf-8") == "system: stage_a\n"

    def test_filters_for_fewer_sources_would_lose_what_the_recipe_made(
        self, wrong: Callable[..., tuple[int, str]], typed: dict[str, Typed]
    ) -> None:
        status, line = wrong("filter", "--filters", "web.yaml", "--out-dir", "out", "--source", "notes")

        assert status == 2
        assert "this one doesn't; rename that file, or run with --replace" in line

    def test_a_source_that_changed_is_not_replaced_unasked(
        self, wrong: Callable[..., tuple[int, str]], corpusmill: Corpusmill, work: Path
    ) -> None:
        shutil.copytree(work / "notes", work / "moving")
        common = ("normalize", "--input", "moving/*.jsonl", "--out-dir", "changed", "--domain", "d", "--source", "m")
        columns = ("--text-column", "body.text")
        raw = work / "changed" / "stage_a" / "raw" / "m" / "manifest.json"
        assert corpusmill("stage-a", *common, *columns, cwd=work).returncode == 0
        before = raw.read_bytes()
        path = work / "moving" / "1.jsonl"
        path.write_bytes(path.read_bytes() + b'{"body": {"text": "one more of them"}}\n')

        status, line = wrong(*common, *columns)

        assert status == 2
        assert "another version is sealed here: 1 of the files in" in line
        assert raw.read_bytes() == before

    def test_a_report_on_what_is_no_source(
        self, wrong: Callable[..., tuple[int, str]], typed: dict[str, Typed]
    ) -> None:
        status, line = wrong("report", "--input", "out/stage_a/raw/*", "--out", "bad/report")

        assert status == 2
        assert "this is a stage_a/raw; give normalised or filtered sources" in line

    def test_a_filter_file_that_is_not_there_or_has_an_unknown_rule(
        self, wrong: Callable[..., tuple[int, str]], typed: dict[str, Typed], work: Path
    ) -> None:
        (work / "misspelt.yaml").write_text("lenght: {min_words: 10}\n")

        missing = wrong("filter", "--filters", "non.yaml", "--out-dir", "out")
        misspelt = wrong("filter", "--filters", "misspelt.yaml", "--out-dir", "out")

        assert missing == (2, "non.yaml: there is no such filter file; there are misspelt, web")
        assert misspelt == (2, "misspelt.yaml: unknown key `lenght`; did you mean `length`?")

    def test_an_id_that_no_source_has(self, corpusmill: Corpusmill, typed: dict[str, Typed], work: Path) -> None:
        result = corpusmill("stage-a", "why", "nobody", "--data", work / "out")

        assert result.returncode == 1
        assert "has a document 'nobody'" in result.stderr


def test_the_same_command_again_builds_nothing(
    corpusmill: Corpusmill, typed: dict[str, Typed], work: Path, tmp_path: Path
) -> None:
    shutil.copytree(work / "out", tmp_path / "out", symlinks=True)

    again = corpusmill(
        *("stage-a", "ingest-wikipedia", "--input", "extracted", "--dump-date", "2026-11-01", "--language", "en"),
        *("--out-dir", tmp_path / "out"),
        cwd=work,
    )

    assert again.returncode == 0, again.stderr
    assert "normalize wikipedia" not in again.stderr
    assert "24 documents" in again.stdout
