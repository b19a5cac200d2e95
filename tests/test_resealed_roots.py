"""The verifier of docs/manifest.md on edited manifests with renewed seals."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from healing_set import verify
from manifest_page import CONTENT_HASHES, find_damage, run_program
from root_changes import reseal, unsealed_sha256

from pipeline_assets.spine.manifest import MANIFEST_FILE, canonical_sha256

SPLIT, PACKED = "megatron/pages_v1/train", "stage_a/mixed/packed/mixed"
SAMPLE, CACHE = "parallel_text/pairs/sample", "parallel_text/pairs/token_cache"


def test_edits_with_a_renewed_seal_are_found(copy_root: Callable[[str], Path]) -> None:
    root = copy_root("parallel_text")
    (root / SAMPLE / "notes.txt").write_bytes(b"mine")
    entry = {"path": "notes.txt", "bytes": 4, "sha256": hashlib.sha256(b"mine").hexdigest()}

    def edit_sample(manifest: dict[str, Any]) -> None:
        manifest["storage"].append(entry)
        manifest["identity"]["note"] = 1

    def edit_cache(manifest: dict[str, Any]) -> None:
        rows = {file["path"]: file for file in manifest["identity"]["files"]}
        rows["splits.npy"]["rows"] = 41

    reseal(root / SAMPLE, edit_sample)
    reseal(root / CACHE, edit_cache)

    errors = find_damage(root)

    keys = "'counts', 'decisions', 'files', 'inputs', {}'recipe', 'recipe_sha256', 'stage', 'tokenizer']"
    schema = "['corpusmill/manifest/1', "
    assert errors[SAMPLE] == [
        f"schema: {schema}{keys.format(chr(39) + 'note' + chr(39) + ', ')}, expected {schema}{keys.format('')}",
        "storage: ['manifest.jsonl', 'notes.txt', 'rejects.jsonl.zst'], "
        "expected ['manifest.jsonl', 'rejects.jsonl.zst']",
    ]
    assert errors[CACHE][1:] == ["rows of splits.npy: 40, expected 41"]  # the first line names the changed upstream


def test_false_rows_sizes_and_content_hashes_are_found_under_a_valid_seal(copy_root: Callable[[str], Path]) -> None:
    root = copy_root("healing")
    with open(root / SPLIT / "tokens.bin", "ab") as tokens:
        tokens.write(bytes(4))
    changed_sha256 = hashlib.sha256((root / SPLIT / "tokens.bin").read_bytes()).hexdigest()

    def edit(manifest: dict[str, Any]) -> None:
        files = {file["path"]: file for file in manifest["identity"]["files"]}
        stored = {file["path"]: file for file in manifest["storage"]}
        files["tokens.bin"]["content_sha256"] = stored["tokens.bin"]["sha256"] = changed_sha256
        stored["tokens.bin"]["bytes"] += 4
        files["rejects.jsonl.zst"] |= {"rows": 1, "content_sha256": "0" * 64}
        files["tokens.idx"]["rows"] = files["documents.parquet"]["rows"] = 19

    reseal(root / SPLIT, edit)

    assert find_damage(root)[SPLIT] == [
        "rows of documents.parquet: 18, expected 19",
        f"content of rejects.jsonl.zst: {hashlib.sha256(b'').hexdigest()}, expected {'0' * 64}",
        "rows of rejects.jsonl.zst: 0, expected 1",
        "rows of tokens.idx: 18, expected 19",
        "size of tokens.bin: 1084, expected 1080",
    ]


def test_a_false_recipe_sha256_is_found_under_a_valid_digest_and_seal(copy_root: Callable[[str], Path]) -> None:
    path = copy_root("parallel_text") / CACHE / MANIFEST_FILE
    manifest = json.loads(path.read_bytes())
    manifest["identity"]["recipe_sha256"] = "0" * 64
    manifest["digest"] = "sha256:" + canonical_sha256(manifest["identity"])
    path.write_bytes(json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False).encode() + b"\n")
    text = path.read_text().replace(manifest["seal"], f"sha256:{unsealed_sha256(path)}")
    path.write_text(text)

    expected = f"recipe_sha256: {canonical_sha256(manifest['identity']['recipe'])}, expected {'0' * 64}"
    assert find_damage(path.parents[3]) == {CACHE: [expected]}


def test_edited_provenance_with_a_renewed_seal_is_intact(copy_root: Callable[[str], Path]) -> None:
    root = copy_root("stage_a")
    reseal(root / PACKED, lambda manifest: manifest["provenance"].update(host="another"))

    assert find_damage(root) == {}


def test_an_edited_value_with_renewed_storage_and_seal_has_a_new_content_hash(copy_root: Callable[[str], Path]) -> None:
    root = copy_root("healing")
    path = root / SPLIT / "documents.parquet"
    table = pq.ParquetFile(path).read()
    pq.write_table(table.set_column(0, table.schema[0], pa.array(["other", *table.column(0).to_pylist()[1:]])), path)
    stored = {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    reseal(
        root / SPLIT,
        lambda manifest: [file.update(stored) for file in manifest["storage"] if file["path"] == path.name],
    )

    [digest, _] = run_program(CONTENT_HASHES, path).stdout.split(" ", 1)

    assert find_damage(root) == {}
    sealed = "ac6eb553f6e8888d34a4d5f0fd1e40f22428caacd471d85aeccbca1c5a2882d1"
    [finding] = verify(root / SPLIT, content=True).findings
    assert finding.what == f"content hash is {digest}, sealed with {sealed}"
