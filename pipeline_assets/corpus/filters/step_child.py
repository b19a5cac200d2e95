"""Process that runs the function of a custom step on one document after another.

An audit hook refuses sockets, subprocesses and writes, and allows reads only of the files of Python, of packages and of
the system. If the kernel allows it, the process has a network namespace of its own. Hook and namespace guard against
accidents; they are not a sandbox.
"""

import contextlib
import ctypes
import functools
import os
import re
import resource
import signal
import sys
import traceback
import types
from collections.abc import Callable
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any, Literal

import msgspec

from pipeline_assets.compat import replace_fork_exec
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.spine.errors import one_line

DROPPED, FAILED, TOO_SLOW = "own_step", "step_failed", "step_too_slow"  # reason codes
_FIXED_META_FIELDS = ("meta.source_file", "meta.source_row", "meta.license_evidence")  # `trace` reads them
_FIXED_FIELDS = ("source", "domain", "doc_id", "license_tag", "created_at", *_FIXED_META_FIELDS)
_REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MEMORY_ADDRESS = re.compile(r"0x[0-9a-f]+")  # differs between processes
_MAX_MESSAGE_CHARACTERS = 200  # maximum length of a message
_CLONE_NEWUSER, _CLONE_NEWNET, _PR_SET_PDEATHSIG = 0x10000000, 0x40000000, 1
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SYSTEM_FOLDERS = ("/usr/", "/lib/", "/lib64/", "/proc/", "/sys/", "/dev/")
# Files of /etc that libraries read: `dateutil`, `tzlocal`, `platform` and `mimetypes`.
_SYSTEM_FILES = re.compile(r"/etc/(localtime|timezone|os-release|(.*/)?mime\.types)")
_REFUSED_EVENTS = re.compile(
    r"(socket|subprocess|shutil|pty|sqlite3)\.|os\.(system|exec|fork|forkpty|posix_spawn|spawn|kill|killpg|remove"
    r"|rename|rmdir|mkdir|link|symlink|truncate|chmod|chown|utime)$"
)
_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Document)


class StepAnswer(msgspec.Struct, frozen=True):
    """Answer of the process: outcome of a document, or of loading the step.

    The outcome `refused` stops the build, because the step itself is wrong.
    """

    outcome: Literal["kept", "changed", "dropped", "rejected", "refused"]
    reason: str = ""  # reason code of a dropped or rejected document; for a refused step, a description of its fault
    detail: str = ""  # detail of a reject; for a refused step, how to correct it
    line: bytes = b""  # changed document as a JSON line
    changes: tuple[str, ...] = ()  # changed fields of the document: `text`, `meta` or both


class _TooSlowError(BaseException):
    """Error for a slow document; `except Exception` in a step does not catch it."""


class _LoadedStep:
    """Loaded function of a step."""

    def __init__(self, code: str, file_name: str, function_name: str, seconds: int) -> None:
        self._file, self._seconds, module = file_name, seconds, types.ModuleType("own_step")
        sys.modules[module.__name__] = module  # dataclasses look their module up
        exec(compile(code, file_name, "exec"), vars(module))
        self._function: Callable[[Document], object] = vars(module)[function_name]

    def answer(self, line: bytes, run_twice: bool) -> StepAnswer:
        """Run the function on an encoded document.

        If `run_twice` is true, run the function twice, and refuse the step if the results differ.
        """
        first = self._run(line)
        if run_twice and (second := self._run(line)) != first:
            results = " then ".join(f"{answer.outcome} {answer.reason}".strip() for answer in (first, second))
            fix = "remove randomness, the time, and values kept between documents"
            return StepAnswer("refused", f"gives different results for one document ({results})", fix)
        return first

    def _run(self, line: bytes) -> StepAnswer:
        try:
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
            try:
                result = self._function(_decoder.decode(line))
            finally:
                if signal.setitimer(signal.ITIMER_PROF, 0)[0] == 0:  # expired, though the function caught the error
                    raise _TooSlowError
            return _check_result(line, result)
        except _TooSlowError:
            return StepAnswer("rejected", TOO_SLOW, f"more than {self._seconds} s")
        except BaseException as error:
            return StepAnswer("rejected", FAILED, _describe_error(error, self._file))


