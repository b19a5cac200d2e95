"""Stage A artifacts that a changed recipe or file makes stale."""

import shutil
from pathlib import Path

import pytest
from refusals import refusal
from stage_a_build import INLINE, build, digests, local_source, only, parse_recipe, recipe_with
from stage_a_sources import write_notes

from pipeline_assets.build.run import Run
from pipeline_assets.spine.errors import UsageError


class TestStaleness:
    """Two sources of local files, built; then something changes."""

    @pytest.fixture(autouse=True)
    def _build(self, tmp_path: Path) -> None:
        self.root, self.content = tmp_path, []
        for name in ("letters", "diaries"):
            rows = [{"text": f"Text {n} of {name}, with words.", "key": f"{name}-{n}"} for n in (1, 2)]
            self.content.append(local_source(tmp_path, name, rows))
        self.built = build(parse_recipe(*self.content), tmp_path)

    def states(self) -> dict[str, str]:
        states = {target.role: target.state(self.root) for target in parse_recipe(*self.content).targets()}
        return {role: f"{state}: {reason}" for role, (state, reason) in states.items() if state != "current"}

    def rebuild_changed(self) -> list[str]:
        new = digests(build(parse_recipe(*self.content), self.root, replace=True))
        return [role for role, digest in new.items() if digest != self.built[role].manifest.digest]

    def test_a_changed_filter_rebuilds_only_the_filtered_source_and_the_report(self) -> None:
        self.content[0]["filters"] = {"length": {"min_words": 1}}

        states = self.states()

        assert list(states) == ["stage_a/filtered/letters"]
        assert states["stage_a/filtered/letters"] == "stale: the recipe changed (`filters.length.min_words`: added 1)"
        assert self.rebuild_changed() == ["stage_a/filtered/letters", "stage_a/report"]

    def test_a_moved_folder_changes_nothing_and_is_read_from_its_new_path(self) -> None:
        shutil.move(self.content[0]["path"], self.root / "moved")
        self.content[0]["path"] = "moved"  # below the data root

        assert self.states() == {}
        shutil.rmtree(self.built["stage_a/normalized/letters"].folder)
        assert self.rebuild_changed() == []

    def test_a_changed_file_rebuilds_its_whole_source_and_the_report(self) -> None:
        local_source(self.root, "letters", [{"text": "Other words.", "key": "letters-3"}])

        assert self.states() == {
            "stage_a/raw/letters": f"stale: 1 of the files in {self.root}/sources/letters changed; "
            "the first is rows.jsonl"
        }
        assert self.rebuild_changed() == [
            "stage_a/raw/letters",
            "stage_a/normalized/letters",
            "stage_a/filtered/letters",
            "stage_a/report",
        ]

    def test_a_rewritten_equal_file_is_only_hashed_again(self) -> None:
        path = self.root / "sources" / "letters" / "rows.jsonl"
        path.write_bytes(path.read_bytes())

        assert self.states() == {"stage_a/raw/letters": f"stale: files in {self.root}/sources/letters were rewritten"}
        assert self.rebuild_changed() == []
        assert self.states() == {}

    def test_another_licence_of_a_source_rebuilds_its_documents_but_not_its_raw_files(self) -> None:
        self.content[0]["license_tag"] = "mit"

        changed = self.rebuild_changed()

        assert changed == ["stage_a/normalized/letters", "stage_a/filtered/letters", "stage_a/report"]

    @pytest.mark.parametrize(
        ("chosen", "names"), [(slice(1), "['letters']"), (slice(None, None, -1), "['diaries', 'letters']")]
    )
    def test_fewer_or_reordered_sources_change_only_the_report(self, chosen: slice, names: str) -> None:
        self.content = self.content[chosen]

        assert self.states() == {
            "stage_a/report": f"stale: the recipe changed (`sources`: ['letters', 'diaries'] → {names})"
        }

    def test_an_artifact_of_another_recipe_is_replaced_only_on_request(self) -> None:
        self.content[0]["filters"] = {"length": {"min_words": 1}}

        message = refusal(lambda: build(parse_recipe(*self.content), self.root), UsageError)

        assert message.endswith("; set another `name` in the recipe, or run with --replace")


def test_a_corrected_recipe_replaces_the_listing_of_wrong_files(tmp_path: Path) -> None:
    wrong = local_source(tmp_path, "notes", []) | {"files": ["*.txt"]}
    (tmp_path / "sources/notes/other.txt").write_text("no rows")
    raw = parse_recipe(wrong).targets()[0]
    raw.kind.build(raw, Run(tmp_path, INLINE))

    right = parse_recipe(local_source(tmp_path, "notes", [{"text": "A text of some words.", "key": "1"}])).targets()[0]

    assert right.kind.build(right, Run(tmp_path, INLINE)).manifest.identity.inputs[0]["name"] == "rows.jsonl"


def test_the_order_in_which_files_were_written_changes_no_digest(tmp_path: Path) -> None:
    write_notes(tmp_path / "sources" / "notes")
    recipe = recipe_with(tmp_path, only("notes"))
    first = digests(build(recipe, tmp_path))
    contents = {path.name: path.read_bytes() for path in (tmp_path / "sources" / "notes").iterdir()}

    for name in sorted(contents, reverse=True):
        (tmp_path / "sources" / "notes" / name).write_bytes(contents[name])

    assert digests(build(recipe, tmp_path)) == first
