"""docs/manifest.md suffices to verify a data root without this project.

Programs written from the page alone run on small roots with every kind of artifact, and on damaged copies.
"""

import ast
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill
from manifest_page import CONTENT_HASHES, PAGE, VERIFIER, find_damage, read_lines, run_program, run_verifier
from root_changes import flip, reseal, unsealed_sha256
from sealed_roots import artifact_folders, unpack_latest

from pipeline_assets.build.trainer_exports import KINDS
from pipeline_assets.corpus.formats.parquet import ContentHash
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.manifest import MANIFEST_FILE, canonical_json, canonical_sha256
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.verify import content_sha256

SPLIT, PACKED = "megatron/pages_v1/train", "stage_a/mixed/packed/mixed"
SUBSETS, SAMPLE = "nemotron/nemotron_v1/training_subsets", "parallel_text/pairs/sample"
CACHE, SIGNATURES = "parallel_text/pairs/token_cache", "stage_a/mixed/signatures/mixed"
# A file of each ending, or of each name without one.
FILES = {
    "healing": [f"{SPLIT}/{name}" for name in ("tokens.bin", "tokens.idx", "documents.parquet", "rejects.jsonl.zst")],
    "stage_a": [
        *(f"{PACKED}/{name}" for name in ("input_ids.mmap", "index.jsonl.zst", "boundaries.npy", "meta.json")),
        f"{SIGNATURES}/shingles/notes-00000.sets",
        f"{SIGNATURES}/shingles/notes-00000.index",
        "stage_a/mixed/report/mixed/report.html",
        "stage_a/mixed/report/mixed/ATTRIBUTION",
    ],
    "nemotron": [
        f"{SUBSETS}/tokens/all/loss_mask.npy",
        "nemotron/nemotron_v1/inventory/chats/high_part01/metadata_coverage.md",
        "nemotron/nemotron_v1/prompts/chats/high_part01/texts/00000",
    ],
    "stage2": ["stage2/local/tokenizer/spm_90_unigram.model", "stage2/local/tokenizer/spm_90_unigram.vocab"],
    "parallel_text": [f"{SAMPLE}/manifest.jsonl", f"{CACHE}/src.offsets.npy"],
}


# The page


def test_the_programs_are_short_and_need_only_pyarrow() -> None:
    for program, lines in ((VERIFIER, 71), (CONTENT_HASHES, 30)):
        tree = ast.parse(program)
        imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]

        assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
        assert {name.split(".")[0] for name in imported} - sys.stdlib_module_names == {"pyarrow"}
        assert sum(bool(line.strip()) for line in program.splitlines()) <= lines
        assert max(map(len, program.splitlines())) <= 120


def test_examples_of_the_page_have_the_stated_hashes() -> None:
    text = PAGE.read_text("utf-8")
    canonical, digest = re.findall(r"is written as `(.+)`, which has the\s+sha256 `(\w+)`", text)[0]
    block, size, content = re.findall(r"```\n(.*?)```\s+These are (\d+) bytes with the sha256 `(\w+)`", text, re.S)[0]
    example = {"b": [1, -20, True, None], "a": 'é\n\u001f/"'}

    assert canonical_json(example).decode() == canonical
    assert canonical_sha256(example) == hashlib.sha256(canonical.encode()).hexdigest() == digest

    data = bytes.fromhex(" ".join(line[:72] for line in block.splitlines()))
    schema = pa.schema([pa.field("t", pa.string()), pa.field("n", pa.int32(), nullable=False)])
    hashed = ContentHash(schema)
    hashed.update(pa.table([["a", None, "bcd"], pa.array([1, 2, -1], pa.int32())], schema=schema))
    assert (len(data), hashlib.sha256(data).hexdigest(), hashed.hexdigest()) == (int(size), content, content)


