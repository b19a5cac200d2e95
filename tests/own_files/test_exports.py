"""Exports of text artifacts that other programs read."""

from pathlib import Path

from command_results import Corpusmill, refused

from corpusmill import open_folder


def test_a_copy_among_the_artifacts_of_its_data_root_is_refused(corpusmill: Corpusmill, built: Path) -> None:
    """The digest would lead to the copy, which lacks the files in its manifest."""
    folder = built / "stage_a" / "mine" / "deduplicated" / "mine"
    targets = (("parquet", "stage_a/copies/mine"), ("jsonl", "corpora"), ("hf", "stage_a/../nemotron/mine"))

    refusals = [refused(corpusmill("export", folder, "--to", to, "--out", built / out)) for to, out in targets]
    inside = refused(corpusmill("export", folder, "--out", folder / "copy"))

    assert all("a copy in this folder would be taken for its artifact; choose a folder" in text for text in refusals)
    fix = "choose another output folder"
    assert inside == f"{folder / 'copy'}: the folder is inside the sealed artifact {folder}; {fix}"
    assert not any(path.exists() for path in (built / "corpora", built / "stage_a" / "copies", folder / "copy"))


def test_load_dataset_reads_an_unchanged_export(built: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    import datasets

    folder = built / "stage_a" / "mine" / "deduplicated" / "mine"
    expected = open_folder(folder).table().to_pylist()

    for to in ("parquet", "jsonl", "hf"):
        out = tmp_path / to
        result = corpusmill("export", folder, "--to", to, "--out", out)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"{out}: 54 rows in 2 files, ")
        read = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
        assert read.to_list() == expected
        card = (out / "README.md").read_text()
        assert "| `my-files` | `mit` | 30 |" in card
        assert open_folder(folder).manifest.digest in card
        assert (out / "manifest.json").read_bytes() == (folder / "manifest.json").read_bytes()


def test_exports_have_equal_bytes_and_replace_nothing(built: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = built / "stage_a" / "mine" / "filtered" / "my-files"
    for name in ("one", "two"):
        (tmp_path / ".one.building").mkdir(exist_ok=True)  # of a killed export
        corpusmill("export", folder, "--out", tmp_path / name)

    first, second = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))

    assert first == second
    assert "folder already exists" in refused(corpusmill("export", folder, "--out", tmp_path / "one"))
    takes = "--to hf takes documents (normalized, filtered, deduplicated, …) or nemotron rows "
    takes += "(normalized_shards, deduplicated, candidate_pools, training_subsets)"
    for kind in ("packed", "report"):
        other = built / "stage_a" / "mine" / kind / "mine"
        line = f"{other}: {takes}, got stage_a/{kind}; choose such a folder"
        assert refused(corpusmill("export", other, "--to", "hf", "--out", tmp_path / "three")) == line
