"""The commands of docs/packing.md, typed in order, and their errors."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_results import Corpusmill, Result, only_line, read_table, type_page
from stage_a_build import NO_COMMIT, build, local_source, parse_recipe
from stage_a_sources import with_pack, write_recipe
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

MANIFEST: dict[str, Any] = {
    "seq_len": 32,
    "num_seqs": 10,
    "strategy": "sequential",
    "seed": 1,
    "weights": {"notes": "0.75", "pages": "0.25"},
    "max_epochs": {"every_source": "1"},
    "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
    "boundaries": False,
}
SENTENCEPIECE = {"family": "sentencepiece", "sha256": "0" * 64, "end_of_document": "</s>"}


def text(number: int) -> str:
    return " ".join(f"w{number * 100 + word}" for word in range(20 + number))


NOTES = [{"text": text(number), "key": f"note-{number}"} for number in range(10)]


@pytest.fixture(scope="module")
def work(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    pages = [{"text": text(number), "key": f"page-{number}"} for number in range(8, 16)]
    sources = [local_source(folder / "in", "notes", NOTES), local_source(folder / "in", "pages", pages)]
    build(parse_recipe(*sources, outputs={"normalized_dir": "stage_a/normalized"}), folder / "out")
    arguments = ("--input", "out/stage_a/filtered/*", "--out-dir", "out/stage_a/deduplicated/all")
    result = corpusmill("stage-a", "dedup", *arguments, cwd=folder, env={"CORPUSMILL_WORKERS": "0"})
    assert result.returncode == 0, result.stderr
    write_manifest(folder)
    return folder


def write_manifest(folder: Path, **changes: Any) -> None:
    (folder / "pack.yaml").write_text(yaml.safe_dump({"pack": MANIFEST | changes}))


@pytest.fixture(scope="module")
def results(corpusmill: Corpusmill, work: Path) -> list[Result]:
    pairs = type_page("packing.md", corpusmill, cwd=work, env={"CORPUSMILL_WORKERS": "0"})
    return [result for _, result in pairs]


def test_output_has_requested_and_actual_share_of_each_source(results: list[Result]) -> None:
    table = read_table(results[0], "by source")

    assert results[0].stdout.splitlines()[3] == "  packing efficiency 1.000000, rows 10, tokens 320"
    assert {name: (source["asked share"], source["share"][:3]) for name, source in table.items()} == {
        "notes": ("0.75", "0.7"),
        "pages": ("0.25", "0.2"),
    }
    assert {"longer than a row", "epochs", "packed tokens", "unused documents"} <= set(table["notes"])
    assert "not deduplicated" not in results[0].stderr
    assert "the packed corpus is not deduplicated; a text may occur more often than its epochs" in results[1].stderr


def test_a_report_covers_the_packed_set_and_its_upstream_artifacts(results: list[Result], work: Path) -> None:
    report = json.loads((work / "out" / "stage_a/reports/packed" / "report.json").read_text())

    assert set(report["sources"]) == {"notes", "pages"}
    assert report["packed"]["rows"] == 10
    cut = [source["cut_documents"] for source in report["packed"]["by_source"].values()]
    assert report["packed"]["cut_documents"] == sum(cut) > 0
    assert report["packed"]["cut_share"] == f"{sum(cut) / report['packed']['documents']:.6f}"
    counted = f"<td class='number'>{report['packed']['documents']}</td><td class='number'>{sum(cut)}</td>"
    assert counted in (work / "out" / "stage_a/reports/packed" / "report.html").read_text()
    assert sum(report["packed"]["license_tokens"].values()) == report["packed"]["tokens"] == 320
    assert "duplicates" in report


def test_a_token_is_traced_to_its_line_and_a_row_shows_its_texts(results: list[Result]) -> None:
    traced = dict(line.split(maxsplit=1) for line in results[-2].stdout.splitlines() if not line.startswith(" "))
    shown = re.findall(r"^(?:notes|pages) (\S+), tokens .* of the document\n\n(.*)$", results[-1].stdout, re.MULTILINE)

    path, row = traced["source"].rsplit("#", 1)
    assert traced["token"].startswith("123: id ")
    assert json.loads(Path(path).read_bytes()[int(row) :].splitlines()[0])["key"] == traced["document"]
    assert len(shown) == 1 and results[-1].stdout.startswith("row 3: 1 segment, 0 tokens of padding\n")
    for doc_id, segment in shown:
        assert segment.removesuffix("<|endoftext|>") in text(int(doc_id.split("-")[1]))


def test_a_source_without_weight_gets_the_rest(
    corpusmill: Corpusmill, results: list[Result], work: Path, tmp_path: Path
) -> None:
    write_manifest(tmp_path, weights={"notes": "0.75"})
    args = ("--manifest", str(tmp_path / "pack.yaml"), "--input", "out/stage_a/deduplicated/all")

    result = corpusmill("stage-a", "pack", *args, "--out-dir", "out/stage_a/packed/rest", cwd=work)

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1] == results[0].stdout.splitlines()[1]  # the digest with both weights


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        (
            "",
            {"weights": {"notes": "0.75", "pages": "0.35"}},
            "weights must sum to 1, got 1.1 (ratios, such as 7 and 3, are allowed); correct it",
        ),
        ("", {"weights": {"notes": "0.5", "pagse": "0.5"}}, "source pagse not found; did you mean pages?"),
        ("", {"num_seqs": 40}, "pack.yaml: pack.num_seqs: 40 rows need 960 tokens of notes, which has "),
        ("", {"tokenizer": SENTENCEPIECE}, "this program has only the one of o200k_harmony; set `tokenizer_path`"),
        ("--num-seqs 40", {}, "--num-seqs: 40 rows need 960 tokens of notes, which has "),
        ("--input out/stage_a/filtered/notes", {}, "deduplicated must be the only input, got 2"),
        (
            "--out-dir out/stage_a/deduplicated/all",
            {},
            "expected a stage_a/packed, got a stage_a/deduplicated; choose another output folder",
        ),
        ("--out-dir out/stage_a/deduplicated/all/in", {}, "the folder is inside the sealed artifact"),
        ("--out-dir /proc/packed", {}, "/proc: files cannot be created here; choose another folder"),
        ("--out-dir out/stage_a/packed/all", {"seed": 2}, "(`pack.seed`: 1 → 2); set another --out-dir, or run"),
    ],
)
def test_a_wrong_manifest_or_option_exits_with_2_and_one_line(
    corpusmill: Corpusmill,
    results: object,
    work: Path,
    tmp_path: Path,
    options: str,
    changes: dict[str, Any],
    message: str,
) -> None:
    write_manifest(tmp_path, **changes)
    args = ["--manifest", tmp_path / "pack.yaml", "--input", "out/stage_a/deduplicated/all"]
    args += ["--out-dir", "out/stage_a/packed/wrong", *options.split()]

    result = corpusmill("stage-a", "pack", *args, cwd=work, env={"CORPUSMILL_WORKERS": "0"})

    assert (result.returncode, message in only_line(result)) == (2, True), result.stderr


def test_unencodable_texts_are_reported_by_command_and_report(corpusmill: Corpusmill, tmp_path: Path) -> None:
    bad = [{"text": f"{number} <end>", "key": f"bad-{number}"} for number in range(2)]
    source = local_source(tmp_path, "notes", [*NOTES, *bad])
    build(parse_recipe(source, outputs={"normalized_dir": "stage_a/normalized"}), tmp_path / "out")
    path = write_tokenizer(tmp_path)
    pinned = {"family": "hf_tokenizer", "sha256": sha256(path.read_bytes()).hexdigest(), "end_of_document": "<end>"}
    changes = {"weights": {"notes": "1"}, "num_seqs": 7, "tokenizer": pinned, "tokenizer_path": path.name}
    path.rename(tmp_path / "out" / path.name)
    write_manifest(tmp_path, **changes)
    args = ("--manifest", "pack.yaml", "--input", "out/stage_a/filtered/notes", "--max-unknown-fraction", "1")

    packed = corpusmill("stage-a", "pack", *args, "--out-dir", "out/stage_a/packed/all", cwd=tmp_path)
    report = ("--input", "out/stage_a/packed/all", "--out", "out/report")
    reported = corpusmill("stage-a", "report", *report, cwd=tmp_path)
    rebuilt = corpusmill("rebuild", "out/stage_a/packed/all", cwd=tmp_path)

    rejects = tmp_path / "out" / "stage_a" / "packed" / "all" / "rejects.jsonl.zst"
    assert packed.returncode == 0, packed.stderr
    assert f" + 2 rejected (special_tokens)\n  rejected rows: {rejects}\n" in packed.stdout
    assert rejects.is_file()
    assert (rebuilt.returncode, "identical" in rebuilt.stdout) == (0, True), rebuilt.stderr
    assert reported.returncode == 0, reported.stderr
    assert json.loads((tmp_path / "out/report/report.json").read_text())["packed"]["rejected"] == {"special_tokens": 2}
    shown = (tmp_path / "out/report/report.html").read_text().partition("<th>texts that cannot be encoded</th>")[2]
    assert "<tr><td>special_tokens</td><td class='number'>2</td></tr>" in shown.partition("</table>")[0]


ROWS = {"seq_len": 32, "num_seqs": 10, "strategy": "sequential", "max_epochs": {"every_source": "1"}}


def write_pack_recipe(root: Path, **pack: object) -> Path:
    def edit(content: dict[str, Any]) -> None:
        content["sources"] = [local_source(root, "notes", NOTES)]
        with_pack(content)
        content["pack"] |= ROWS | pack

    return write_recipe(root, NO_COMMIT, edit, "notes")


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("change", "path", "status", "line"),
    [
        ({"sha256": "0" * 64}, "tokenizer.json", 1, "{root}/tokenizer.json: sha256 is "),
        ({"end_of_document": "</s>"}, "tokenizer.json", 2, "{recipe}: pack.tokenizer.end_of_document: '</s>' is not "),
        ({}, "none.json", 1, "{root}/none.json: cannot read the tokenizer file (No such file or"),
        ({}, None, 2, "{recipe}:{pack}: `pack`: the tokenizer file of hf_tokenizer is missing, since"),
    ],
)
def test_an_unusable_tokenizer_is_reported_before_any_build(
    corpusmill: Corpusmill, tmp_path: Path, command: str, change: dict[str, str], path: str, status: int, line: str
) -> None:
    pinned = sha256(write_tokenizer(tmp_path).read_bytes()).hexdigest()
    tokenizer = {"family": "hf_tokenizer", "sha256": pinned, "end_of_document": "<end>"} | change
    recipe = write_pack_recipe(tmp_path, tokenizer=tokenizer, tokenizer_path=path)

    result = corpusmill(command, "notes", "--data", tmp_path)

    assert result.returncode == status, result.stderr
    [pack] = [number for number, text in enumerate(recipe.read_text().splitlines(), 1) if text == "pack:"]
    assert only_line(result).startswith(line.format(root=tmp_path, recipe=recipe, pack=pack))
    assert not (tmp_path / "stage_a").exists()


def test_a_recipe_packs_its_own_corpus(corpusmill: Corpusmill, tmp_path: Path) -> None:
    rows = [{"text": f"{text(number)} " * 20, "key": f"note-{number}"} for number in range(10)]
    recipe = parse_recipe(local_source(tmp_path / "in", "notes", rows), dedup={"mode": "exact"})
    (tmp_path / "any name.yaml").write_text(yaml.safe_dump(recipe.content()))
    args = ("--manifest", "any name.yaml", "--out-dir", "out/packed", "--num-seqs", "2")
    result = corpusmill("stage-a", "pack", *args, cwd=tmp_path, env={"CORPUSMILL_WORKERS": "0"})

    assert result.returncode == 0, result.stderr
    assert "rows 2, tokens 4,09" in result.stdout
    assert '"stage_a/deduplicated' in (tmp_path / "out/packed/manifest.json").read_text()
