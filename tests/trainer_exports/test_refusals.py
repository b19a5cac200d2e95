"""Exports that are refused without a change of any folder."""

from pathlib import Path

import pytest
from command_results import Corpusmill, Export, Result, only_line, refused
from subset_pools import build_subsets, scored, talk
from tiny_tokenizer import save_tokenizer
from word_tokenizer import write_tokenizer

from pipeline_assets.spine.artifact import Artifact, open_artifact


def test_a_tokenizer_that_loses_much_text_fails_above_the_limit(
    corpus: Path, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    options = ("--tokenizer", write_tokenizer(tmp_path), "--end-of-document", "<end>")
    args = ("export", corpus, "--to", "olmo", "--out", tmp_path / "out_0", *options)
    failed = corpusmill(*args)

    assert failed.returncode == 1
    line = failed.stderr.splitlines()[-1]
    assert line.startswith(f"corpusmill: {tmp_path / 'out_0'}: ") and line.endswith("; or raise --max-unknown-fraction")
    assert " characters are lost (100.00%), above --max-unknown-fraction (0.05); " in line
    accepted = corpusmill(*args, "--max-unknown-fraction", "1")
    assert accepted.returncode == 0 and "\nWARNING: " in f"\n{accepted.stderr}"


def test_an_exported_copy_is_not_accepted_as_the_artifact(corpus: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    corpusmill("export", corpus, "--out", tmp_path / "copy")
    line = f"{tmp_path / 'copy'}: these files are an exported copy of stage_a/filtered mixed/notes; "
    line += f"pass the folder that they were exported from, {open_artifact(corpus).manifest.digest}"

    for command in ("rebuild", "verify", "peek", "dropped"):
        assert refused(corpusmill(command, tmp_path / "copy")) == line
    assert refused(corpusmill("publish", "me/set", tmp_path / "copy", "--data", tmp_path)) == line


@pytest.mark.parametrize(
    ("source", "options", "line"),
    [
        (
            "corpus",
            "--to messages",
            "{corpus}: --to messages takes nemotron rows "
            "(normalized_shards, deduplicated, candidate_pools, training_subsets), got stage_a/filtered; "
            "choose such a folder, or for this one --to parquet "
            "or --to jsonl or --to hf or --to megatron or --to olmo or --to nanochat",
        ),
        (
            "subsets",
            "--to olmo",
            "{subsets}: --to olmo takes documents (normalized, filtered, deduplicated, …), "
            "got nemotron/training_subsets; choose such a folder, or for this one --to parquet "
            "or --to jsonl or --to hf or --to messages or --to sft",
        ),
        (
            "split",
            "--to nanochat",
            "{split}: --to nanochat takes documents (normalized, filtered, deduplicated, …), "
            "got healing/megatron_split; choose such a folder",
        ),
        (
            "splits",
            "--to messages",
            "{splits}: --to messages takes nemotron rows "
            "(normalized_shards, deduplicated, candidate_pools, training_subsets), got healing/megatron_dataset; "
            "choose such a folder",
        ),
        *(
            (
                "corpus",
                f"--to {to} --seq-len 8",
                f"--seq-len: --to {to} does not use --seq-len; omit it, or choose another --to",
            )
            for to in ("olmo", "parquet")
        ),
        (
            "corpus",
            "--to olmo --end-of-document x",
            "--end-of-document: o200k Harmony has its own end of a document; omit it, or pass a --tokenizer",
        ),
        (
            "corpus",
            "--to olmo --tokenizer {here}/tokenizer.json",
            "--end-of-document: tokenizer.json needs the token that ends a document; pass its text, such as '</s>'",
        ),
        (
            "corpus",
            "--to olmo --tokenizer {here}/tokenizer.json --end-of-document <eod>",
            "--end-of-document: '<eod>' is not a special token of tokenizer.json; "
            "name the token that ends a document; it has <|end|>",
        ),
        (
            "corpus",
            "--to olmo --tokenizer {here}/no.json --end-of-document x",
            "{here}/no.json: cannot read the tokenizer file (No such file or directory); "
            "pass a tokenizer.json or a .model file",
        ),
        (
            "subsets",
            "--to sft --seq-len 5",
            "--seq-len: all conversations have more than 5 tokens; pass a longer row",
        ),
        (
            "subsets",
            "--to sft --seq-len 1048577",
            "--seq-len: must be at most 1048576, got '1048577'; see corpusmill export --help",
        ),
    ],
)
def test_wrong_use_is_reported_in_one_line(
    source: str,
    options: str,
    line: str,
    corpus: Path,
    subsets: Artifact,
    demo_root: Path,
    corpusmill: Corpusmill,
    tmp_path: Path,
) -> None:
    save_tokenizer(tmp_path, ("<|end|>",))
    split = demo_root / "megatron" / "healing_text_v1" / "train"
    places = {"corpus": corpus, "subsets": subsets.folder, "split": split, "splits": split.parent, "here": tmp_path}
    data = {"subsets": ["--data", tmp_path]}.get(source, [])

    result = corpusmill("export", places[source], *options.format(**places).split(), *data, "--out", tmp_path / "out")

    assert only_line(result) == line.format(**places)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "token files; set `tokens: true` in `subsets` of the recipe, or in the file of --rules"),
        ({"where": ["meta_domain = 'none'"]}, "rows; widen a rule's percentile or relax its `where`"),
    ],
)
def test_subsets_without_tokens_or_rows_are_told_apart(
    rule: dict[str, object], message: str, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    splits = [scored(tmp_path / "scores", "chat/train", [talk("a")], [0.1])]
    folder = build_subsets(tmp_path / "nemotron", splits, {"all": rule}, tokens=bool(rule)).folder

    result = corpusmill("export", folder, "--to", "sft", "--out", tmp_path / "out", "--data", tmp_path)

    assert refused(result) == f"{folder}: the training subsets have no {message}, and build them again"


@pytest.mark.parametrize("to", ["hf", "olmo"])
def test_a_file_in_place_of_the_folder_is_named_by_its_plain_path(
    to: str, corpus: Path, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    (tmp_path / "ex").write_text("mine")
    (tmp_path / "broken").symlink_to("nowhere")
    fix = "expected a folder, got a file; choose another folder, or move the file away"

    results = [
        corpusmill("export", corpus, "--to", to, "--out", tmp_path / "clone" / ".." / name)
        for name in ("ex", "broken", "ex/inside")
    ]

    assert [*map(refused, results)] == [f"{tmp_path / name}: {fix}" for name in ("ex", "broken", "ex")]
    assert {path.name for path in tmp_path.iterdir()} >= {"ex", "broken"}
    assert [path.name for path in tmp_path.iterdir() if ".building." in path.name or ".tmp" in path.name] == []


def test_another_folder_is_never_replaced(corpus: Path, export: Export, corpusmill: Corpusmill, tmp_path: Path) -> None:
    out, mine = export(corpus, "olmo"), tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")

    def export_to(folder: Path, to: str) -> Result:
        return corpusmill("export", corpus, "--to", to, "--out", folder)

    assert export_to(out, "olmo").returncode == 0
    for folder, to in ((out, "nanochat"), (mine, "olmo")):
        what = f"{folder}: folder already exists; choose another folder, or remove this one"
        assert refused(export_to(folder, to)) == what
    assert (mine / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("to", ["parquet", "jsonl", "hf"])
def test_damaged_rows_are_not_copied(to: str, subsets: Artifact, corpusmill: Corpusmill, tmp_path: Path) -> None:
    path = sorted(subsets.folder.rglob("*.parquet"))[0]
    path.chmod(0o644)
    path.write_bytes(b"Q" + path.read_bytes()[1:])  # readers of Parquet ignore the first bytes

    result = corpusmill("export", subsets.folder, "--to", to, "--out", tmp_path / "copy", "--data", tmp_path)

    assert refused(result, 1).startswith(f"{path}: sha256 is ")
    assert not [*tmp_path.glob("*copy*")]
