"""Files that a draft leaves out: hidden files are listed in order."""

from pathlib import Path

from pipeline_assets.corpus.normalize.left_out import scan_hidden_entries


def test_hidden_files_and_folders_are_listed_in_order_and_not_entered(tmp_path: Path) -> None:
    for name in (".z/inner.md", ".a", "deep/.b", "deep/.c/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert scan_hidden_entries(tmp_path) == (False, [".a", ".z/", "deep/.b", "deep/.c/"])
    (tmp_path / "deep" / "seen.md").touch()
    assert scan_hidden_entries(tmp_path)[0]


def test_linked_folders_are_scanned_and_links_in_a_loop_are_not(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "input" / "linked").symlink_to(tmp_path / "notes")
    (tmp_path / "input" / "loop").symlink_to(tmp_path / "input")

    assert scan_hidden_entries(tmp_path / "input") == (False, [])
    (tmp_path / "notes" / "first.jsonl").touch()
    assert scan_hidden_entries(tmp_path / "input") == (True, [])
