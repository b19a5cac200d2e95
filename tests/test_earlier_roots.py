"""Read data roots that earlier versions sealed: status, verify, trace, diff.

`sealed_roots` writes the archives, and describes how to add those of a new version.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_results import Corpusmill
from healing_set import verify
from sealed_roots import ROOTS, artifact_folders, unpack, write_archives

from pipeline_assets.spine.manifest import MANIFEST_FILE, SCHEMA
from pipeline_assets.systems.registry import SYSTEMS

LEAVES = "maker/leaves@6b78669d5c60306215ced997013432636ad93a75:a.parquet"


@dataclass(frozen=True)
class Expected:
    """Expected results for one root.

    Attributes:
        counts: Artifacts, then files of the chain that ends with the system's last artifact, and their bytes.
        listed: An artifact with its counts, as `status` lists it, with single blanks.
        traced: Parts of the output of `trace`.
    """

    counts: tuple[int, int, str]
    listed: str
    traced: list[str]


SUBSETS, SUMS = "nemotron/nemotron_v1/training_subsets", "nemotron/chat_rows/normalized_shards/sums/train"
PLACES = {  # the last artifact of each system, and what is traced
    "healing": ("megatron/pages_v1", "megatron/pages_v1/train --token 100"),
    "stage_a": ("stage_a/mixed/report/mixed", "stage_a/mixed/packed/mixed --token 50"),
    "nemotron": (SUBSETS, f"{SUBSETS} --row 0"),
    "stage2": ("stage2/local/continual_segments", "stage2/local/shards/first --token 10"),
    "parallel_text": ("parallel_text/pairs/token_cache", "parallel_text/pairs/token_cache --row 0"),
    "chat_template": (SUMS, f"{SUMS} --row 0"),
}
SUBSET_ROWS, SUM_ROWS = f"{SUBSETS} 5 documents 772 tokens", f"{SUMS} 3 documents 117 tokens"
TALK, SUM = "nemotron/high_part01.jsonl#610", "chat_template/rows/train.jsonl#0"
CUT, PAIRS = "text      The late cana»l«sheltered", "parallel_text/pairs/token_cache"
EXPECTED = {
    ("2026-11-25", "healing"): Expected(
        (5, 12, "9,437"),
        "megatron/pages_v1/train 18 documents 270 tokens 4,728 bytes",
        [f"source    {LEAVES}#8", "licence   cc0 (recipe)"],
    ),
    ("2026-11-25", "stage_a"): Expected(
        (15, 45, "44,085"),
        "stage_a/mixed/report/mixed 42 documents 1,220 tokens 26,719 bytes",
        ["document  leaf-18", f"{LEAVES}#18"],
    ),
    ("2026-11-25", "nemotron"): Expected(
        (25, 62, "318,010"),
        f"{SUBSET_ROWS} 99,836 bytes",
        [TALK, "licence   cc-by-4.0 (row: license)", "asked     1 + 2?"],
    ),
    ("2026-11-25", "stage2"): Expected(
        (12, 42, "279,945"),
        "stage2/local/shards/first 12 documents 2,944 tokens 9,361 bytes",
        ["mixture/first/rows.jsonl#0", "licence   cc0-1.0 (recipe)", CUT],
    ),
    ("2026-11-25", "parallel_text"): Expected(
        (3, 20, "293,121"),
        f"{PAIRS} 2,280 tokens 277,027 bytes",
        ["pair      03a812032d87add7e6c047aa8f41e4a6", "pairs/validation-0.jsonl#842"],
    ),
    ("2026-11-26", "healing"): Expected(
        (5, 12, "9,437"),
        "megatron/pages_v1/valid 7 documents 105 tokens 3,786 bytes",
        [f"source    {LEAVES}#8", "Leaf 8 of the tree, and the wind» that«"],
    ),
    ("2026-11-26", "stage_a"): Expected(
        (15, 45, "50,058"),
        "stage_a/mixed/report/mixed 42 documents 1,220 tokens 32,620 bytes",
        ["decontaminated/mixed/shards/leaves-00000.jsonl.zst row 17"],
    ),
    ("2026-11-26", "nemotron"): Expected(
        (24, 63, "336,226"), f"{SUBSET_ROWS} 99,838 bytes", [TALK, "tokens    144, 24 completion tokens"]
    ),
    ("2026-11-26", "stage2"): Expected(
        (12, 42, "39,895"), "stage2/local/deduplicated 20 documents 7,113 bytes", ["sources/first/rows.jsonl#0", CUT]
    ),
    ("2026-11-26", "parallel_text"): Expected(
        (3, 20, "53,039"),
        f"{PAIRS} 2,254 tokens 36,966 bytes",
        ["pairs/train-0.jsonl#8226", "texts     esuoh aes dniw revir revir 76.⏎river river wind sea house 76."],
    ),
    ("2026-11-27", "nemotron"): Expected(
        (24, 63, "336,268"), f"{SUBSET_ROWS} 99,838 bytes", [TALK, "asked     1 + 2?"]
    ),
    ("2026-11-27", "chat_template"): Expected(
        (3, 4, "16,091"),
        f"{SUM_ROWS} 16,091 bytes",
        [SUM, "tokens    39, 1 completion tokens"],
    ),
    ("2026-11-27.2", "chat_template"): Expected(
        (3, 4, "16,090"), f"{SUM_ROWS} 16,090 bytes", [SUM, "asked     0 + 1?"]
    ),
    ("2026-11-27.3", "chat_template"): Expected(
        (3, 4, "16,091"), f"{SUM_ROWS} 16,091 bytes", [SUM, "asked     0 + 1?"]
    ),
    ("2026-11-27.4", "nemotron"): Expected(
        (24, 63, "336,268"), f"{SUBSET_ROWS} 99,838 bytes", [TALK, "asked     1 + 2?"]
    ),
    ("2026-11-28", "nemotron"): Expected(
        (24, 63, "336,326"), f"{SUBSET_ROWS} 99,838 bytes", [TALK, "asked     1 + 2?"]
    ),
    ("2026-11-29", "chat_template"): Expected((3, 4, "16,091"), f"{SUM_ROWS} 16,091 bytes", [SUM, "asked     0 + 1?"]),
}
IDENTICAL = "identical according to their manifests; no file was read (`corpusmill verify` reads them)"
DIFFERENCES = {
    ("healing", "megatron/pages_v1/train"): [IDENTICAL],
    ("stage_a", "stage_a/mixed/filtered/leaves"): [
        "stage: filter version 2 → filter version 3",
        "28 documents in both: leaf-0, leaf-1, leaf-2, leaf-3, leaf-4, …",
        "0 documents in both, with different texts",
    ],
    ("nemotron", "nemotron/nemotron_v1/candidate_pools/chats"): [IDENTICAL],
    ("nemotron", "nemotron/nemotron_v1/training_subsets"): [
        "rows read 5 5",
        "6 equal counts; --json gives all",
        "0 documents only in A",
    ],
    ("stage2", "stage2/local/raw_corpus/first"): [
        "domain: unknown → books",
        "rows read 13 13",
        "7 equal counts; --json gives all",
    ],
    ("parallel_text", "parallel_text/pairs/sample"): [
        "sample.algorithm: l → classic",
        "stage: parallel_sample version 2 → parallel_sample version 3",
        "28 documents only in B: 0497c5ad287f22e076be1f2a8dfc4390, 112d2f3dde670f694f645a5717379bac, "
        "1981ef49cdda84ebfcc703103717b1cc, 24b036bc76911aa66e7fb33ef3f16128, 278e25187c4fc1fe02d5cc5fbb7d8a82, …",
    ],
}


@pytest.fixture(scope="module")
def dates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Extract all archives by date and system; tests only read them."""
    folder = tmp_path_factory.mktemp("dates")
    for archive in ROOTS.glob("*/*.tar.xz"):
        unpack(archive, folder / archive.parent.name)
    return folder


