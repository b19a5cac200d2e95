"""Files that a draft leaves out: hidden ones are named in order."""

from pathlib import Path

from pipeline_assets.corpus.normalize.left_out import scan_hidden_entries


def test_hidden_files_and_folders_are_named_in_order_and_not_entered(tmp_path: Path) -> None:
    for name in (".z/inner.md", ".a", "deep/.b", "deep/.c/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert scan_hidden_entries(tmp_path) == (False, [".a", ".z/", "deep/.b", "deep/.c/"])
    (tmp_path / "deep" / "seen.md").touch()
    assert scan_hidden_entries(tmp_path)[0]
