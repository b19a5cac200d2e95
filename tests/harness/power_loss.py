"""Contents that a disk may have after a power loss.

A file's bytes are durable once the file is synced; a name that was created, changed or removed in a folder is
durable once the folder is synced. Until then each change may have reached the disk or not, in any order: POSIX allows
it, though no file system in use goes that far. A rename or an exchange within a folder is one change: both of its
names, or neither.
"""

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union
from unittest import mock

from pipeline_assets.spine import durable
from pipeline_assets.spine.temporary_names import is_temporary

Tree = dict[str, Union[bytes, "Tree"]]
_DEAD_PROCESS = 1 << 30  # above the largest process number of Linux, 2**22


@dataclass(eq=False)
class _Node:
    """File or folder under any name: its present and its synced content."""

    is_folder: bool
    live_names: dict[str, "_Node"] = field(default_factory=dict)
    synced_names: dict[str, "_Node"] = field(default_factory=dict)
    live_bytes: bytes = b""
    synced_bytes: bytes = b""


@dataclass(frozen=True)
class _Change:
    """Change of names in an unsynced folder; None is a removed name."""

    folder: _Node
    names: dict[str, _Node | None]

    @property
    def only_removes(self) -> bool:
        return all(node is None for node in self.names.values())


class Disk:
    """Disk that records every step and sync of a folder; its first state is synced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[int, _Node] = {}
        self._pending: list[_Change] = []
        self._top = self._look(root, {})
        self._pending.clear()
        for node in self._nodes.values():
            node.synced_names, node.synced_bytes = dict(node.live_names), node.live_bytes

    def follow(self) -> None:
        """Record the changes since the last call."""
        seen: dict[int, _Node] = {}
        self._look(self._root, seen)
        self._nodes = seen  # the inode number of a removed file may be reused

    def sync(self, descriptor: int) -> None:
        """Mark an open file or folder as synced in its present state."""
        self.follow()
        node = self._nodes.get(os.fstat(descriptor).st_ino)
        if node is not None:
            node.synced_names, node.synced_bytes = dict(node.live_names), node.live_bytes
            self._pending = [change for change in self._pending if change.folder is not node]

    def _look(self, path: Path, seen: dict[int, _Node]) -> _Node:
        status = path.lstat()
        inode, is_folder = status.st_ino, stat.S_ISDIR(status.st_mode)
        node = seen.get(inode) or self._nodes.get(inode) or _Node(is_folder)
        seen[inode] = self._nodes[inode] = node
        if not is_folder:
            data = path.read_bytes()
            if data != node.live_bytes:  # states of the disk share unchanged bytes
                node.live_bytes = data
            return node
        names = {entry.name: self._look(entry, seen) for entry in sorted(path.iterdir())}
        changed: dict[str, _Node | None] = {name: None for name in node.live_names.keys() - names.keys()}
        changed |= {name: child for name, child in names.items() if node.live_names.get(name) is not child}
        if changed:
            self._pending.append(_Change(node, changed))
        node.live_names = names
        return node

    def after_power_loss(self, seed: str) -> dict[str, Tree]:
        """Return the possible disks after a power failure now, by their badness."""
        dice = random.Random(seed)
        chosen = [change for change in self._pending if dice.random() < 0.5]
        fates = [_as_synced, _zeros, _half, lambda node: node.live_bytes]
        return {
            "nothing unsynced is left": self._tree([], _as_synced),
            "names are left, their bytes are zero": self._tree(self._pending, _zeros),
            "removals came first": self._tree([change for change in self._pending if change.only_removes], _as_synced),
            "the last change came first": self._tree(self._pending[-1:], _half),
            "some of all": self._tree(chosen, lambda node: dice.choice(fates)(node)),
        }

    def _tree(self, changes: list[_Change], fate: Callable[[_Node], bytes]) -> Tree:
        def build_tree(node: _Node) -> Tree:
            names: dict[str, _Node | None] = dict(node.synced_names)
            for change in changes:
                if change.folder is node:
                    names |= change.names
            return {
                name: build_tree(child) if child.is_folder else _surviving_bytes(child, fate)
                for name, child in names.items()
                if child is not None
            }

        return build_tree(self._top)


def _surviving_bytes(node: _Node, fate: Callable[[_Node], bytes]) -> bytes:
    return node.live_bytes if node.live_bytes == node.synced_bytes else fate(node)


def _as_synced(node: _Node) -> bytes:
    return node.synced_bytes


def _zeros(node: _Node) -> bytes:
    return node.synced_bytes + bytes(max(0, len(node.live_bytes) - len(node.synced_bytes)))


def _half(node: _Node) -> bytes:
    return node.live_bytes[: len(node.live_bytes) // 2]


@contextmanager
def followed(root: Path, at_each_step: Callable[[Disk], None]) -> Iterator[Disk]:
    """Record the disk under the block, which this process must run alone."""
    disk, fsync = Disk(root), os.fsync

    def step(kind: durable.Operation, path: Path) -> None:
        disk.follow()
        at_each_step(disk)

    def fsync_seen(descriptor: int) -> None:
        fsync(descriptor)
        disk.sync(descriptor)

    with mock.patch.object(durable, "failpoint", step), mock.patch.object(os, "fsync", fsync_seen):
        yield disk
    disk.follow()


def write_tree(tree: Tree, folder: Path) -> None:
    """Write the tree as files and folders into a new folder.

    This process followed the disk and still runs, but no process survives a power loss: its temporary names get the
    number of a dead process.
    """
    folder.mkdir()
    for followed_name, node in tree.items():
        name = followed_name
        if is_temporary(name):
            name = name.replace(f".{os.getpid()}.", f".{_DEAD_PROCESS}.")
        if isinstance(node, bytes):
            (folder / name).write_bytes(node)
        else:
            write_tree(node, folder / name)