@pytest.fixture(params=EXPECTED, ids="-".join)
def root(request: pytest.FixtureRequest, dates: Path) -> Path:
    return dates.joinpath(*request.param)


@pytest.fixture
def expected(root: Path) -> Expected:
    return EXPECTED[root.parent.name, root.name]


def single_spaces(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_every_archive_is_read() -> None:
    archives = {(path.parent.name, path.name.split(".")[0]) for path in ROOTS.glob("*/*.tar.xz")}

    missing = sorted(archives - EXPECTED.keys())
    assert not missing, f"EXPECTED has no {missing}: copy the system's last entry; the failing tests print its numbers"
    assert archives == EXPECTED.keys()


def test_status_lists_every_artifact(corpusmill: Corpusmill, root: Path, expected: Expected) -> None:
    result = corpusmill("status", "--data", root)

    assert result.stderr == ""
    assert [folder for folder in artifact_folders(root) if str(folder.relative_to(root)) not in result.stdout] == []
    lines = [line.partition(" sealed ")[0] for line in single_spaces(result.stdout)]
    place = expected.listed.split()[0]
    assert lines.count(f"sealed {expected.listed}") == 1, f"listed: {[line for line in lines if f' {place} ' in line]}"


def test_every_artifact_is_intact(root: Path, expected: Expected) -> None:
    results = [verify(folder, root, content=True) for folder in artifact_folders(root)]

    assert {(result.verdict, result.unread_content_count) for result in results} == {("intact", 0)}
    assert len(results) == expected.counts[0]


def test_chain_is_verified(corpusmill: Corpusmill, root: Path, expected: Expected) -> None:
    last, _ = PLACES[root.name]

    result = corpusmill("verify", root / last, "--upstream", "--content")

    assert result.returncode == 0, result.stderr
    _, files, size = expected.counts
    summary = f"intact: {files} of {files} files match their manifests, {size} bytes; content hashes"
    assert result.stdout.splitlines()[-2].startswith(summary)


def test_token_or_row_is_traced_to_its_source(corpusmill: Corpusmill, root: Path, expected: Expected) -> None:
    _, place = PLACES[root.name]

    result = corpusmill("trace", *f"{root}/{place}".split())

    assert result.returncode == 0, result.stderr
    assert [part for part in expected.traced if part not in result.stdout] == []


@pytest.mark.parametrize(("system", "folder"), DIFFERENCES)
def test_artifact_is_compared_with_an_earlier(corpusmill: Corpusmill, dates: Path, system: str, folder: str) -> None:
    earlier, later = (dates / date / system / folder for date in ("2026-11-25", "2026-11-26"))

    result = corpusmill("diff", earlier, later)

    lines = DIFFERENCES[system, folder]
    assert result.returncode == (lines != [IDENTICAL]), result.stderr
    assert [line for line in lines if line not in single_spaces(result.stdout)] == []


def test_every_current_schema_kind_and_stage_version_is_in_an_archive(dates: Path) -> None:
    written = {(SCHEMA, kind.name, str(kind.stage)) for kind in SYSTEMS.kinds.values()}

    archived = set()
    for path in dates.rglob("manifest.json"):
        manifest = json.loads(path.read_bytes())
        stage = manifest["identity"]["stage"]
        archived.add((manifest["schema"], manifest["kind"], f"{stage['name']} version {stage['version']}"))
    assert sorted(written - archived) == [], "seal these in a new archive: see tests/builders/sealed_roots.py"


def test_archives_are_small() -> None:
    sizes = [sum(path.stat().st_size for path in date.iterdir()) for date in ROOTS.iterdir()]

    assert max(sizes) <= 300_000


@pytest.mark.slow
def test_archive_script_seals_an_intact_root(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")

    write_archives(tmp_path / "archives", ["healing"])

    root = unpack(tmp_path / "archives" / "healing.tar.xz", tmp_path)
    results = [verify(folder, root, content=True) for folder in artifact_folders(root)]
    assert [result.verdict for result in results] == ["intact"] * 5
    assert b'"host": "made"' in (root / "megatron/pages_v1" / MANIFEST_FILE).read_bytes()
