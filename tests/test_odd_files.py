"""Folders, links, pipes, devices and nonsense in the places of small files: a line of it, and all else as it is."""

import errno
import fcntl
import json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from command_results import Corpusmill, only_line
from demo_variants import V1
from fuzz_cases import commands, damaged, leave_unfinished_work, small_files, typed

from pipeline_assets.spine.lock import LOCK_FIX


def put_in_its_place(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def said(data: bytes) -> Callable[[Path], None]:
    return put_in_its_place(lambda path: path.write_bytes(data))


def resealed(**parts: object) -> Callable[[Path], None]:
    """Parts that no digest covers, exchanged."""

    def change(path: Path) -> None:
        value = json.loads(path.read_bytes()) | parts
        put_in_its_place(lambda place: place.write_text(json.dumps(value)))(path)

    return change


ODD_MANIFESTS = [
    (put_in_its_place(Path.mkdir), "the path is a folder"),
    (put_in_its_place(os.mkfifo), "the path is a pipe or a device"),
    (put_in_its_place(lambda path: path.symlink_to("/dev/zero")), "the path is a link"),
    (said(b"[" * 100_000), "invalid JSON (maximum recursion depth exceeded while deserializing an object)"),
    (resealed(provenance={"builder": "x"}), "Expected `int`, got `str` - at `$.provenance.builder`"),
    (resealed(storage=[{"path": "a", "bytes": -1, "sha256": ""}]), "Expected `int` >= 0"),
]


@pytest.mark.parametrize(("change", "complaint"), ODD_MANIFESTS)
def test_status_says_what_is_odd_of_one_artifact_and_lists_all_others(
    root: Path, tmp_path: Path, change: Callable[[Path], None], complaint: str
) -> None:
    manifest = root / V1 / "valid" / "manifest.json"
    change(manifest)

    shown = typed(["status", "--data", str(root)], tmp_path)
    refused = typed(["verify", str(root / V1 / "valid")], tmp_path)

    assert (shown.status, shown.failure, shown.stderr) == (1, None, "")
    states = [line.split()[0] for line in shown.stdout.splitlines() if line.startswith("  ") and line[2] != " "]
    assert states == ["current", "current", "current", "damaged", "stale"]
    assert f"    {manifest}: not a valid manifest: {complaint}" in shown.stdout
    assert (refused.status, refused.failure) == (1, None)
    assert refused.stderr.startswith(f"corpusmill: {manifest}: not a valid manifest: {complaint}")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["valid.building.²", "valid.old.٣", "valid.building.9"])
def test_whatever_lies_beside_an_artifact_status_lists_them_all(root: Path, tmp_path: Path, name: str) -> None:
    (root / V1 / name).mkdir()
    os.mkfifo(root / V1 / name / ".plan.json")

    shown = typed(["status", "--data", str(root)], tmp_path)

    assert (shown.failure, shown.stderr) == (None, "")
    assert shown.stdout.count("\n  current ") == 5


RECIPES = {
    "[" * 100_000: "more than 500,000 values, 100 levels, or 40 digits in a number",
    "name: " + "9" * 5_000: "more than 500,000 values, 100 levels, or 40 digits in a number",
    "name: 0x" + "f" * 5_000: "more than 500,000 values, 100 levels, or 40 digits in a number",
    "system: healing\ntoken_budget: 18446744073709551616": "line 2: a number has more than 64 bits; text needs quotes",
    "name: 2020-99-99": "month must be in 1..12",
    "name: !!int ''": "string index out of range",
    "name: !!bool maybe": "'maybe'",
    "name: !!timestamp x": "'NoneType' object has no attribute 'groupdict'",
    "a: &a [*a]": "more than 500,000 values, 100 levels, or 40 digits in a number",
    "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
    "e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e]": "more than 500,000 values",
}


ODD_RECIPES = [
    *((partial(Path.write_text, data=text), f"not valid YAML ({said}") for text, said in RECIPES.items()),
    *(
        (make, "not a valid recipe: the path is a ")
        for make in (Path.mkdir, os.mkfifo, partial(Path.symlink_to, target="/dev/zero"))
    ),
]


@pytest.mark.parametrize(("make", "complaint"), ODD_RECIPES, ids=range(len(ODD_RECIPES)))
def test_an_odd_recipe_is_one_line_of_status_and_of_run(
    root: Path, tmp_path: Path, make: Callable[[Path], object], complaint: str
) -> None:
    path = root / "recipes" / "odd.yaml"
    make(path)

    shown = typed(["status", "--data", str(root)], tmp_path)
    refused = typed(["run", "odd", "--data", str(root)], tmp_path)

    assert (shown.status, shown.failure, shown.stderr) == (1, None, "")
    assert shown.stdout.count("\n  current ") == 5
    assert (refused.status, refused.failure) == (2, None)
    assert refused.stderr.startswith(f"corpusmill: {path}: {complaint}")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        (errno.ENOLCK, f"this file system has no locks (No locks available); {LOCK_FIX}"),
        (errno.EIO, "the operating system reports: Input/output error; fix that, then run the same command"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, complaint: str
) -> None:
    """As file systems without locks, or on a bad disk, answer."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    (root / V1 / "valid.building.9").mkdir()

    rebuilt = typed(["rebuild", str(root / V1 / "valid")], tmp_path)
    shown = typed(["status", "--data", str(root)], tmp_path)
    verified = typed(["verify", str(root / V1 / "valid")], tmp_path)

    assert (rebuilt.status, rebuilt.failure) == (1, None)
    assert f".lock: {complaint}" in rebuilt.stderr
    assert (shown.failure, shown.stdout.count("\n  current ")) == (None, 5)
    assert (verified.status, verified.failure) == (0, None)


def test_a_name_that_is_too_long_is_one_line(corpusmill: Corpusmill, root: Path) -> None:
    result = corpusmill("verify", root / ("x" * 300))

    assert result.returncode == 1
    assert only_line(result).endswith(
        ": the operating system reports: File name too long; fix that, then run the same command"
    )


def test_a_name_that_is_not_utf8_is_one_line(corpusmill: Corpusmill, root: Path) -> None:
    other = root.rename(os.fsdecode(os.fsencode(root) + b"\xff"))

    for words in (["status"], ["run", "healing_text_v1"]):
        typed_in_it = corpusmill(*words, "--data", ".", cwd=other)
        named = corpusmill(*words, "--data", other)
        from_outside = corpusmill(*words, env={"CORPUSMILL_DATA": str(other)})

        for result in (typed_in_it, named, from_outside):
            assert result.returncode == 2
            assert only_line(result) == f"{root}\\udcff: the name is not UTF-8; rename the file or folder"


def test_a_file_whose_name_is_not_utf8_is_named_all_the_same(corpusmill: Corpusmill, root: Path) -> None:
    folder = root / V1 / "valid"
    (folder / os.fsdecode(b"stranger\xff")).write_text("")

    result = corpusmill("verify", folder)

    assert result.returncode == 1
    assert "stranger\\udcff: the manifest doesn't name this file" in result.stdout


def test_a_sample_of_random_damage_ends_clean_or_in_one_line(root: Path, tmp_path: Path) -> None:
    """`benchmarks/fuzz.py` does the same for as long as one likes."""
    leave_unfinished_work(root)
    files = small_files(root)

    for seed in range(12):
        draw = random.Random(seed)
        path = draw.choice(files)
        words = list(commands(root, path, draw))
        with damaged(path, draw) as how:
            for word in words:
                told = typed(word, tmp_path / "cache")
                assert told.is_clean, (seed, how, path, word, told)
