"""Options, files and folders that the commands of stage 2 refuse."""

from pathlib import Path

import pytest
from command_results import Corpusmill
from stage2_build import WEB

pytest.importorskip("py3langid", reason="needs the extra `languages`")


@pytest.mark.parametrize(
    ("option", "value"), [("--license", "no-such"), ("--lang-threshold", "high"), ("--text-column", "body")]
)
def test_errors_of_stage2_options_name_the_option(tmp_path: Path, typed: Corpusmill, option: str, value: str) -> None:
    args = ("stage2", "filter", "--dataset", WEB, "--output-path", tmp_path / "web.txt", "--out-dir", tmp_path)
    assert option in typed(*args, option, value, status=2).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("raw --output HERE", "HERE: output file is a folder; name a file"),
        ("filter --output-path HERE", "HERE: output file is a folder; name a file"),
        (
            "raw --output HERE/a.txt",
            "--output: must end with .jsonl, .ndjson, .ndjsonl, .json, compressed or not, got a.txt",
        ),
        (
            "raw --output HERE/日本.ndjsonl",
            "日本.ndjsonl: the file names the source, so its name must contain an ASCII",
        ),
        (
            "filter --output-path HERE/a.jsonl.gz",
            "--output-path: must end with .txt, .md, compressed or not, got a.jsonl.gz",
        ),
    ],
)
def test_a_wrong_output_file_is_refused_before_a_read(
    tmp_path: Path, typed: Corpusmill, args: str, message: str
) -> None:
    words = args.replace("HERE", str(tmp_path)).split()

    refused = typed("stage2", *words, "--dataset", WEB, "--out-dir", tmp_path / "out", status=2)

    assert message.replace("HERE", str(tmp_path)) in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("raw", "--dataset", WEB, "--output", "IN/web.jsonl"),
        ("filter", "--dataset", WEB, "--output-path", "IN/web.txt"),
        ("process", "small", "--log-file", "IN/logs/process.log"),
        ("tokenizer", "check", "--tokenizer-path", "IN/spm_160_unigram.model", "--metadata-json", "IN/checksum.json"),
        ("tokenizer", "train", "--manifest", "small", "--vocab-size", "150", "--output-dir", "IN"),
        ("docs", "--output", "IN/page.md"),
    ],
    ids=lambda args: args[0],
)
def test_no_output_file_is_written_into_a_sealed_artifact(
    out: Path, tmp_path: Path, typed: Corpusmill, args: tuple[str, ...]
) -> None:
    sealed = out / "stage2" / "small" / "tokenizer"
    data = () if args[0] in ("tokenizer", "docs") else ("--out-dir", tmp_path / "out")
    before = {path: path.read_bytes() for path in sealed.iterdir()}

    refused = typed("stage2", *(arg.replace("IN", str(sealed)) for arg in args), *data, status=2)

    assert f"output file is in the sealed artifact {sealed}; choose another folder" in refused.stderr
    assert {path: path.read_bytes() for path in sealed.iterdir()} == before


def test_an_artifact_as_data_root_is_refused(out: Path, typed: Corpusmill) -> None:
    sealed = out / "stage2" / "small" / "tokenizer"
    before = sorted(sealed.rglob("*"))

    for command, option in ((("stage2", "process"), "--out-dir"), (("run",), "--data")):
        refused = typed(*command, out / "recipes" / "small.yaml", option, sealed, status=2)
        assert f"{sealed}: expected a data root, got an artifact; set {option} to another folder" in refused.stderr
    refused = typed("manifests", "export", "--data", out, "--to", sealed, status=2)
    assert f"{sealed}: the folder is a sealed artifact; set --to to another folder" in refused.stderr
    assert sorted(sealed.rglob("*")) == before


@pytest.mark.parametrize("name", ["log", "log.json"])
def test_a_folder_as_log_file_is_refused(out: Path, tmp_path: Path, typed: Corpusmill, name: str) -> None:
    (tmp_path / name).mkdir()

    refused = typed("stage2", "process", "small", "--out-dir", out, "--log-file", tmp_path / name, status=2)

    assert f"{tmp_path / name}: output file is a folder; name a file" in refused.stderr
