"""Types are learned safely by any number of threads."""

import re
import subprocess
import sys
from pathlib import Path

import pipeline_assets

PROJECT = Path(__file__).parents[2]
# The second thread uses `Outer` while msgspec evaluates an annotation of `Inner` for the first.
FIRST_USE = """
import threading, time
from dataclasses import dataclass
from pathlib import Path
from pipeline_assets.spine.metadata_file import MetadataFormat

@dataclass
class Inner:
    number: "(__import__('time').sleep(0.2), int)[1]"

@dataclass
class Outer:
    name: str
    inner: Inner
    last: str

found, together, file = [], threading.Barrier(2), MetadataFormat("note", 1000, "correct it", Outer)

def read(wait_s):
    together.wait()
    time.sleep(wait_s)
    found.append(file.parse(b'{"name": "n", "inner": {"number": 1}, "last": "x"}', Path("a")))

threads = [threading.Thread(target=read, args=[wait_s]) for wait_s in (0, 0.1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(found == [Outer("n", Inner(1), "x")] * 2)
"""


def test_two_threads_may_use_a_type_first() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_USE], cwd=PROJECT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_only_one_module_lets_msgspec_learn_types_at_run_time() -> None:
    """Module-level decoders learn their types while the module is imported."""
    decoding = re.compile(r"msgspec\.(convert\(|(json|msgpack)\.decode\([^\n]*type=)")
    sources = Path(pipeline_assets.__path__[0]).rglob("*.py")

    assert [path.stem for path in sources if decoding.search(path.read_text())] == ["typed_values"]
