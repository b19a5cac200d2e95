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


def test_files_of_a_linked_folder_count_and_a_link_to_nothing_does_not(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "input" / "linked").symlink_to(tmp_path / "notes")
    (tmp_path / "input" / "loop").symlink_to(tmp_path / "input")

    assert scan_hidden_entries(tmp_path / "input") == (False, [])
    (tmp_path / "notes" / "first.jsonl").touch()
    assert scan_hidden_entries(tmp_path / "input") == (True, [])
