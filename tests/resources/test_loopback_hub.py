"""The loopback hub works with huggingface_hub, its file system, and datasets.

Small files come from the hub, large files from a storage origin; only requested bytes are sent.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_hub import FaultyHub, Request
from huggingface_hub import HfApi, HfFileSystem
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile, RepoFolder
from loopback_repo import ARCHIVE, COMMIT, README, REPO, download


def test_repo_info_has_commit_sizes_and_digests_without_a_download(api: HfApi, hub: FaultyHub) -> None:
    info = api.repo_info(REPO, repo_type="dataset", files_metadata=True)
    plain = api.repo_info(REPO, repo_type="dataset", revision=COMMIT)

    assert (info.id, info.sha, info.private, info.gated) == (REPO, COMMIT, False, False)
    sizes = [("README.md", 10), ("data/archive.zst", 4096), ("data/notes/ab.txt", 2)]
    assert [(file.rfilename, file.size) for file in info.siblings] == sizes
    assert [file.lfs and file.lfs.sha256 for file in info.siblings] == [None, hashlib.sha256(ARCHIVE).hexdigest(), None]
    assert info.siblings[1].lfs.pointer_size == 129
    assert {request.origin for request in hub.requests} == {"hub"}
    assert [file.rfilename for file in plain.siblings] == [name for name, _ in sizes]
    assert {(file.size, file.lfs) for file in plain.siblings} == {(None, None)}


def test_recursive_tree_lists_folders_and_files_over_several_pages(repo: Path, tmp_path: Path) -> None:
    with FaultyHub(tmp_path / "hub") as hub:
        hub.page_size = 2
        api = HfApi(endpoint=hub.endpoint, token=False)

        items = list(api.list_repo_tree(REPO, repo_type="dataset", recursive=True))

    assert [(type(item), item.path) for item in items] == [
        (RepoFile, "README.md"),
        (RepoFolder, "data"),
        (RepoFile, "data/archive.zst"),
        (RepoFolder, "data/notes"),
        (RepoFile, "data/notes/ab.txt"),
    ]
    assert len(hub.requests) == 3


def test_plain_tree_lists_one_folder_and_paths_info_omits_missing_paths(api: HfApi) -> None:
    items = list(api.list_repo_tree(REPO, "data", repo_type="dataset"))
    nested = list(api.list_repo_tree(REPO, "data/notes", repo_type="dataset"))
    found = api.get_paths_info(REPO, ["README.md", "data", "no.txt"], repo_type="dataset")

    assert [item.path for item in items] == ["data/archive.zst", "data/notes"] and items[0].lfs.size == 4096
    assert [item.path for item in nested] == ["data/notes/ab.txt"]
    assert [(type(item), item.path) for item in found] == [(RepoFile, "README.md"), (RepoFolder, "data")]
    # printf '# Stories\n' | git hash-object --stdin
    assert found[0].blob_id == "70ac3484b4eb20ce34c7b01b7d652ae8d359ee88"


def test_a_small_file_comes_from_the_hub_and_a_large_one_from_the_storage_origin(
    hub: FaultyHub, tmp_path: Path
) -> None:
    small, large = (download(hub, name, tmp_path / "cache") for name in ("README.md", "data/archive.zst"))

    assert (small.read_bytes(), small.parent.name, large.read_bytes()) == (README, COMMIT, ARCHIVE)
    assert large.resolve().name == hashlib.sha256(ARCHIVE).hexdigest()
    address = f"/datasets/{REPO}/resolve/main/README.md"
    assert hub.requests[:2] == [Request("HEAD", address, 200, 0, "hub"), Request("GET", address, 200, 10, "hub")]
    assert [(request.method, request.status, request.bytes_sent, request.origin) for request in hub.requests[2:]] == [
        ("HEAD", 302, 0, "hub"),
        ("GET", 200, 4096, "storage"),
    ]


def test_file_above_one_mebibyte_is_lfs_with_any_name(repo: Path, api: HfApi) -> None:
    (repo / "exactly.txt").write_bytes(b"a" * (1 << 20))
    (repo / "one_over.txt").write_bytes(b"a" * ((1 << 20) + 1))

    exactly, one_over = api.get_paths_info(REPO, ["exactly.txt", "one_over.txt"], repo_type="dataset")

    assert (exactly.lfs, one_over.lfs.size) == (None, (1 << 20) + 1)


@pytest.mark.parametrize("path", ["empty.txt", "empty.zst", "a b/é%2F#?.txt", "a b/é%2F#?.gz"])
def test_empty_files_and_odd_names_are_downloaded(repo: Path, hub: FaultyHub, tmp_path: Path, path: str) -> None:
    (repo / path).parent.mkdir(exist_ok=True)
    (repo / path).write_bytes(b"" if "empty" in path else b"odd")

    assert download(hub, path, tmp_path / "cache").read_bytes() == (repo / path).read_bytes()


def test_model_is_listed_and_downloaded_at_its_commit_and_read_only(repo: Path, tmp_path: Path) -> None:
    contents = {"config.json": b"{}", "model.safetensors": ARCHIVE, "original/params.json": b"[]"}
    model = tmp_path / "hub/models/maker/tiny"
    (model / "original").mkdir(parents=True)
    for name, content in contents.items():
        (model / name).write_bytes(content)
    (tmp_path / "hub/models" / REPO).mkdir()  # named like the dataset, which it must not change

    with FaultyHub(tmp_path / "hub", writable=True, token="hf_any") as hub:
        before, api = hub.commits(), HfApi(endpoint=hub.endpoint, token="hf_any")
        commit = before["models/maker/tiny"]
        info = api.model_info("maker/tiny", revision=commit, files_metadata=True)
        folder = Path(api.snapshot_download("maker/tiny", revision=commit, cache_dir=tmp_path / "cache"))
        with pytest.raises(HfHubHTTPError, match="404"):
            api.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id=REPO)
        assert hub.commits() == before and before[REPO] == COMMIT

    assert (info.id, info.sha, folder.name) == ("maker/tiny", commit, commit)
    assert [(file.rfilename, file.size, file.lfs is None) for file in info.siblings] == [
        ("config.json", 2, True),
        ("model.safetensors", 4096, False),
        ("original/params.json", 2, True),
    ]
    assert {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")} == contents
    assert [request.status for request in hub.requests if request.origin == "storage"] == [200]


def test_parquet_footer_is_fetched_alone(repo: Path, hub: FaultyHub) -> None:
    numbers = pa.table({"number": pa.array(range(100_000), pa.int64()), "other": pa.array(range(100_000), pa.int64())})
    pq.write_table(numbers, repo / "rows.parquet", row_group_size=10_000, compression="none", use_dictionary=False)
    assert (repo / "rows.parquet").stat().st_size > 1_600_000
    files = HfFileSystem(endpoint=hub.endpoint, token=False, skip_instance_cache=True)

    with files.open(f"datasets/{REPO}@{hub.commits()[REPO]}/rows.parquet") as content:
        assert pq.ParquetFile(content).metadata.num_rows == 100_000

    assert [request.bytes_sent for request in hub.requests if request.origin == "storage"] == [65_536]


def test_datasets_streams_parquet_rows_by_commit(repo: Path, hub: FaultyHub, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["one", "two", "three"]}), repo / "data/train.parquet")
    url = f"hf://datasets/{REPO}@{hub.commits()[REPO]}/data/train.parquet"

    code = (
        "import datasets\n"
        f"rows = datasets.load_dataset('parquet', data_files={url!r}, split='train', streaming=True)\n"
        "print([row['text'] for row in rows])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}  # read at import
    environment |= {**hub.client_environment(), "HF_HOME": str(tmp_path / "hf_home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)

    assert done.stdout == "['one', 'two', 'three']\n", done.stderr
