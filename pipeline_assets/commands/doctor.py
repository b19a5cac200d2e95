"""The command `doctor`, which examines machine, data root and settings.

Each probe runs in its own process with a time limit, so if it hangs or crashes, the other probes still run. A probe
returns a message, or raises an error with a fix: `ProbeWarning` for a warning, another error for a fault. Over the
network, probes only contact the hub, the database and the Ray cluster in the settings.
"""

import importlib.util
import multiprocessing
import os
import platform
import resource
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path

from pipeline_assets.build.run import ENGINE, MEMORY_MIB, WORKERS, Run, open_hub
from pipeline_assets.commands import terminal
from pipeline_assets.commands.settings import invalid_settings, misspelled_settings
from pipeline_assets.corpus.scoring.recipe import can_start_cuda
from pipeline_assets.spine import durable
from pipeline_assets.spine.disk_errors import convert_os_errors
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError, UsageError, one_line
from pipeline_assets.spine.install_hints import not_installed_error, pip_hint
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.lock_reach import mounts_for, raise_if_locks_are_local
from pipeline_assets.spine.machine_memory import memory_bytes
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.ray_engine import connect, describe_nodes, disconnect, node_resources
from pipeline_assets.spine.usage import nearest_existing
from resources.launchers import remote_launcher_factory

_PROBE_TIMEOUT_S, _CONNECT_TIMEOUT_S = 60.0, 5
_NVIDIA_DEVICE = Path("/dev/nvidiactl")
_LOW_DISK_BYTES = 10 << 30
_BYTES_PER_PROCESS = 450 << 20  # with libraries, kernels and tokenizer tables, measured in the demo
_MIN_OPEN_FILES, _RECOMMENDED_OPEN_FILES = 64, 1024  # a small stage A fails at 32
_EXPECTED_HASHED_ORDER = [0, 3, 4, 1, 2]  # of five numbers with the seed 0
_POSTGRES_OPTIONS = {"HOST": "host", "PORT": "port", "DB": "dbname", "USER": "user", "PASSWORD": "password"}


class ProbeWarning(InputError):
    """Problem that `doctor` reports as a warning, because most builds work despite it."""


def doctor(data: terminal.Root = Path("data"), as_json: terminal.AsJson = False) -> bool:
    """Examine this machine, data root and settings.

    Exit status 1: a probe reports a fault.

    Example: corpusmill doctor --data data
    """
    terminal.check_root(data)
    results = []
    for name, probe in PROBES.items():
        state, message = run_probe(probe, data.absolute())
        results.append({"probe": name, "state": state, "message": message})
        terminal.print_lines([] if as_json else [f"{state:7}  {name:8}  {message}"])
    terminal.print_answer(as_json, results, [])
    return all(result["state"] != "fault" for result in results)