def _check_result(line: bytes, result: object) -> StepAnswer:
    """Convert the result for document `line`; raise if its text or meta is invalid."""
    if result is None:
        return StepAnswer("dropped", DROPPED)
    if isinstance(result, str) and (reason := _REASON.fullmatch(result)):
        return StepAnswer("dropped", reason[0])  # plain text, also of a subclass such as numpy.str_
    if type(result) is not Document or type(result.meta) is not Meta:  # fields of a subclass would be stored
        fix = "return the document, None, or a reason of the characters a-z, 0-9 and _, such as too_short"
        return StepAnswer("refused", f"returned {_error_message(ValueError(repr(result)))}", fix)
    document = _decoder.decode(line)  # decoded again, since the function may have changed its own in place
    if changed := [name for name in _FIXED_FIELDS if attrgetter(name)(result) != attrgetter(name)(document)]:
        return StepAnswer("refused", f"changed {', '.join(changed)}", "change only text, and other fields of meta")
    returned = _encoder.encode(result)
    _decoder.decode(returned).meta.columns()
    if not result.text or "\0" in result.text:
        raise ValueError("the returned text is empty or contains NUL")
    changes = tuple(name for name in ("text", "meta") if getattr(result, name) != getattr(document, name))
    return StepAnswer("changed", line=returned, changes=changes) if changes else StepAnswer("kept")


def _describe_error(error: BaseException, file_name: str) -> str:
    """Describe an exception by its line in `file_name`, its type and its message."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file_name]
    place = f"{file_name}:{lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {_error_message(error)}"


def _error_message(error: BaseException) -> str:
    """Return an exception's message in one line, without memory addresses."""
    try:
        return _MEMORY_ADDRESS.sub("0x…", one_line(error, _MAX_MESSAGE_CHARACTERS))
    except BaseException as failure:  # raised by the exception's own `__str__`
        return f"its message cannot be read ({type(failure).__name__})"


def _isolate(parent_pid: int, memory_mib: int) -> None:
    """Isolate this process, and have it killed when its parent process ends.

    Disable the network, limit memory, and add the audit hook. On systems other than Linux, only the audit hook disables
    the network, and the process can outlive its parent.
    """
    with contextlib.suppress(AttributeError, OSError):  # systems other than Linux
        libc = ctypes.CDLL(None)
        if libc.unshare(_CLONE_NEWNET) != 0:
            libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # the limit is lower already
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20,) * 2)
    python = tuple(os.path.join(folder, "") for folder in {sys.prefix, sys.base_prefix})
    sys.path[:] = [folder for folder in sys.path if folder.startswith(python) or "-packages" in folder]
    readable = (*_SYSTEM_FOLDERS, *python, *sys.path)
    sys.dont_write_bytecode = True
    os.chdir("/")  # or messages with absolute paths would depend on the folder of the command

    def refuse(event: str, *_: object) -> None:
        raise PermissionError(f"a step must not use the network, processes or files, got {event}")

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if _REFUSED_EVENTS.match(event):
            refuse(event)
        if event == "open" and not isinstance(arguments[0], int):
            path, flags = os.path.abspath(os.fsdecode(arguments[0])), arguments[2]
            is_readable = path.startswith(readable) or _SYSTEM_FILES.fullmatch(path)
            if path != os.devnull and (flags & _WRITE_FLAGS or not is_readable):
                folders = "Python, packages, /usr, /lib, /proc, /sys and /dev"
                raise PermissionError(f"a step must not write, or read files outside {folders}, got {path}")

    sys.addaudithook(guard)
    replace_fork_exec(functools.partial(refuse, "fork_exec"))


def _raise_too_slow(signal_number: int, frame: object) -> None:
    raise _TooSlowError


def main() -> None:
    """Load the step, report the result, and answer messages until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _raise_too_slow)
    descriptor, parent, seconds, memory_mib = map(int, sys.argv[1:5])
    connection, file, function = Connection(descriptor), *sys.argv[5:]
    code, step, loaded = connection.recv_bytes().decode("utf-8-sig"), None, StepAnswer("kept")
    _isolate(parent, memory_mib)
    try:
        step = _LoadedStep(code, file, function, seconds)
    except BaseException as error:
        loaded = StepAnswer("refused", f"cannot be loaded ({_describe_error(error, file)})", "correct the file")
    connection.send_bytes(msgspec.msgpack.encode(loaded))
    with contextlib.suppress(EOFError, ConnectionError):
        while step is not None:
            message = connection.recv_bytes()
            connection.send_bytes(msgspec.msgpack.encode(step.answer(message[1:], bool(message[0]))))


if __name__ == "__main__":
    main()