def test_areas_labels_and_kinds_of_the_page_match_the_program() -> None:
    text, names = PAGE.read_text("utf-8"), dict[str, Any]()
    exec(VERIFIER[VERIFIER.index("AREAS =") : VERIFIER.index("def ")], names)

    labels = {(kind.name, name) for kind in SYSTEMS.kinds.values() for name in kind.labels}
    labels |= {(kind.name.split("/")[0], name) for kind in KINDS.values() for name in kind.labels}
    differing = sorted(names["LABELS"].items() ^ labels)
    assert not differing, f'correct {differing} in the table of labels under "Files", and in LABELS, of {PAGE.name}'
    assert set(names["AREAS"]) == set(AREAS)
    table = text.partition("## Files of each kind")[2].partition("## The ledger")[0]
    patterns = [re.escape(name).replace(r"\*", r"\w+") for name in re.findall(r"`([a-z0-9_*]+/[a-z_0-9]+)`", table)]
    missing = [name for name in SYSTEMS.kinds if not any(re.fullmatch(pattern, name) for pattern in patterns)]
    assert not missing, f'add the files of {missing} to the table "Files of each kind" in {PAGE.name}'


# Intact roots


@pytest.mark.parametrize("to", ["megatron", "olmo"])
def test_an_export_in_a_data_root_is_intact(to: str, corpusmill: Corpusmill, built_notes: Path, tmp_path: Path) -> None:
    corpus = built_notes / "stage_a" / "mixed" / "filtered" / "notes"
    assert corpusmill("export", corpus, "--to", to, "--out", tmp_path / "stage_a" / to).returncode == 0
    shutil.copytree(built_notes / "stage_a" / "mixed", tmp_path / "stage_a" / "mixed")

    result = run_verifier(tmp_path)

    assert (result.returncode, read_lines(result.stdout)[f"stage_a/{to}"]) == (0, [])


def test_every_registered_kind_is_found_intact(tmp_path: Path) -> None:
    latest = unpack_latest(tmp_path)
    kinds = {json.loads((folder / MANIFEST_FILE).read_bytes())["kind"] for folder in artifact_folders(latest)}

    missing = SYSTEMS.kinds.keys() - kinds
    assert not missing, f"seal {sorted(missing)} in a new archive, as tests/builders/sealed_roots.py describes"
    for root in latest.iterdir():
        result = run_verifier(root)
        assert result.returncode == 0
        assert read_lines(result.stdout) == {str(folder.relative_to(root)): [] for folder in artifact_folders(root)}


def test_a_folder_without_artifacts_is_not_called_intact(tmp_path: Path) -> None:
    result = run_program(VERIFIER, tmp_path / "missing")

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"{tmp_path}/missing: no artifact found\n"


def test_the_verifier_prints_a_line_for_each_artifact(intact_roots: Path) -> None:
    assert run_verifier(intact_roots / "healing").stdout.splitlines() == [
        "intact  corpora/pages/6b78669d5c60306215ced997013432636ad93a75",
        "intact  selections/pages_v1",
        "intact  megatron/pages_v1",
        "intact  megatron/pages_v1/train",
        "intact  megatron/pages_v1/valid",
    ]


def test_content_hashes_of_parquet_match_the_manifests(intact_roots: Path) -> None:
    expected = {
        str(folder / file["path"]): file["content_sha256"]
        for folder in artifact_folders(intact_roots)
        for file in json.loads((folder / MANIFEST_FILE).read_bytes())["identity"]["files"]
        if file["path"].endswith(".parquet")
    }

    result = run_program(CONTENT_HASHES, *map(Path, expected))

    assert len(expected) == 35
    assert dict(reversed(line.split(" ", 1)) for line in result.stdout.splitlines()) == expected


