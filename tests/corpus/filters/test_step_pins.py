"""Pins of own steps, and the recipes that are refused because of them."""

import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from corpus_fixtures import Publish
from own_steps import DECIDES, KEEP, build_step, kept_texts, write_step
from refusals import refusal
from stage_a_build import INLINE

from pipeline_assets.build import recipe_paths
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.recipe_versions import find_or_write_version
from pipeline_assets.build.recipe_writing import copy_recipe
from pipeline_assets.build.rows.follow import follow_document
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe


@pytest.mark.parametrize(
    ("code", "python", "message"),
    [
        (
            "import re, nopack, helper\nfrom other3 import x, helper\n" + KEEP,
            {},
            "{file}:1: no installed package provides helper, nopack, other3; install one that does, or put the code",
        ),
        (
            "if 1:\n    from .helper import x\n" + KEEP,
            {},
            "{file}:2: no installed package provides a relative import;",
        ),
        ("def keep(document)\n    pass\n", {}, "{file}:1: not valid Python (expected ':'); correct that line"),
        (f"x = {'-' * 30_000}1\n", {}, "{file}:1: not valid Python (nested too deeply); correct that line"),
        (
            "def other(document): ...\n",
            {},
            "function keep not found; the functions are other; define it by `def` at the top level of the file",
        ),
        ("async def keep(document): ...\n", {}, "the functions are none; define it by `def`"),
        ("keep = lambda document: None\n", {}, "the functions are none; define it by `def`"),
        (KEEP, {"file": "other.py"}, "other.py: file not found; write it there, or correct `file`"),
        (KEEP, {"file": "../my_filter.py"}, "must be the name of a file in the recipe's folder, such as my_filter.py"),
        (KEEP, {"file": "/tmp/my_filter.py"}, "must be the name of a file in the recipe's folder"),
        (KEEP, {"function": "a b"}, "function a b not found; the functions are keep"),
        (KEEP, {"pins": {}}, "`pins` is read from the file; remove it"),
        (KEEP, {"seconds": 0}, "must be >= 1, got 0"),
        (KEEP, {"memory_mib": 1 << 41}, "must be <= 1099511627776, got 2199023255552"),
        ("#" * 70_000, {}, "not a valid step: the file has more than 65,536 bytes"),
    ],
)
def test_invalid_step_is_refused_when_its_recipe_is_read(
    code: str, python: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = write_step(tmp_path, code, ["a"], **python)

    refused = refusal(lambda: StageARecipe.read(path), UsageError)
    assert message.replace("{file}", str(path.parent / "my_filter.py")) in refused
    assert refused.startswith(f"{path}:") and "`sources.0.filters.python" in refused


def test_wrong_step_file_is_reported_with_the_other_errors_of_its_recipe(tmp_path: Path) -> None:
    path = write_step(tmp_path, KEEP, ["a"], filters={"length": {"min_words": -1}})
    path.write_text(path.read_text() + "foo: 1\n")
    (path.parent / "my_filter.py").unlink()

    with pytest.raises(UsageError) as refused:
        StageARecipe.read(path)

    step = f"`sources.0.filters.python`: {path.parent}/my_filter.py: file not found; write it there, or correct `file`"
    lines = {line.strip(): number for number, line in enumerate(path.read_text().splitlines(), 1)}
    assert [str(error) for error in (refused.value, *refused.value.others)] == [
        f"{path}:{lines['min_words: -1']}: `sources.0.filters.length.min_words` must be >= 0, got -1; "
        "correct the value",
        f"{path}:{lines['python:']}: {step}",
        f"{path}:{lines['foo: 1']}: unknown key `foo`; "
        "remove it; known keys: decontamination, dedup, max_removed, name, outputs, pack, refuse_licences, seen, "
        "shard_text_bytes, sources, system, tokenizer",
    ]


def test_a_file_may_have_a_byte_order_mark_and_must_be_utf8(tmp_path: Path) -> None:
    path = write_step(tmp_path, "\ufeff" + KEEP, ["a text"])
    assert kept_texts(build_step(path, tmp_path / "data")) == ["a text"]

    (path.parent / "my_filter.py").write_bytes(b"# caf\xe9\n" + KEEP.encode())
    assert refusal(lambda: StageARecipe.read(path)).endswith("my_filter.py: not UTF-8 (byte 5); save it as UTF-8")


def test_a_function_is_found_by_its_name_in_any_unicode_form(tmp_path: Path) -> None:
    for code, name in (("k\xe9ep", "ke\u0301ep"), ("ke\u0301ep", "k\xe9ep")):
        path = write_step(tmp_path, KEEP.replace("keep", code), ["a"], function=name)

        assert kept_texts(build_step(path, tmp_path / code)) == ["a"]


def test_a_linked_file_is_refused(tmp_path: Path) -> None:
    path = write_step(tmp_path, KEEP, ["a"])
    (path.parent / "my_filter.py").rename(tmp_path / "elsewhere.py")
    (path.parent / "my_filter.py").symlink_to(tmp_path / "elsewhere.py")

    assert "not a valid step: the path is a link" in refusal(lambda: StageARecipe.read(path))


def test_a_step_without_a_recipe_file_is_refused() -> None:
    section = {"python": {"file": "my_filter.py", "function": "keep"}}

    assert refusal(lambda: FilterRecipe.from_mapping(section, "filters.yaml")) == (
        "filters.yaml: `python`: the file of a step is next to its recipe; write this section into a recipe file"
    )


def test_reading_a_recipe_and_its_states_runs_no_line_of_the_step(tmp_path: Path) -> None:
    path = write_step(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n" + KEEP, ["a"])

    recipe = StageARecipe.read(path)

    states = {item.target.role: item.display_state for item in artifact_statuses(tmp_path / "data", recipe.targets())}
    assert states["stage_a/filtered/notes"] == "missing"
    assert not (tmp_path / "ran").exists()


def test_an_edited_file_makes_its_artifact_stale_with_one_line(tmp_path: Path) -> None:
    path = write_step(tmp_path, KEEP, ["a"])
    build_step(path, tmp_path / "data")
    (path.parent / "my_filter.py").write_text(KEEP + "\n")

    target = StageARecipe.read(path).target("stage_a/filtered", "notes")

    assert target.state(tmp_path / "data") == (
        "stale",
        "the recipe changed (`filters.python.pins.my_filter.py`: 110b77cb9935… → bd88bef0d166…)",
    )


@pytest.fixture
def tiny_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a package `tiny-words` of a version, with the module `tiny_words`."""
    folder = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", ":".join([str(folder), *filter(None, sys.path)]))

    def install(version: str) -> None:
        info = folder / "tiny_words.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        requires = "Requires-Dist: msgspec>=0.1\nRequires-Dist: regex; extra == 'fast'\n"
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tiny-words\nVersion: {version}\n{requires}")
        (folder / "tiny_words.py").write_text("def is_odd(text):\n    return len(text) % 2 == 1\n")

    return install


def test_changed_version_of_an_import_is_stale_and_refused(tiny_package: Callable[[str], None], tmp_path: Path) -> None:
    tiny_package("1.0")
    code = "import tiny_words\n\ndef keep(d):\n    return 'odd' if tiny_words.is_odd(d.text) else d\n"
    path = write_step(tmp_path, code, ["a", "bb", "ccc"])
    built = build_step(path, tmp_path / "data")
    pinned = StageARecipe.read(path).target("stage_a/filtered", "notes")
    assert kept_texts(built) == ["bb"]
    assert built.manifest.identity.recipe["filters"]["python"]["pins"].keys() == {
        "my_filter.py",
        "python",
        "tiny-words",
        "msgspec",
    }

    tiny_package("2.0")

    stale = "the recipe changed (`filters.python.pins.tiny-words`: 1.0 → 2.0)"
    assert StageARecipe.read(path).target("stage_a/filtered", "notes").state(tmp_path / "data") == ("stale", stale)
    assert stale in refusal(lambda: build_step(path, tmp_path / "data"))
    run = Run(tmp_path / "other", INLINE)
    for target in pinned.upstream[0].upstream + pinned.upstream:
        target.kind.build(target, run)
    assert refusal(lambda: pinned.kind.build(pinned, run)) == (
        "my_filter.py: packages changed (tiny-words: 1.0 → 2.0); install the pinned versions, or run its recipe again "
        "with --replace"
    )


def test_another_data_root_with_the_copied_recipe_and_file_has_the_same_digests(tmp_path: Path) -> None:
    path = write_step(tmp_path, DECIDES, ["as is", "cut this", "none here"])
    first = build_step(path, tmp_path / "data")
    copied = tmp_path / "elsewhere"
    copied.mkdir()
    for file in path.parent.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())

    assert build_step(copied / "mixed.yaml", tmp_path / "other").manifest.digest == first.manifest.digest


def test_the_fate_of_a_document_names_the_step(tmp_path: Path) -> None:
    path = write_step(tmp_path, DECIDES, ["as is", "none here", "error here"], max_reject_fraction="0.5")
    build_step(path, tmp_path / "data")
    stores = RowStores(SYSTEMS.kinds, Lineage(tmp_path / "data"))
    lines = [
        [*fate.lines]
        for number in range(3)
        for row in follow_document(stores, f"note-{number}")
        for _, fate in row.downstream
    ]

    assert lines == [
        ["kept", "  python: kept by keep in my_filter.py"],
        ["dropped for own_step", "  own_step by my_filter.py"],
        ["rejected: step_failed (my_filter.py:15: ZeroDivisionError: division by zero)"],
    ]


def test_copied_recipe_includes_its_step_and_replaces_no_other(tmp_path: Path) -> None:
    path = write_step(tmp_path, KEEP, ["a"])

    copied = copy_recipe(path, "mixed", tmp_path / "data", replace=False)

    assert StageARecipe.read(copied).targets() == StageARecipe.read(path).targets()
    (path.parent / "my_filter.py").write_text(KEEP + "\n")
    assert refusal(lambda: copy_recipe(path, "mixed", tmp_path / "data", replace=False)) == (
        f"{copied.with_name('my_filter.py')}: another own step exists; run that one by its name, "
        "rename one of them, or run with --replace"
    )
    copy_recipe(path, "mixed", tmp_path / "data", replace=True)
    assert copied.with_name("my_filter.py").read_text() == KEEP + "\n"


def test_a_step_does_not_hide_a_refused_licence(tmp_path: Path) -> None:
    path = write_step(tmp_path, KEEP, ["a"])
    path.write_text(path.read_text() + "refuse_licences: [cc0-1.0]\n")

    assert "source notes has the licence cc0-1.0, which `refuse_licences` refuses" in refusal(
        lambda: StageARecipe.read(path)
    )


@pytest.mark.parametrize("folder", ["project", "data/recipes"])
def test_a_version_of_a_recipe_has_its_step_next_to_it(
    folder: str, tmp_path: Path, publish: Publish, hub_files: HubFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, path = publish({"rows.jsonl": b'{"text": "one"}\n'}), write_step(tmp_path, KEEP, ["a"])
    content = yaml.safe_load(path.read_text())
    [notes] = content["sources"]
    pages = {"kind": "hub", "source": "pages", "dataset": "maker/pages", "revision": UNPINNED, "files": ["*"]}
    pages |= {key: notes[key] for key in ("domain", "license_tag", "filters")}
    pages |= {"amount": {"text_bytes": 1000}, "columns": {"text": "text"}}
    path.write_text(yaml.safe_dump(content | {"sources": [pages]}))
    shutil.copytree(path.parent, tmp_path / folder)
    monkeypatch.setattr(recipe_paths, "PROJECT_RECIPES_FOLDER", tmp_path / "project")

    version = find_or_write_version("mixed", tmp_path / "data", SYSTEMS, hub_files, datetime(2026, 11, 2, tzinfo=UTC))

    recipe = StageARecipe.read(version.path)
    assert version.path == tmp_path / "data/recipes/mixed_20261102.yaml"
    assert recipe.revisions() == [("maker/pages", commit)]
    assert recipe.sources[0].filters.python.code == KEEP  # type: ignore[union-attr]