def run_probe(probe: Callable[[Path], str], root: Path) -> tuple[str, str]:
    """Run a probe; return its state (ok, warning or fault) and its message."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_finding, args=(sender, probe, root), daemon=True)
    process.start()
    sender.close()  # the child has the last sender, so its death ends the wait
    try:
        if receiver.poll(_PROBE_TIMEOUT_S):
            finding: tuple[str, str] = receiver.recv()
            return finding
        what = f"no answer within {_PROBE_TIMEOUT_S:.0f} s"
    except EOFError:
        what = "the probe crashed"
    finally:
        process.kill()  # code in C, such as Ray's, may ignore SIGTERM
        process.join()
        receiver.close()
    return "fault", f"{what}; look for a disk, server or library that hangs or crashes"


def _send_finding(sender: Connection, probe: Callable[[Path], str], root: Path) -> None:
    try:
        with convert_os_errors(root):
            finding = "ok", probe(root)
    except (ProbeWarning, TransientError) as error:
        finding = "warning", str(error)
    except InputError as error:
        finding = "fault", str(error)
        if isinstance(error, UsageError) and error.where.startswith("CORPUSMILL_"):  # the probe `settings` reports it
            finding = "warning", f"not examined: {error.where} has no valid value"
    except Exception as error:
        finding = "fault", f"{type(error).__name__}: {one_line(error)}; install the program again"
    sender.send(finding)


def _probe_settings(root: Path) -> str:
    if errors := invalid_settings(os.environ):
        raise RetryableError("; ".join(errors), None, "correct them")
    if misspelled := misspelled_settings(os.environ):
        raise ProbeWarning("; ".join(misspelled), None, "correct the name, or unset it")
    return "all CORPUSMILL_ variables are valid"


def _probe_python(root: Path) -> str:
    from packaging.requirements import Requirement

    for library in map(Requirement, metadata.requires("corpusmill") or ()):
        if library.marker is None and metadata.version(library.name) not in library.specifier:
            what = f"must be {library.specifier}, got {metadata.version(library.name)}"
            raise RetryableError(what, library.name, pip_hint(f"'{library}'"))
    return f"{platform.python_version()} on {platform.machine()}, with supported libraries"


def _probe_disk(root: Path) -> str:
    folder = nearest_existing(root)
    probe = folder / f".doctor.{os.getpid()}"
    durable.write_durably(probe, bytes(1 << 16))
    durable.remove(probe)
    usage, kind = shutil.disk_usage(folder), next((kind for kind, _ in mounts_for(folder)), "unknown file system")
    text = f"{terminal.format_bytes(usage.free)} of {terminal.format_bytes(usage.total)} are free ({kind})"
    if usage.free < _LOW_DISK_BYTES:
        raise ProbeWarning(text, folder, "free some, see `corpusmill gc`; `corpusmill plan` shows what a build needs")
    if kind == "tmpfs":
        raise ProbeWarning(text, folder, "a restart deletes its files: choose a data root on a disk")
    return f"{folder}: {text}"


def _probe_locks(root: Path) -> str:
    with locked(nearest_existing(root) / f"doctor.{os.getpid()}") as lock:
        durable.remove(lock.path)
    try:
        raise_if_locks_are_local(root)
    except RetryableError as error:
        raise ProbeWarning(error.what, error.where or None, error.fix) from None
    return f"locks work in {nearest_existing(root)}"


def _probe_files(root: Path) -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < _RECOMMENDED_OPEN_FILES:
        error = RetryableError if limit < _MIN_OPEN_FILES else ProbeWarning
        what = f"must be at least {_RECOMMENDED_OPEN_FILES:,} for large builds, got {limit}"
        raise error(what, "ulimit -n", "raise the limit")
    return f"a process may open {limit:,} files"


def _probe_memory(root: Path) -> str:
    workers, memory = WORKERS.read(os.environ), MEMORY_MIB.read(os.environ) << 20
    total = memory_bytes()
    needed = memory + (workers + 1) * _BYTES_PER_PROCESS
    text = f"{total >> 20:,} MiB; builds with {pluralize(workers, 'worker')} use up to {needed >> 20:,} MiB"
    if needed > total:
        raise RetryableError(text, "memory", "set CORPUSMILL_MEMORY_MIB or CORPUSMILL_WORKERS lower")
    return text


def _probe_kernels(root: Path) -> str:
    from pipeline_assets.corpus.compiled import cache_folder, is_private
    from pipeline_assets.corpus.packing.hashed_order import hashed_order

    try:
        order = hashed_order(5, 0).tolist()
    except Exception as error:
        order = one_line(error)
    if order != _EXPECTED_HASHED_ORDER:
        what = f"a compiled kernel gave {order!r}, expected {_EXPECTED_HASHED_ORDER}"
        raise RetryableError(what, cache_folder(), "delete the folder, then kernels are compiled again")
    if not is_private(cache_folder()) or not any(cache_folder().glob("*.nbc")):
        what = "compiled kernels cannot be stored for this user alone, so that each process compiles them again"
        fix = "let only this user write to it and to its parent, free some space, or set NUMBA_CACHE_DIR"
        raise ProbeWarning(what, cache_folder(), fix)
    return f"compiled kernels load from {cache_folder().parent}"


def _probe_hub(root: Path) -> str:
    from huggingface_hub import get_token
    from huggingface_hub.errors import HfHubHTTPError

    hub = replace(open_hub(root, os.environ), tries=1, progress_s=_CONNECT_TIMEOUT_S)
    client = hub.client()

    def identify() -> str:
        try:
            return f"the token of {client.fetch_page(f'{client.address}/api/whoami-v2')[0]['name']} is valid"
        except HfHubHTTPError as error:
            if error.response.status_code not in (401, 403):
                raise
            if get_token():
                raise RetryableError(f"{client.address} rejects the token", "HF_TOKEN", "set a valid token") from None
            return "no token is set, gated datasets cannot be read"

    return f"{client.address} answers; {hub.call_with_retries('the hub', 'main', identify)}"


def _probe_postgres(root: Path) -> str:
    options = {key: os.environ.get(f"DAGSTER_PG_{name}") for name, key in _POSTGRES_OPTIONS.items()}
    if not any(options.values()):
        return "not used: no DAGSTER_PG_… is set"
    try:
        import psycopg2

        psycopg2.connect(**options, connect_timeout=_CONNECT_TIMEOUT_S).close()
    except ImportError as error:
        raise not_installed_error(error, "postgres") from None
    except psycopg2.Error as error:
        what = str(error).strip().splitlines()[0]  # the other lines ask questions
        raise RetryableError(what, "DAGSTER_PG_…", "start the database, or correct the variables") from None
    return f"the database at {options['host']} answers"


def _probe_ray(root: Path) -> str:
    address = os.environ.get("RAY_ADDRESS", "")
    if os.environ.get(ENGINE.variable) != "ray" and not address:
        return f"not used: {ENGINE.variable} is not ray"
    settings = Run.from_settings(root, os.environ | {ENGINE.variable: "ray"}).settings  # raises if Ray is not installed
    version = f"ray {metadata.version('ray')}"
    if address in ("", "local"):
        return f"{version}; a build starts it on this machine"
    try:
        nodes = node_resources(connect(settings.workers, settings.worker_bytes))
        return f"{version}; connected to {address}: {describe_nodes(nodes)}"
    finally:
        disconnect()


def _probe_modal(root: Path) -> str:
    if remote_launcher_factory(os.environ) is None:
        return "not used: CORPUSMILL_LAUNCHER is local"
    from resources.modal_launcher import has_token

    if not has_token():
        fix = "run `modal token new`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
        raise RetryableError("no token of Modal is stored", "CORPUSMILL_LAUNCHER", fix)
    return "a token is stored; it was not sent"


def _probe_gpu(root: Path) -> str:
    if importlib.util.find_spec("torch") is None:
        return "not used: torch is not installed"
    if can_start_cuda():
        return "models score on a GPU"
    if _NVIDIA_DEVICE.exists():
        what = "torch finds no GPU, although this machine has a driver"
        raise ProbeWarning(what, _NVIDIA_DEVICE, "install a torch for this driver, or correct CUDA_VISIBLE_DEVICES")
    return "no GPU: models score on the CPU"


_PROBES = [_probe_settings, _probe_python, _probe_disk, _probe_locks, _probe_files, _probe_memory, _probe_kernels]
_PROBES += [_probe_hub, _probe_postgres, _probe_ray, _probe_modal, _probe_gpu]
PROBES: Mapping[str, Callable[[Path], str]] = {probe.__name__.removeprefix("_probe_"): probe for probe in _PROBES}