def test_content_hashes_agree_on_nulls_odd_floats_lists_and_several_blocks(tmp_path: Path) -> None:
    rows = 140_001
    table = pa.table(
        {
            "text": pa.array(["naïve\0🐻", None, ""] * (rows // 3)),
            "lists": pa.array([["a", None, "bc"], [], None] * (rows // 3), pa.list_(pa.string())),
            "floats": pa.array([float("nan"), -0.0, None] * (rows // 3)),
            "flags": pa.array([True, None, False] * (rows // 3)),
            "big": pa.array([2**64 - 1, None, 0] * (rows // 3), pa.uint64()),
        }
    )
    for name, part, group in (("many", table, 50_000), ("one", table.slice(1, 1), 1), ("none", table.slice(0, 0), 1)):
        pq.write_table(part, tmp_path / f"{name}.parquet", row_group_size=group)
    paths = [tmp_path / f"{name}.parquet" for name in ("many", "one", "none")]

    result = run_program(CONTENT_HASHES, *paths)

    assert result.stdout.splitlines() == [f"{content_sha256(path)} {path}" for path in paths], result.stderr


# Damaged copies


@pytest.mark.parametrize("system", FILES)
def test_a_flipped_bit_is_found_in_a_file_of_every_ending(copy_root: Callable[[str], Path], system: str) -> None:
    root, expected = copy_root(system), set()
    for name in FILES[system]:
        size, before = (root / name).stat().st_size, hash_file(root / name)
        flip(root / name, 8 * (size // 2))
        expected.add(f"{name}: [{size}, '{hash_file(root / name)}'], expected [{size}, '{before}']")

    assert {f"{folder}/{line}" for folder, lines in find_damage(root).items() for line in lines} == expected


def hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_ending_is_flipped(intact_roots: Path) -> None:
    def read_ending(path: str) -> str:
        return Path(path).suffix or Path(path).name.rstrip("0123456789")

    stored = {
        read_ending(file["path"])
        for folder in artifact_folders(intact_roots)
        for file in json.loads((folder / MANIFEST_FILE).read_bytes())["storage"]
    }

    assert stored == {read_ending(name) for names in FILES.values() for name in names}


def test_a_flipped_bit_of_a_manifest_is_found(copy_root: Callable[[str], Path]) -> None:
    root = copy_root("healing")
    path = root / SPLIT / MANIFEST_FILE
    path.write_bytes(path.read_bytes().replace(b'"tokens": 270\n', b'"tokens": 271\n'))

    assert find_damage(root) == {
        SPLIT: [
            f"seal: sha256:{unsealed_sha256(path)}, expected {json.loads(path.read_bytes())['seal']}",
            "digest: sha256:c36270d7bfea34b8e29c56ed76dc06c49ac9dceb1f0b97d4264b8e8eb57e8516, "
            "expected sha256:e6050d7eab41d02f72a7ba09fa064648726519aac87c4f3439efb89d14fe4246",
        ]
    }


def test_removed_added_and_linked_files_are_found(copy_root: Callable[[str], Path]) -> None:
    root = copy_root("healing")
    (root / SPLIT / "tokens.idx").unlink()
    (root / SPLIT / "notes.txt").write_text("mine")
    (root / SPLIT / ".hidden").write_text("mine")
    (root / "megatron/pages_v1/valid/tokens.bin").rename(root / "tokens.bin")
    (root / "megatron/pages_v1/valid/tokens.bin").symlink_to(root / "tokens.bin")
    (root / "megatron/pages_v1/.train.lock").write_text("of a member")

    assert find_damage(root) == {
        SPLIT: [
            ".hidden: unlisted, expected a listed file",
            "notes.txt: unlisted, expected a listed file",
            "tokens.idx: missing, expected a listed file",
        ],
        "megatron/pages_v1/valid": [
            "tokens.bin: missing, expected a listed file",
            "tokens.bin@: unlisted, expected a listed file",
        ],
    }


def test_a_removed_manifest_is_found_in_its_folder_and_downstream(copy_root: Callable[[str], Path]) -> None:
    root = copy_root("parallel_text")
    (root / SAMPLE / MANIFEST_FILE).unlink()

    assert find_damage(root) == {
        SAMPLE: ["manifest.json: missing, expected a manifest"],
        CACHE: [
            "input parallel_text/sample: missing, expected "
            "['sha256:e745e5c61590ba33bcb4f6f2fb5867b12c59ede040879008cd64e6ab26ceb491', 'parallel_text/sample']"
        ],
    }


def test_a_swapped_upstream_and_swapped_members_are_found(copy_root: Callable[[str], Path]) -> None:
    filtered = copy_root("stage_a") / "stage_a/mixed/filtered"
    shutil.rmtree(filtered / "notes")
    shutil.copytree(filtered / "leaves", filtered / "notes")
    members = copy_root("healing") / "megatron/pages_v1"
    for source, target in (("train", "x"), ("valid", "train"), ("x", "valid")):
        (members / source).rename(members / target)

    assert find_damage(filtered.parents[2]) == {
        f"stage_a/mixed/{folder}/mixed": [
            "input stage_a/filtered/notes: missing, expected "
            "['sha256:fdc713318de7540d0826fe1f48df61d107c6295ae6489bfd4bf72e4f87a7d6c0', 'stage_a/filtered']"
        ]
        for folder in ("deduplicated", "report")
    }
    assert find_damage(members.parents[1]) == {
        "megatron/pages_v1": [
            f"input healing/megatron_split/{name}: missing, expected ['sha256:{digest}', 'healing/megatron_split']"
            for name, digest in (
                ("train", "e6050d7eab41d02f72a7ba09fa064648726519aac87c4f3439efb89d14fe4246"),
                ("valid", "a42895dc677fb918a71472be4801aa1eb7473555436ce2363db9f639d3ba5559"),
            )
        ]
    }


@pytest.mark.parametrize("name", ["tokens.bin", "tokens.idx", "documents.parquet", "rejects.jsonl.zst"])
def test_deleted_replaced_and_swapped_files_are_named(copy_root: Callable[[str], Path], name: str) -> None:
    root = copy_root("healing")
    path = root / SPLIT / name
    size, sealed = path.stat().st_size, hash_file(path)

    path.unlink()
    assert find_damage(root) == {SPLIT: [f"{name}: missing, expected a listed file"]}
    path.write_bytes(b"PAR1")
    shorter = [f"size of tokens.bin: 4, expected {size}"] * (name == "tokens.bin")  # according to the index
    assert find_damage(root) == {SPLIT: [f"{name}: [4, '{hash_file(path)}'], expected [{size}, '{sealed}']", *shorter]}
    path.unlink()
    path.mkdir()
    assert find_damage(root) == {SPLIT: [f"{name}: missing, expected a listed file"]}


@pytest.mark.parametrize("name", ["documents.parquet", "rejects.jsonl.zst"])
def test_a_damaged_file_of_the_manifest_hides_no_other_finding(copy_root: Callable[[str], Path], name: str) -> None:
    root = copy_root("healing")
    (root / SPLIT / name).write_bytes(b"not such a file")
    (root / SPLIT / "tokens.idx").unlink()

    def relist(manifest: dict[str, Any]) -> None:
        [entry] = [file for file in manifest["storage"] if file["path"] == name]
        entry |= {"bytes": 15, "sha256": hash_file(root / SPLIT / name)}

    reseal(root / SPLIT, relist)

    missing, unreadable = find_damage(root)[SPLIT]
    assert missing == "tokens.idx: missing, expected a listed file"
    assert unreadable.startswith(f"{name}: ") and unreadable.endswith(", expected a readable file")


@pytest.mark.parametrize("damage", [b"{", b"[]\n", b'{"identity": 7, "seal": "x"}\n', b"\xff\xfe"])
def test_a_damaged_manifest_is_one_line_without_a_traceback(copy_root: Callable[[str], Path], damage: bytes) -> None:
    root = copy_root("healing")
    (root / "megatron/pages_v1" / MANIFEST_FILE).write_bytes(damage)

    errors = find_damage(root)

    assert [*errors] == ["megatron/pages_v1"]
    assert errors["megatron/pages_v1"][-1].startswith("manifest.json: ")
    assert errors["megatron/pages_v1"][-1].endswith(", expected a readable file")
