"""Swarm seed: a workload under faults, checked by the auditor.

A workload first runs without faults, which counts its operations and gives the facts to compare with. Then the command
under test runs one to three times, each time under a fault at a drawn operation; then, without faults, it is run until
it succeeds, at most five times. Its lines may name a path to delete or `--replace`, as a user would follow them.
"""

import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import swarm_auditor as auditor
from answer_faults import ALWAYS, Fault, FaultKind
from command_server import CommandServer
from disk_faults import OTHER_READS, SILENT_WRITES, DiskFault, operation_class
from faulty_hub import FaultyHub
from free_ports import free_port
from swarm_auditor import Answer, Facts
from swarm_workload import SECOND, Workload, Workspace, generate

PROJECT = Path(__file__).parents[2]
SEEDS_PER_WORKLOAD = 10  # a workload takes as long as three seeds
TIMEOUT_S = 240.0  # a busy machine takes a minute for a command of a second
TOKEN = "hf_swarm"
HUB_FAULTS: Mapping[str, tuple[FaultKind, ...]] = {
    "hub 5xx": (FaultKind.BUSY,),
    "hub truncated body": (FaultKind.CUT_BODY,),
    "hub wrong bytes": (FaultKind.WRONG_BYTES,),
    "hub disconnect": (FaultKind.CUT,),
}
FAULTS = (*map(str, DiskFault), *HUB_FAULTS)
_CLEAN_TRIES = 5


@dataclass(frozen=True)
class Armed:
    """Fault at an operation; `fired` describes the hit, or is empty."""

    fault: str
    at: int
    fired: str = ""


@dataclass
class Result:
    """Decision about a seed: `equal`, `refused` or `FAILED`, with its errors."""

    seed: int
    system: str
    verb: str
    faults: list[Armed] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def state(self) -> str:
        is_equal = all(answer == "equal" for answer in self.answers)
        return "FAILED" if self.wrong else "equal" if is_equal else "refused"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state}


@dataclass(frozen=True)
class _Reference:
    """Facts, answer and operation counts of a workload without faults."""

    before: Facts
    after: Facts
    answer: Answer
    operations: Mapping[str, int]


