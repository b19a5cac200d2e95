"""`corpusmill why` by file name and text, and `trace --source` by path."""

import json
import shutil
from pathlib import Path

import pytest
from command_results import Corpusmill, Result, only_line, refused
from stage_a_build import build, local_source, parse_recipe, step

TEXTS = {
    "river": "The river was high that year,\nand nobody crossed it.",
    "short": "Too short.",
    "ferry": "A ferry crossed\tthe river (twice a day) until 1932.",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two sources with equal file names: letters with a bad row, and a page."""
    root = tmp_path_factory.mktemp("why")
    letters = [{"text": text, "key": key} for key, text in TEXTS.items()]
    changes = {"filters": {"length": {"min_words": 3}}, "max_reject_fraction": "0.5"}
    sources = [
        local_source(root, "letters", [*letters, {"text": None}], **changes),
        local_source(root, "pages", [{"text": "One page about the sea.", "key": "sea"}], **changes),
    ]
    deep = root / "sources" / "letters" / "2024"
    deep.mkdir()
    (deep / "only one.jsonl").write_text(json.dumps({"text": "Nothing but this letter.", "key": "lone"}) + "\n")
    sources[0]["files"] = ["**/*.jsonl"]
    build(parse_recipe(*sources), root)
    return root


@pytest.mark.parametrize("text", ["The river was high", "The river was high that year, and nobody", "crossed it."])
def test_part_of_a_text_finds_the_same_as_its_id(corpusmill: Corpusmill, root: Path, text: str) -> None:
    result = corpusmill("why", text, "--data", root)

    assert result.stdout == corpusmill("why", "river", "--data", root).stdout
    assert "rows.jsonl line 1" in result.stdout and "\n  kept\n" in result.stdout


def test_the_name_or_path_of_a_file_finds_its_only_document(corpusmill: Corpusmill, root: Path) -> None:
    by_id = corpusmill("why", "lone", "--data", root).stdout
    path = root / "sources" / "letters" / "2024" / "only one.jsonl"

    for name in ("only one.jsonl", "2024/only one.jsonl", path):
        assert corpusmill("why", name, "--data", root).stdout == by_id
    assert corpusmill("why", "only one.jsonl", "--data", root, cwd=path.parent).stdout == by_id
    assert "2024/only one.jsonl line 1" in by_id


def test_several_matches_are_listed_with_ids_and_rejects_with_reasons(corpusmill: Corpusmill, root: Path) -> None:
    by_text = corpusmill("why", "crossed", "--data", root)
    by_file = corpusmill("why", root / "sources" / "letters" / "rows.jsonl", "--data", root)
    both = json.loads(corpusmill("why", "rows.jsonl", "--data", root, "--json").stdout)

    assert (by_text.returncode, by_text.stdout.splitlines()) == (
        0,
        [
            f"{step(root, 'normalized', 'letters')}",
            "  river  rows.jsonl byte 0  The river was high that year,⏎and nobody crossed it.",
            f"  ferry  rows.jsonl byte {both[2]['place'].rpartition(' ')[2]}  A ferry crossed⇥the river (twice a day) "
            "until 1932.",
        ],
    )
    assert [line.split()[0] for line in by_file.stdout.splitlines()[1:]] == ["river", "short", "ferry", "-"]
    assert by_file.stdout.splitlines()[-1].endswith("  rejected: no_text null")
    assert [row["doc_id"] for row in both] == ["river", "short", "ferry", "", "sea"]


def test_a_file_that_the_recipe_excludes_is_named_with_the_pattern(corpusmill: Corpusmill, tmp_path: Path) -> None:
    source = local_source(tmp_path, "notes", [{"text": TEXTS["river"], "key": "river"}])
    drafts = Path(source["path"]) / "drafts"
    drafts.mkdir()
    (drafts / "a.jsonl").write_text('{"text": "A draft."}\n')
    path = f"{source['path']}/../notes"
    build(parse_recipe(source | {"path": path, "files": ["**/*.jsonl"], "exclude": ["*.tmp", "drafts"]}), tmp_path)
    (drafts / "b.txt").write_text("Not a file of the source.")
    (tmp_path / "link").symlink_to(drafts)

    for name in (
        "a.jsonl",
        "drafts/a.jsonl",
        drafts / "a.jsonl",
        f"{drafts}/../drafts/a.jsonl",
        tmp_path / "link/a.jsonl",
    ):
        result = corpusmill("why", name, "--data", tmp_path)

        assert (result.returncode, result.stdout.splitlines()) == (
            0,
            [
                f"{step(tmp_path, 'normalized', 'notes')}",
                "  -  drafts/a.jsonl  left out by the pattern 'drafts' in `exclude`",
            ],
        )
    other = corpusmill("why", "../drafts/b.txt", "--data", tmp_path, cwd=drafts).stdout
    assert other.splitlines()[1:] == ["  -  drafts/b.txt  no pattern in `files` matches it"]


def test_a_text_is_not_a_pattern(corpusmill: Corpusmill, root: Path) -> None:
    assert "A ferry crossed" in corpusmill("why", "river (twice", "--data", root).stdout
    assert corpusmill("why", "r.ver", "--data", root).returncode == 1


def test_a_failed_search_names_the_searched_root(corpusmill: Corpusmill, root: Path, tmp_path: Path) -> None:
    unknown, empty = corpusmill("why", "no such words", "--data", root), corpusmill("why", "x", "--data", tmp_path)

    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == f"'no such words' is not an id, a file or a text in any corpus of {root} (2 searched)\n"
    assert empty.stderr == f"'x' is not an id, a file or a text in {tmp_path}, which has no corpus yet\n"


def test_artifacts_with_missing_upstream_are_named(corpusmill: Corpusmill, tmp_path: Path) -> None:
    rows = [{"text": f"Letter {number} about the sea.", "key": str(number)} for number in range(3)]
    changes = {"dedup": {}, "decontamination": None, "pack": {"seq_len": 32}}
    build(parse_recipe(local_source(tmp_path, "letters", rows), **changes), tmp_path)
    shutil.rmtree(step(tmp_path, "deduplicated", "mixed"))

    why = corpusmill("why", "1", "--data", tmp_path)
    traced = corpusmill("trace", "--source", f"{tmp_path}/sources/letters/rows.jsonl:1", "--data", tmp_path)

    unreachable = f"warning: rows cannot be followed to {step(tmp_path, 'packed', 'mixed')} and 1 more: "
    line = f"{unreachable}stage_a/deduplicated, from which it was built, is missing\n"
    assert (why.returncode, why.stderr) == (traced.returncode, traced.stderr) == (0, line)


def test_only_the_first_twenty_matches_are_listed(corpusmill: Corpusmill, tmp_path: Path) -> None:
    rows = [{"text": f"The same line of text, number {number}.", "key": str(number)} for number in range(30)]
    build(parse_recipe(local_source(tmp_path, "many", rows)), tmp_path)

    lines = corpusmill("why", "line of text", "--data", tmp_path).stdout.splitlines()

    assert len(lines) == 22 and lines[-1] == "and more; the first 20 are listed"


def test_equal_rows_of_two_recipes_are_listed_once(corpusmill: Corpusmill, tmp_path: Path) -> None:
    source = local_source(tmp_path, "notes", [{"text": text, "key": key} for key, text in TEXTS.items()])
    for name in ("first", "second"):
        build(parse_recipe(source, name=name), tmp_path)

    lines = corpusmill("why", "rows.jsonl", "--data", tmp_path).stdout.splitlines()

    assert lines[0] == str(tmp_path / "stage_a/first/normalized/notes")
    assert [line.split()[0] for line in lines[1:]] == [*TEXTS]


def test_lines_of_a_quoted_field_belong_to_its_row(corpusmill: Corpusmill, tmp_path: Path) -> None:
    source = local_source(tmp_path, "table", []) | {"files": ["*.csv"]}
    table = Path(source["path"]) / "table.csv"
    table.write_text('key,text,license\na,"One line\nand another, quoted.",mit\nb,Plain text of a row.,mit\n')
    build(parse_recipe(source), tmp_path)

    def trace_line(line: int) -> str:
        return corpusmill("trace", "--source", f"{table}:{line}", "--data", tmp_path).stdout

    assert "document  a\n" in trace_line(2) and "document  a\n" in trace_line(3) and "document  b\n" in trace_line(4)
    header = corpusmill("trace", "--source", f"{table}:1", "--data", tmp_path)
    assert only_line(header) == f"{table}: line 1 is the header; use a line of a row"


def test_a_row_is_traced_by_a_path_in_its_source(corpusmill: Corpusmill, root: Path) -> None:
    sources = root / "sources"

    def trace_row(address: object, cwd: Path = root) -> Result:
        return corpusmill("trace", "--source", address, "--data", root, cwd=cwd)

    expected = trace_row(f"{sources}/letters/2024/only one.jsonl:1").stdout
    both, missing = trace_row("rows.jsonl:1"), trace_row("none.jsonl:1")

    assert "document  lone\n" in expected
    for address in ("2024/only one.jsonl:1", "2024/only one.jsonl#0", "only one.jsonl:1"):
        assert trace_row(address).stdout == expected
    assert "document  sea\n" in trace_row("rows.jsonl:1", sources / "pages").stdout
    choice = f"write one of {sources}/letters/rows.jsonl, {sources}/pages/rows.jsonl"
    assert refused(both) == f"rows.jsonl: several source files match; {choice}"
    assert refused(missing) == "none.jsonl: file not found; correct the path"
