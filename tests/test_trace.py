"""`corpusmill trace` and `peek` on the demo."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_results import DOCS, Corpusmill, read_commands, refused
from demo_variants import find_snapshot


@pytest.fixture(scope="module")
def train(demo_root: Path) -> Path:
    return demo_root / "megatron" / "healing_text_v1" / "train"


@pytest.mark.slow
def test_the_commands_of_the_page_run(corpusmill: Corpusmill, demo_root: Path) -> None:
    # The demo has only the healing system; tests/test_smoke.py runs `dropped` on stage A.
    commands = [command for command in read_commands(DOCS / "trace.md") if command[0] != "dropped"]
    commit = find_snapshot(demo_root).name
    assert len(commands) == 7

    for command in commands:
        args = [arg.replace("data/demo", str(demo_root)).replace("<commit>", commit) for arg in command]
        result = corpusmill(*args)

        assert result.returncode == 0, result.stderr
        assert result.stdout


@pytest.mark.parametrize("position", [0, 1234, 200_000])
def test_a_token_is_traced_to_a_row_and_the_row_back_to_the_token(
    corpusmill: Corpusmill, train: Path, demo_root: Path, position: int
) -> None:
    traced = json.loads(corpusmill("trace", train, "--token", position, "--json").stdout)
    back = corpusmill("trace", "--source", traced["source"]["name"], "--data", demo_root, "--json")
    as_text = corpusmill("trace", "--source", traced["source"]["name"], env={"CORPUSMILL_DATA": str(demo_root)})

    row = pq.read_table(train / "documents.parquet").slice(traced["row"], 1).to_pylist()[0]
    source = pq.read_table(demo_root / "hub" / "datasets" / traced["source"]["dataset"] / traced["source"]["path"])
    text = source["text"][traced["source"]["row"]].as_py().encode()
    token_bytes = bytes.fromhex(traced["token"]["hex"])
    assert (traced["doc_id"], traced["shard"], traced["shard_row"]) == (row["doc_id"], row["source_shard"], row["row"])
    assert traced["license_tag"] == "cc0-1.0"
    assert traced["token"]["position"] == position
    assert token_bytes and text[traced["token"]["byte_offset"] :].startswith(token_bytes)
    [fate] = json.loads(back.stdout)["snapshots"]
    assert as_text.stdout.splitlines()[:2] == [traced["source"]["name"], f"snapshot  {fate['folder']}"]
    [found] = [split for split in fate["splits"] if split["folder"] == str(train)]
    assert (fate["outcome"], found["outcome"], found["sequence"]) == ("document", "in_split", traced["row"])
    assert found["first_token"] <= position <= found["last_token"]


def test_output_of_a_traced_token(corpusmill: Corpusmill, train: Path, demo_root: Path) -> None:
    last = json.loads(corpusmill("trace", train, "--row", 0, "--json").stdout)["tokens"] - 1

    lines = corpusmill("trace", train, "--token", last).stdout.splitlines()

    assert lines[0].startswith(f"token     {last:,}: id 199999, end-of-text token of the document, after byte ")
    assert lines[1] == f"sequence  0: {last + 1:,} tokens, 0 to {last:,} of tokens.bin"
    assert [line.split()[0] for line in lines[2:5]] == ["document", "shard", "source"]
    assert lines[4].startswith(f"source    HuggingFaceFW/fineweb-edu@{find_snapshot(demo_root).name}:data/")
    assert lines[6] == "licence   cc0-1.0 (recipe)"
    assert lines[7].endswith("»<|endoftext|>«")


def test_a_peek_shows_the_sequence_and_cuts_long_texts(corpusmill: Corpusmill, train: Path) -> None:
    lengths = pq.read_table(train / "documents.parquet", columns=["tokens"])["tokens"].to_numpy()
    longest = int(np.argmax(lengths))

    short = corpusmill("peek", train, "--row", int(np.argmin(lengths)))
    long = corpusmill("peek", train, "--row", longest)
    as_json = json.loads(corpusmill("peek", train, "--row", longest, "--json").stdout)

    assert short.stdout.endswith("<|endoftext|>\n")
    assert as_json["text"].endswith("<|endoftext|>")
    assert as_json["tokens"] == lengths[longest]
    assert long.stdout.splitlines()[0] == (
        f"row {longest:,}: {as_json['doc_id']}, {lengths[longest]:,} tokens from {as_json['first_token']:,}"
    )
    assert long.stdout.endswith(f"\n… {len(as_json['text']) - 2000:,} more characters; --json gives all\n")


def test_a_moved_split_is_traced_with_an_explicit_data_root(
    corpusmill: Corpusmill, train: Path, demo_root: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(train, tmp_path / "train")

    without = corpusmill("trace", moved, "--token", 5)
    explicit = corpusmill("trace", moved, "--token", 5, "--data", demo_root)
    wrong = corpusmill("trace", train, "--token", 5, "--data", tmp_path)
    environment = corpusmill("trace", train, "--token", 5, env={"CORPUSMILL_DATA": str(tmp_path)})

    digest = json.loads((train / "manifest.json").read_text())["identity"]["inputs"][0]["digest"]
    outside = "the folder is not inside a data root; pass the data root of its inputs with --data"
    assert refused(without) == f"{moved}: {outside}"
    assert explicit.stdout == environment.stdout == corpusmill("trace", train, "--token", 5).stdout
    assert refused(wrong, 1) == (
        f"{tmp_path}: no artifact with digest {digest} is below "
        "corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text; "
        "use the data root that contains it, with --data or --out-dir, or build it again from its recipe"
    )


@pytest.mark.parametrize("args", [("trace", "--row", "0"), ("trace", "--token", "0"), ("peek", "--row", "0")])
def test_a_file_that_is_not_parquet_is_one_line(corpusmill: Corpusmill, root: Path, args: tuple[str, ...]) -> None:
    train = root / "megatron" / "healing_text_v1" / "train"
    file = train / "documents.parquet"
    forged = file.read_bytes()[:-1] + b"?"
    file.chmod(0o644)
    file.write_bytes(forged)

    result = corpusmill(args[0], train, *args[1:])

    assert (result.returncode, result.stdout) == (1, "")
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith(f"corpusmill: {file}: not a valid Parquet file: ")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            "",
            "trace: nothing to trace; "
            "pass the folder of a split, set or corpus and --token, --doc-id or --row, or --source alone",
        ),
        ("{train}", "{train}: expected one of --token, --doc-id and --row, got none; pass exactly one of them"),
        (
            "{train} --token 1 --row 0",
            "{train}: expected one of --token, --doc-id and --row, got 2; pass exactly one of them",
        ),
        *(
            (args, "--source: excludes FOLDER, --token, --doc-id, --row and --record; pass it alone or with --data")
            for args in ("{train} --source x", "--source x --record")
        ),
        (
            "{train} --row 0 --record --json",
            "--record: excludes --json, because it prints the record as it is; pass one of them",
        ),
        (
            "--source a.jsonl:{digits}",
            "a.jsonl:{digits}: not a row of a source; write owner/name@commit:path#row, the commit with 40 "
            "hex digits, for a local file path#row or path:line",
        ),
        ("{train} --token {tokens}", "{train}: token {tokens:,} not found; choose 0 to {last:,}"),
        ("{set} --row 0", "{set}: expected one split, got a dataset of splits; choose one of {train}, {set}/valid"),
    ],
)
def test_wrong_use_is_one_line(corpusmill: Corpusmill, train: Path, args: str, line: str) -> None:
    tokens = len(np.memmap(train / "tokens.bin", np.int32, "r"))
    values = {"train": train, "set": train.parent, "digits": "9" * 5000, "tokens": tokens, "last": tokens - 1}

    assert refused(corpusmill("trace", *args.format(**values).split())) == line.format(**values)


def test_a_peek_takes_a_row_or_a_token(corpusmill: Corpusmill, train: Path) -> None:
    both = corpusmill("peek", train, "--row", 1, "--token", 2)

    assert refused(both) == f"{train}: --row excludes --token; pass one of them"
