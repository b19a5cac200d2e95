"""Folders of repositories: text files of any ending, licensed by repository."""

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pydantic
import pytest
from refusals import refusal
from stage_a_build import build, notes_recipe

from pipeline_assets.build.rows.documents import SourceRows
from pipeline_assets.corpus.licence_texts import MAX_LICENCE_TEXT_BYTES, licence_texts_fingerprint
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.normalize.files import licences_by_folder
from pipeline_assets.corpus.normalize.sources import LocalSource, check_folders, parse_source
from pipeline_assets.corpus.readers.local import LocalRecipe
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.stage_a import StageARecipe

Normalized = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, Any]]]
CODE: dict[str, Any] = {"files": ["**/*.py"], "columns": None, "text_unit": "file", "text_endings": [".py", ".rs"]}
LICENSED: dict[str, Any] = CODE | {"license_files": "LICENSE*", "license_tag": "cc0-1.0"}
MIT, APACHE = "SPDX-License-Identifier: MIT\n", "SPDX-License-Identifier: Apache-2.0\n"


def list_licences(documents: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {doc["meta"]["source_file"]: (doc["license_tag"], doc["meta"]["license_evidence"]) for doc in documents}


def test_files_of_listed_suffixes_are_whole_texts_and_an_empty_file_is_a_reject(
    normalized: Normalized, read_docs: Read, read_rejects: Read, tmp_path: Path
) -> None:
    files = {
        "a/__init__.py": "",
        "a/x.py": "x = 1\ny = 2\n",
        "a/Y.RS": "fn main() {}\n",
        "b/z.py.gz": gzip.compress(b"z = 3\n"),
        "b/notes.txt": "No.",
    }

    artifact = normalized("notes", files, **CODE | {"files": ["a/*", "b/*"]})

    assert [doc["text"] for doc in read_docs(artifact)] == ["fn main() {}\n", "x = 1\ny = 2\n", "No.", "z = 3\n"]
    assert [(row["file"], row["reason"]) for row in read_rejects(artifact)] == [("a/__init__.py", "empty_text")]
    assert SourceRows(artifact, Lineage(tmp_path / "data")).find_by_source("a/x.py", 6) == (1, False)


def test_the_error_for_an_unknown_ending_names_the_recipe_key(normalized: Normalized) -> None:
    line = refusal(lambda: normalized("notes", {"a.go": "package a\n"}, **CODE | {"files": ["*"]}), UsageError)

    what, _, fix = line.partition("; ")
    assert what.endswith(".docx, .pdf, .py, .rs, compressed or not") and "text_endings" in fix


@pytest.mark.parametrize("ending", ["py", ".PY", ".", "*.py", ".json", ".min.json", ".gz", ".py.zst", ".md"])
def test_an_ending_with_another_meaning_is_refused(ending: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        LocalRecipe(source="code", text_endings=(ending,))


@pytest.mark.parametrize("pattern", ["", "a/LICENSE", "**/LICENSE"])
def test_a_licence_file_pattern_matches_names_only(pattern: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        LocalRecipe(source="code", license_files=pattern)


def test_a_document_has_the_licence_of_the_nearest_licence_file(normalized: Normalized, read_docs: Read) -> None:
    """Files of one folder that differ, and texts too long for a licence, give none."""
    files = {
        "one/LICENSE": MIT,
        "one/a.py": "a = 1\n",
        "one/deep/er/b.py": "b = 2\n",
        "one/vendor/LICENSE.txt": APACHE,
        "one/vendor/src/c.rs": "fn c() {}\n",
        "two/LICENSE": "All rights reserved.\n",
        "two/d.py": "d = 4\n",
        "three/e.py": "e = 5\n",
        "onetwo/f.py": "f = 6\n",
        "differ/LICENSE-APACHE": APACHE,
        "differ/LICENSE-MIT": MIT,
        "differ/g.py": "g = 7\n",
        "alike/LICENSE": MIT,
        "alike/LICENSE.md": MIT,
        "alike/h.py": "h = 8\n",
        "long/LICENSE": MIT + "\n" * MAX_LICENCE_TEXT_BYTES,
        "long/i.py": "i = 9\n",
        "longest/LICENSE": MIT + "\n" * (MAX_LICENCE_TEXT_BYTES - len(MIT.encode())),
        "longest/l.py": "l = 12\n",
        "latin-1/LICENSE": b"\xa9 2001 J\xfcrgen\n" + MIT.encode(),
        "latin-1/j.py": "j = 10\n",
        "mark/LICENSE": b"\xef\xbb\xbf" + MIT.encode(),
        "mark/k.py": "k = 11\n",
    }

    artifact = normalized("notes", files, **LICENSED | {"files": ["**/*.py", "**/*.rs"]})

    assert list_licences(read_docs(artifact)) == {
        "one/a.py": ("mit", "file: one/LICENSE"),
        "one/deep/er/b.py": ("mit", "file: one/LICENSE"),
        "one/vendor/src/c.rs": ("apache-2.0", "file: one/vendor/LICENSE.txt"),
        "two/d.py": ("unknown", "file: two/LICENSE"),
        "three/e.py": ("cc0-1.0", "recipe"),
        "onetwo/f.py": ("cc0-1.0", "recipe"),
        "differ/g.py": ("unknown", "file: differ/LICENSE-APACHE (apache-2.0), differ/LICENSE-MIT (mit)"),
        "alike/h.py": ("mit", "file: alike/LICENSE"),
        "long/i.py": ("unknown", "file: long/LICENSE"),
        "longest/l.py": ("mit", "file: longest/LICENSE"),
        "latin-1/j.py": ("mit", "file: latin-1/LICENSE"),
        "mark/k.py": ("mit", "file: mark/LICENSE"),
    }


def test_a_row_with_its_own_licence_keeps_it(normalized: Normalized, read_docs: Read) -> None:
    rows = [{"text": "One.", "license": "CC0"}, {"text": "Two."}]
    files = {"a/rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows), "a/LICENSE": MIT}

    documents = read_docs(normalized("notes", files, files=["**/*.jsonl"], columns={}, license_files="LICENSE"))

    evidence = [(doc["license_tag"], doc["meta"]["license_evidence"]) for doc in documents]
    assert evidence == [("cc0-1.0", "row: license"), ("mit", "file: a/LICENSE")]


def test_a_licence_file_is_never_a_document(normalized: Normalized, read_docs: Read) -> None:
    files = {"a/LICENSE.txt": MIT, "a/LICENSE.py": MIT, "a/x.py": "x = 1\n", "a/licenses.py": "y = 2\n"}

    artifact = normalized("notes", files, **LICENSED | {"files": ["**/*"]})

    assert sorted(list_licences(read_docs(artifact))) == ["a/licenses.py", "a/x.py"]


def write_recipe(root: Path, files: Mapping[str, str], **changes: object) -> StageARecipe:
    folder = root / "code"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return notes_recipe(root, path=str(folder), **LICENSED | {"filters": {}} | changes)


def test_a_change_of_a_licence_file_changes_the_digest(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, {"a/LICENSE": MIT, "a/x.py": "x = 1\n"})
    first = build(recipe, tmp_path)
    raw, normalized = (recipe.target(f"stage_a/{step}", "notes") for step in ("raw", "normalized"))
    before = first[raw.role].manifest

    (tmp_path / "code/a/LICENSE").write_text(APACHE)

    assert [entry["name"] for entry in before.identity.inputs] == ["a/LICENSE", "a/x.py"]
    external_inputs = raw.external_inputs
    assert external_inputs is not None and external_inputs.describe_changes(tmp_path, before) is not None
    rebuilt = build(recipe, tmp_path, replace=True)
    assert rebuilt[normalized.role].manifest.digest != first[normalized.role].manifest.digest


def test_a_pattern_without_files_is_reported_with_its_key(tmp_path: Path) -> None:
    content = {"kind": "local", "source": "code", "path": str(tmp_path), **LICENSED, "license_files": "LICENCE"}
    (tmp_path / "a.py").write_text("a = 1\n")

    [problem] = check_folders({"sources": [content]}, tmp_path)

    assert (problem.location, problem.what, problem.fix) == (
        ("sources", 0, "license_files"),
        f"no file named LICENCE in {tmp_path}",
        "correct or remove `license_files`",
    )


def test_unused_keys_are_not_part_of_the_output_content(tmp_path: Path) -> None:
    source = LocalSource(kind="local", source="code", path=".", files=("**/*.py",))
    code = source.model_copy(update={"text_endings": (".py",), "license_files": "LICENSE"})

    plain, named = source.output_content(1), code.output_content(1)

    assert named.keys() - plain.keys() == {"text_endings", "license_files", "licence_texts"}
    assert named["licence_texts"] == licence_texts_fingerprint()
    parsed, _ = parse_source(named | {"licences": licence_table().fingerprint})
    assert parsed.output_content(1) == named


def test_a_missing_licence_file_is_named_in_the_error(tmp_path: Path) -> None:
    missing = SourceFile(tmp_path / "LICENSE", "LICENSE", 3)

    assert refusal(lambda: licences_by_folder([missing])).startswith(f"{tmp_path / 'LICENSE'}: ")
