"""Fuzzing of commands by damage to the small files of a data root."""

import contextlib
import io
import json
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from time_limit import time_limit

from pipeline_assets.cli import main
from pipeline_assets.spine.manifest import canonical_sha256

LIMIT_S = 60
_FILES = ("*.json", ".*.lock", "*.yaml", "*.jsonl")
_LARGEST = 1 << 20
_DEEP = "[" * 100_000
_DIGITS = "9" * 5_000
_ODD: Sequence[Any] = (
    *(None, True, 0, -1, 0.5, 1e300, 10**40, 1 << 63, "", "x", "\0", "\ud800", "../..", "/etc/passwd", "²", "\n"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": []}}, "x" * 10_000, "2020-99-99T00:00:00", "sha256:" + "0" * 64),
)
_ODD_TEXTS = (
    *("", "\0", "\xff", "{", "[]", "null", "7", "NaN", '{"a": NaN}', _DEEP, _DIGITS, f'{{"pid": {_DIGITS}}}'),
    *("a: " + "[" * 1000, f"name: {_DIGITS}", "!!int ''", "a: &a [*a]", "0x" + "f" * 5000, "? {}", "\t", "2020-99-99"),
    "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 12)),
)


@dataclass(frozen=True)
class CommandOutcome:
    """Status, output and traceback of a command."""

    status: int | None
    stdout: str
    stderr: str
    failure: str | None

    @property
    def is_clean(self) -> bool:
        """True if the command succeeded, or reported its error in one line."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("corpusmill: ")]
        is_reported = self.status in (0, 1) or len(lines) == 1
        return self.failure is None and self.status in (0, 1, 2) and is_reported and len(lines) <= 1


def small_files(root: Path) -> list[Path]:
    """List the small files that the project reads back, except documents."""
    found = {path for pattern in _FILES for path in root.rglob(pattern) if path.is_file()}
    kept = (path for path in found if path.relative_to(root).parts[0] not in ("dagster", "hub", "sources"))
    return sorted(path for path in kept if path.stat().st_size < _LARGEST)


def leave_unfinished_work(root: Path) -> None:
    """Leave the folders of an interrupted build and rebuild."""
    artifact = next(path.parent for path in sorted((root / "megatron").rglob("manifest.json")))
    building = artifact.with_name(f"{artifact.name}.building.7")
    (building / ".receipts" / "encode").mkdir(parents=True)
    (building / ".plan.json").write_text('{"kind": "healing/megatron_split"}')
    (building / ".receipts" / "encode" / "00000.json").write_text('{"counts": {}, "files": [], "notes": {}}')
    ticket = root / "rebuilds" / "set-0123456789ab.unfinished" / "rebuild.json"
    ticket.parent.mkdir(parents=True)
    ticket.write_text("{}")


@contextlib.contextmanager
def damaged(path: Path, draw: random.Random) -> Iterator[str]:
    """Damage the file during the block; yield the kind of damage."""
    data, mode = path.read_bytes(), path.stat().st_mode
    path.unlink()
    try:
        damage = draw.choice(_DAMAGES)
        damage(path, data, draw)
        if path.is_file() and not path.is_symlink():
            path.chmod(mode | 0o600)
        yield damage.__name__.strip("_")
    finally:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(mode)


def _flip_bits(path: Path, data: bytes, draw: random.Random) -> None:
    flipped = bytearray(data)
    for _ in range(draw.choice((1, 1, 8)) if data else 0):
        flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(flipped)


def _cut(path: Path, data: bytes, draw: random.Random) -> None:
    path.write_bytes(data[: draw.randrange(len(data) + 1)])


def _insert(path: Path, data: bytes, draw: random.Random) -> None:
    at = draw.randrange(len(data) + 1)
    path.write_bytes(data[:at] + _encoded(draw.choice(_ODD_TEXTS)) + data[at:])


def _write_another(path: Path, data: bytes, draw: random.Random) -> None:
    path.write_bytes(_encoded(draw.choice(_ODD_TEXTS)))


def _exchange_a_value(path: Path, data: bytes, draw: random.Random) -> None:
    """Replace or remove a JSON value; mostly repair the digests."""
    try:
        value = json.loads(data)
    except ValueError:
        return _write_another(path, data, draw)
    places = list(_places(value, ())) or [((), [value], 0)]
    kind = draw.choice(sorted({names for names, _, _ in places}))
    place, key = draw.choice([(place, key) for names, place, key in places if names == kind])
    if draw.random() < 0.2 and isinstance(place, dict):
        del place[key]
    else:
        place[key] = draw.choice(_ODD)
    if draw.random() < 0.8:
        with contextlib.suppress(Exception):
            value["identity"]["recipe_sha256"] = canonical_sha256(value["identity"]["recipe"])
            value["digest"] = "sha256:" + canonical_sha256(value["identity"])
    path.write_text(json.dumps(value))


def _make_folder(path: Path, data: bytes, draw: random.Random) -> None:
    path.mkdir()


def _make_pipe(path: Path, data: bytes, draw: random.Random) -> None:
    os.mkfifo(path)


def _link(path: Path, data: bytes, draw: random.Random) -> None:
    path.symlink_to(draw.choice((path, Path("/dev/zero"), Path("/etc/passwd"), path.parent, Path("nowhere"))))


def _leave_out(path: Path, data: bytes, draw: random.Random) -> None:
    """Leave the file missing."""


_Damage = Callable[[Path, bytes, random.Random], None]
_DAMAGES: Sequence[_Damage] = (
    *(_flip_bits, _cut, _insert, _write_another, _make_folder, _make_pipe, _link, _leave_out),
    *([_exchange_a_value] * 8),
)


def _places(value: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield each value's names, container and key; items of a list share names."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        names = (*above, key if isinstance(key, str) else "")
        yield names, value, key
        yield from _places(value[key], names)


def _encoded(text: str) -> bytes:
    return text.encode("latin-1", "surrogateescape")


def commands(root: Path, near: Path, draw: random.Random) -> Iterator[list[str]]:
    """Draw commands that read much of the root, mostly the artifact of `near`."""
    artifacts = sorted(path.parent for path in root.rglob("manifest.json") if "building" not in str(path))
    around = [folder for folder in artifacts if folder in near.parents] or artifacts
    artifact, other = str(draw.choice(around)), str(draw.choice(artifacts))
    recipe = draw.choice(sorted(path.stem for path in (root / "recipes").iterdir()) or ["healing_text_v1"])
    data = ["--data", str(root)]
    yield ["status", *draw.choice(([], ["--json"], [recipe])), *data]
    yield draw.choice(
        (
            ["verify", artifact],
            ["verify", artifact, "--upstream", *data],
            ["verify", other, "--upstream", *data, "--sample", "20%"],
            ["verify", artifact, "--json"],
        )
    )
    yield draw.choice(
        (
            ["peek", artifact, "--row", str(draw.randrange(3))],
            ["trace", artifact, "--row", str(draw.randrange(3))],
            ["trace", artifact, "--token", str(draw.randrange(99)), "--json"],
            ["diff", artifact, other],
            ["diff", artifact, artifact],
            ["plan", recipe, "--workers", "0", *data],
            ["plan", recipe, "--json", *data],
            ["manifests", "export", "--to", str(root / "exported"), *data],
            ["stage-a", "why", "no such document", *data],
            ["dedup", "show", "no such document", *data],
        )
    )


def run_command(words: Sequence[str], cache: Path) -> CommandOutcome:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    environment = {"XDG_CACHE_HOME": str(cache), "HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_HUB_TRIES": "1"}
    with (
        mock.patch.object(sys, "argv", ["corpusmill", *words]),
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        time_limit(LIMIT_S),
    ):
        try:
            main()
        except SystemExit as end:
            return CommandOutcome(int(end.code or 0), out.getvalue(), err.getvalue(), None)
        except BaseException:
            return CommandOutcome(None, out.getvalue(), err.getvalue(), traceback.format_exc())
    return CommandOutcome(0, out.getvalue(), err.getvalue(), None)
