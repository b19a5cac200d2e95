"""What status says of rebuilds that were kept or not finished."""

import datetime
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_assets.commands.quantities import age

if TYPE_CHECKING:
    from pipeline_assets.corpus.trust.rebuild import Leftover


def rebuild_lines(rebuilds: Sequence["Leftover"], now: datetime.datetime) -> Iterator[str]:
    """Two lines each: what it is, and what to do about it."""
    if not rebuilds:
        return
    yield "rebuilds"
    names = max(len(rebuild.name) for rebuild in rebuilds)
    sizes = max(len(f"{rebuild.bytes:,}") for rebuild in rebuilds)
    for rebuild in rebuilds:
        written = f"written {age(rebuild.last_write, now)} ago"
        yield f"  {_state(rebuild):10}  {rebuild.name:{names}}  {rebuild.bytes:>{sizes},} bytes  {written}"
        if rebuild.builder is not None:
            yield f"    process {rebuild.builder.pid} on {rebuild.builder.host} is at work on it"
        else:
            kept = "" if rebuild.is_finished else "the same command goes on; "
            yield f"    {kept}to remove it: {_removal(rebuild)}"


def rebuild_json(rebuild: "Leftover", now: datetime.datetime) -> dict[str, Any]:
    """The same for programs."""
    return {
        "folder": str(rebuild.folder),
        "name": rebuild.name,
        "state": _state(rebuild),
        "bytes": rebuild.bytes,
        "last_write_utc": rebuild.last_write.isoformat(timespec="seconds"),
        "age_s": max(0, int((now - rebuild.last_write).total_seconds())),
        "remove": None if rebuild.builder is not None else _removal(rebuild),
    }


def _state(rebuild: "Leftover") -> str:
    if rebuild.builder is not None:
        return "building"
    return "kept" if rebuild.is_finished else "unfinished"


def _removal(rebuild: "Leftover") -> str:
    """-f, since sealed files may not be written to, and rm would ask about each."""
    return shlex.join(["rm", "-rf", str(rebuild.folder)])
