"""Auditor: decides from files and output whether a run was equal or refused.

It shares no code with the product. It reads manifests as `docs/manifest.md` describes them, with `json`, `hashlib`,
`zstandard`, `pyarrow` and `numpy`, and never trusts what a command reports about itself.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import zstandard

MANIFEST = "manifest.json"
_ASIDE = re.compile(r"\.(.+\.(building|old)\.\d+|commits)$")  # .commits: earlier commits on the hub
_TEMPORARY = re.compile(r"\..*\.tmp$", re.DOTALL)
_LINE = re.compile(r"corpusmill: (?P<where>\S.*?): (?P<what>\S.*?); (?P<fix>\S.*)")
_REBUILDS = "data/rebuilds/"
_COPIES, _CACHE = "data/manifests/", ("data/hub_cache/", "other/hub_cache/", "hub/.objects/", "hub/.commits/")


@dataclass(frozen=True)
class Facts:
    """Content of a data root.

    Attributes:
        artifacts: Digest, and the sha256 of each file that the digest covers, by folder.
        others: sha256 of each other file; of manifests and labels, which have times in them, only that they exist.
        damage: What contradicts a manifest, or is half written.
    """

    artifacts: dict[str, dict[str, str]]
    rest: dict[str, str]
    damage: list[str] = field(default_factory=list)


def read_facts(root: Path) -> Facts:
    """Read every file of a data root."""
    artifacts, covered, damage = dict[str, dict[str, str]](), dict[str, str](), list[str]()
    for path in sorted(root.rglob(MANIFEST)):
        name = path.parent.relative_to(root).as_posix()
        if any(_ASIDE.match(part) for part in path.relative_to(root).parts):
            continue
        covered[f"{name}/{MANIFEST}"] = "a manifest"
        try:
            facts, problems = _examine(path)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            facts, problems = {"digest": "unreadable"}, [f"{MANIFEST}: {type(error).__name__} {error}"]
        artifacts[name] = facts
        labels = {stored for stored, sha256 in facts.items() if sha256 == "a label"}
        covered |= {f"{name}/{stored}": "a label" for stored in labels}
        damage += [f"{name}/{problem}" for problem in problems]
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    rest = {path.relative_to(root).as_posix(): path for path in files}
    return Facts(artifacts, {name: covered.get(name) or _fact(path, name) for name, path in rest.items()}, damage)


def _fact(path: Path, name: str) -> str:
    """Return the sha256 of a file, or the digest of a manifest's copy."""
    data = path.read_bytes()
    if _is_copy(name):
        try:
            return str(json.loads(data)["digest"])
        except (ValueError, LookupError):
            return "unreadable"
    return hashlib.sha256(data).hexdigest()