class Swarm:
    """Runner of seeds in a folder, with its own command server and hub.

    Attributes:
        faults: Those to draw from.
        bug: Function that breaks the program in each command that a fault can strike and in each repair.
    """

    def __init__(self, folder: Path, faults: Sequence[str] = FAULTS, bug: str | None = None) -> None:
        self.faults, self.bug = faults, bug
        self._folder, self._port, self._boots = folder, free_port(), 0
        self._planted: str | None = None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CORPUSMILL_", "HF_"))}
        self._environment = kept | {
            "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "pipeline_assets" / "api")]),
            "HF_ENDPOINT": f"http://127.0.0.1:{self._port}",
            "HF_HUB_DISABLE_XET": "1",
            "HF_TOKEN": TOKEN,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "NUMBA_CACHE_DIR": str(Path("~/.cache/corpusmill/compiled").expanduser()),  # in common with other tests
            "CORPUSMILL_HUB_TRIES": "2",
            "CORPUSMILL_WORKERS": "0",
        }
        self._server = CommandServer(self._environment, PROJECT, preload=_PRELOADED)
        self._workload: Workload | None = None

    def stop(self) -> None:
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, seed: int) -> Result:
        """Run a seed; one workload serves several seeds in a row."""
        workload = generate(seed // SEEDS_PER_WORKLOAD)
        if workload != self._workload:
            self._reference = self._play(workload)
            self._workload = workload
        result = Result(seed, workload.system, workload.verb)
        result.wrong += self._wrong_reference(workload)
        if not result.wrong:
            self._planted, self._boots = self.bug, 0
            self._strike(workload, result, random.Random(f"faults {seed}"))
            self._planted = None
        return result

    # A workload without faults

    def _play(self, workload: Workload) -> _Reference:
        for folder in (self._folder / "work", self._saved):
            shutil.rmtree(folder, ignore_errors=True)
        space = self._space(workload)
        space.write_inputs()
        with self._hub(space) as hub:
            space.write_recipe(hub.commits())
            if workload.verb == "gc":
                space.write_recipe(hub.commits(), SECOND, is_changed=True)
            for verb in space.before():
                answer = self._type(space.command(verb))
                assert answer.status == 0, f"{workload}: {verb}: {answer.stderr[-2000:]}"
            if workload.verb == "gc":
                space.remove_recipe(SECOND)
            if workload.verb == "replace":
                space.write_recipe(hub.commits(), is_changed=True)
            before = auditor.read_facts(space.folder)
            shutil.copytree(space.folder, self._saved, symlinks=True)
            hub.requests.clear()
            answer, log = self._attempt(workload, space)
            counts = {
                name: (log / name).stat().st_size for name in ("steps", "writes", "reads") if (log / name).exists()
            }
            counts["requests"] = len(hub.requests)
        return _Reference(before, auditor.read_facts(space.folder), answer, counts)

    def _wrong_reference(self, workload: Workload) -> list[str]:
        """List errors without any fault."""
        reference = self._reference
        wrong = auditor.wrong_answer(reference.answer, may_die=False, is_verdict=workload.is_read_only)
        return [f"without faults: {what}" for what in wrong + reference.after.damage]

    # The command under test, struck

    def _strike(self, workload: Workload, result: Result, dice: random.Random) -> None:
        shutil.rmtree(self._folder / "work")
        shutil.copytree(self._saved, self._folder / "work", symlinks=True)
        space, has_lied, facts = self._space(workload), False, self._reference.before
        with self._hub(space) as hub:
            for attempt in range(dice.choices((1, 2, 3), (6, 3, 1))[0]):
                armed = self._draw(dice, attempt)
                answer, log = self._attempt(workload, space, armed, hub)
                fired = _read(log / "fired") or ", ".join(f"{kind} {path}" for kind, path in hub.fired[:1])
                hub.inject()
                result.faults.append(Armed(armed.fault, armed.at, fired))
                result.answers.append("equal" if answer.is_success else answer.refusal or f"status {answer.status}")
                self._boots += bool(fired) and armed.fault == DiskFault.POWER_LOSS
                has_lied |= bool(fired) and armed.fault in SILENT_WRITES
                earlier, facts = facts, auditor.read_facts(space.folder)
                result.wrong += self._wrong(workload, space, answer, armed, has_lied, earlier, facts)
                if result.wrong:
                    return
            result.wrong += self._repair(workload, space)

    def _draw(self, dice: random.Random, attempt: int) -> Armed:
        """Draw a fault that can strike.

        Few commands ask the hub, so its faults are preferred there. Later attempts find less to do, so they are struck
        earlier, and the files of the hub in the cache.
        """
        counts = {fault: self._reference.operations.get(_operation_class(fault), 0) for fault in self.faults}
        possible = {fault: 3 if fault in HUB_FAULTS else 1 for fault, count in counts.items() if count}
        if attempt:
            possible = {fault: weight for fault, weight in possible.items() if fault not in HUB_FAULTS}
        [fault] = dice.choices([*possible], [*possible.values()]) if possible else [self.faults[0]]
        return Armed(fault, dice.randint(1, max(1, counts[fault] // (4 if attempt else 1))))

    def _attempt(
        self, workload: Workload, space: Workspace, armed: Armed | None = None, hub: FaultyHub | None = None
    ) -> tuple[Answer, Path]:
        """Type the command under test under a fault, or only counting."""
        log = self._folder / "log"
        shutil.rmtree(log, ignore_errors=True)
        log.mkdir()
        is_of_hub = armed is not None and armed.fault in HUB_FAULTS
        if armed is not None and is_of_hub and hub is not None:
            [kind] = HUB_FAULTS[armed.fault]
            hub.inject(Fault(kind, count=(1, 2, ALWAYS)[armed.at % 3], after=armed.at - 1))
        arm = {
            "fault": None if armed is None or is_of_hub else armed.fault,
            "at": 0 if armed is None else armed.at,
            "folder": str(space.folder),
            "exempt": self._exempt(space, armed),
            "log": str(log),
            "workers": workload.workers,
        }
        return self._type(space.command(workload.verb), arm), log

    def _exempt(self, space: Workspace, armed: Armed | None) -> list[str]:
        """Return paths that no fault may change: the hub and, mostly, the user's inputs."""
        inputs = [str(space.data / name) for name in ("recipes", "sources", "made.json")]
        return [str(space.hub), *(inputs if armed is None or armed.fault in map(str, OTHER_READS) else [])]

    def _wrong(
        self,
        workload: Workload,
        space: Workspace,
        answer: Answer,
        armed: Armed,
        has_lied: bool,
        earlier: Facts,
        facts: Facts,
    ) -> list[str]:
        """Decide about an attempt.

        `has_lied`: the disk skipped a write. `earlier` and `facts`: the states before and after the attempt.
        """
        may_die = armed.fault in (DiskFault.KILL, DiskFault.POWER_LOSS, DiskFault.KILL_AND_ROT)
        wrong = auditor.wrong_answer(answer, may_die, workload.is_read_only)
        if wrong:
            return wrong
        reference = self._reference
        if answer.is_success:
            wrong = auditor.differences(facts, reference.after, is_repairable_allowed=has_lied, kept=earlier)
            if workload.is_read_only and answer.stdout != reference.answer.stdout:
                texts = [auditor.normalized(text, space.folder) for text in (answer.stdout, reference.answer.stdout)]
                wrong += ["another answer with exit status 0: {!r}, not {!r}".format(*texts)] * (texts[0] != texts[1])
            return [f"exit status 0, but {what}" for what in wrong]
        if has_lied:
            return []
        return auditor.wrong_artifacts(facts, reference.before, reference.after)

    def _repair(self, workload: Workload, space: Workspace) -> list[str]:
        """Run the command without faults until it succeeds; list what differs then."""
        words, answers, struck = space.command(workload.verb), [], auditor.read_facts(space.folder)
        for _ in range(_CLEAN_TRIES):
            answer = self._type(words)
            answers.append(answer.stderr[-400:])
            if wrong := auditor.wrong_answer(answer, False, workload.is_read_only):
                return [f"without faults again: {what}" for what in wrong]
            if answer.status == self._reference.answer.status and not answer.has_doubt:
                break
            words = self._follow(answer, words, space)
        else:
            return [f"the command never succeeds again: {answers}"]
        wrong = auditor.differences(auditor.read_facts(space.folder), self._reference.after, kept=struck)
        return [f"not repaired by a clean run: {what}" for what in wrong]

    def _follow(self, answer: Answer, words: list[str], space: Workspace) -> list[str]:
        """Do what a refusal's lines say: delete a path, or add `--replace`."""
        for line in answer.stderr.splitlines():
            path = auditor.named_path(line)
            if path is not None and path.startswith(f"{space.folder}/") and os.path.lexists(path):
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
                return words
        return words if "--replace" in words or "--replace" not in answer.stderr else [*words, "--replace"]

    # Folders, hub and commands

    @property
    def _saved(self) -> Path:
        return self._folder / "saved"

    def _space(self, workload: Workload) -> Workspace:
        return Workspace(self._folder / "work", workload)

    @contextmanager
    def _hub(self, space: Workspace) -> Iterator[FaultyHub]:
        with FaultyHub(space.hub, self._port, writable=True, token=TOKEN) as hub:
            yield hub

    def _type(self, words: Sequence[str], arm: Mapping[str, Any] | None = None) -> Answer:
        nothing = {"fault": None, "at": 0, "folder": "/nowhere", "exempt": [], "log": str(self._folder)}
        armed = {**(arm or nothing), "boots": self._boots, "bug": self._planted}
        try:
            typed = self._server.run(words, self._environment, self._folder, TIMEOUT_S, armed)
        except TimeoutExpired:
            return Answer(None, "", "")
        return Answer(typed.returncode, typed.stdout, typed.stderr)


def _operation_class(fault: str) -> str:
    return "requests" if fault in HUB_FAULTS else operation_class(DiskFault(fault))


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


_PRELOADED = ("huggingface_hub.hf_api", "disk_faults", "sentencepiece", "numba", "jinja2", "obstore", "re2")