def _examine(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the facts of a sealed folder, and its damage."""
    folder, manifest = path.parent, json.loads(path.read_bytes())
    identity = manifest["identity"]
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    facts, problems = {"digest": str(manifest["digest"])}, []
    if manifest["digest"] != "sha256:" + hashlib.sha256(canonical).hexdigest():
        problems.append(f"{MANIFEST}: the digest is not that of the identity")
    contents = {file["path"]: file for file in identity["files"]}
    if missing := contents.keys() - {stored["path"] for stored in manifest["storage"]}:
        problems.append(f"{MANIFEST}: the storage lacks {sorted(missing)}")
    for stored in manifest["storage"]:
        name, file = stored["path"], folder / stored["path"]
        data = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
        sha256 = hashlib.sha256(data).hexdigest()
        if (len(data), sha256) != (stored["bytes"], stored["sha256"]):
            problems.append(f"{name}: is not as sealed")
        elif name in contents:
            problems += [f"{name}: {what}" for what in _content_errors(file, data, contents[name])]
        facts[name] = sha256 if name in contents else "a label"
    return facts, problems


def _content_errors(file: Path, data: bytes, content: dict[str, Any]) -> list[str]:
    """Decode a file with its format's library, and compare it with its entry."""
    if file.suffix == ".zst":
        text = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
        right = hashlib.sha256(text).hexdigest() == content["content_sha256"]
        right &= file.name.startswith("groups") or text.count(b"\n") == content["rows"]
        return [] if right else ["the text is not that of its content hash"]
    if file.suffix == ".parquet":
        rows = pq.read_table(file).num_rows
        return [] if rows == content["rows"] else [f"{rows} rows, not {content['rows']}"]
    if file.suffix == ".npy":
        np.load(file)
    return [] if hashlib.sha256(data).hexdigest() == content["content_sha256"] else ["another content hash"]


def _is_copy(name: str) -> bool:
    """Check whether a file is the copy of a manifest, which has times in it."""
    return name.startswith(_COPIES) or name.endswith(f".{MANIFEST}")


def _equal_copies(facts: Facts, expected: Facts) -> set[str]:
    """Return the folders of rebuilt copies, each equal to an expected artifact."""
    sealed = [*expected.artifacts.values()]
    return {folder for folder, own in facts.artifacts.items() if folder.startswith(_REBUILDS) and own in sealed}


def differences(
    actual: Facts, expected: Facts, is_repairable_allowed: bool = False, kept: Facts | None = None
) -> list[str]:
    """List the differences between a root and an expected one.

    The cache of the hub is ignored. `is_repairable_allowed`: the disk lied, and nothing reads a check record or the
    copy of a manifest before the next run, which writes them again. `kept`: the state before the last run, which keeps
    the copies of an earlier rebuild that found damage.
    """
    found = [*actual.damage]
    copies = set[str]() if kept is None else _equal_copies(kept, expected) & _equal_copies(actual, expected)
    for folder in sorted(actual.artifacts.keys() | expected.artifacts.keys()):
        own, other = actual.artifacts.get(folder), expected.artifacts.get(folder)
        if own != other and folder not in copies:
            state = "is missing" if own is None else "should not exist" if other is None else "has other bytes"
            found.append(f"{folder}: the artifact {state}")
    for name in sorted(actual.rest.keys() | expected.rest.keys()):
        is_repairable = _is_copy(name) or name.endswith(".checks.json")
        is_copied = any(name.startswith(f"{folder}/") for folder in copies)
        if name.startswith(_CACHE) or is_copied or (is_repairable and is_repairable_allowed):
            continue
        if actual.rest.get(name) != expected.rest.get(name):
            exists, is_expected = name in actual.rest, name in expected.rest
            found.append(f"{name}: {'differs' if exists and is_expected else 'left over' if exists else 'missing'}")
    return found


def wrong_artifacts(actual: Facts, *allowed: Facts) -> list[str]:
    """List artifacts that are damaged, lost or in none of the allowed states.

    A run that was cut off may leave any artifact in its earlier or its new state, and nothing else. A rebuild that was
    cut off, or that found damage, leaves copies, each equal to an artifact.
    """
    found = [*actual.damage]
    copies = set[str]().union(*(_equal_copies(actual, state) for state in allowed))
    for folder, facts in actual.artifacts.items():
        if folder not in copies and facts not in [state.artifacts.get(folder) for state in allowed]:
            found.append(f"{folder}: the artifact is neither the earlier nor the new one")
    kept = set.intersection(*(set(state.artifacts) for state in allowed))
    return found + [f"{folder}: the artifact is lost" for folder in sorted(kept - actual.artifacts.keys())]


@dataclass(frozen=True)
class Answer:
    """Exit status and output of a command; status None is a command that never ended."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def refusal(self) -> str | None:
        """Line that a refused command prints."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("corpusmill: ")]
        return lines[0] if len(lines) == 1 else None

    @property
    def has_doubt(self) -> bool:
        """True if `gc` reported unreadable files, and so removed no artifact."""
        return re.search(r"^WARNING \S.*: .*; .*only leftovers are removed$", self.stdout, re.MULTILINE) is not None

    @property
    def is_success(self) -> bool:
        return self.status == 0 and not self.has_doubt


def wrong_answer(answer: Answer, may_die: bool, is_verdict: bool) -> list[str]:
    """List what no command may do: hang, crash, or refuse without one whole line.

    `may_die` allows a kill. `is_verdict`: with status 1, the command reports damage in its output.
    """
    if answer.status is None:
        return ["it hangs"]
    if "Traceback" in answer.stderr + answer.stdout:
        return ["a traceback: " + answer.stderr.strip().splitlines()[-1]]
    if (answer.status == -9 and may_die) or answer.status == 0:
        return []
    if answer.status not in (1, 2):
        return [f"exit status {answer.status}"]
    lines = [line for line in answer.stderr.splitlines() if line.startswith("corpusmill: ")]
    if answer.status == 1 and is_verdict and not lines and answer.stdout.strip():
        return []
    if len(lines) != 1:
        return [f"exit status {answer.status} with {len(lines)} lines: {answer.stderr[-500:]!r}"]
    return [] if _LINE.match(lines[0]) else [f"the line does not say where, what and fix: {lines[0]}"]


def named_path(line: str) -> str | None:
    """Return the path that a line recommends to delete, remove or move away."""
    match = re.search(r"\b(?:delete|remove|move)\s+(/\S+?)(?:,|;|\s|$)", line.rpartition("; ")[2] or line)
    place = re.match(r"corpusmill: (/\S+?): ", line)
    if match:
        return match[1]
    if place and re.search(r"\b(delete|remove) (it|the file|the folder)\b|move it away", line):
        return place[1]
    return None


def normalized(text: str, workspace: Path) -> str:
    """Return output without the workspace's path, times and rates."""
    text = text.replace(str(workspace), "WORKSPACE")
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?\S*", "TIME", text)
    return re.sub(r"\b[\d,.]+ ?(ms|s|min|h|MB/s|MiB/s|KiB/s)\b", "DURATION", text)
