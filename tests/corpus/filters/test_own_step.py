"""Kept, changed, dropped, rejected and refused results of own steps."""

import os
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from named_engines import ray_here
from own_steps import DECIDES, SHARD, Stepped, build_step, kept_rejects, kept_texts, write_step
from refusals import refusal

from pipeline_assets.corpus.filters.verdict import DroppedDocument, read_dropped
from pipeline_assets.corpus.sealed_shards import document_shards
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.rejects import Reject


def test_kept_changed_dropped_and_rejected_documents_are_counted(stepped: Stepped) -> None:
    artifact = stepped(DECIDES, "as is", "cut this", "title here", "none here", "bad word", "error here")

    assert kept_texts(artifact) == ["as is", "this", "title here"]
    assert list(read_dropped(artifact)) == [
        DroppedDocument("note-3", "own_step", "by my_filter.py", None, SHARD, 3),
        DroppedDocument("note-4", "too_bad", "by my_filter.py", None, SHARD, 4),
    ]
    assert kept_rejects(artifact) == [
        Reject(SHARD, 5, "step_failed", "my_filter.py:15: ZeroDivisionError: division by zero")
    ]
    assert artifact.manifest.identity.counts == {
        "ledger": {"in": 6, "out": 3, "dropped": {"own_step": 1, "too_bad": 1}, "rejected": {"step_failed": 1}},
        "documents": 3,
        "text_bytes": 19,
        "changed_documents": 2,
        "changes": {"python/text": 1, "python/meta": 1},
    }
    assert artifact.manifest.provenance["step_seconds"] > 0


def test_changes_in_place_count_and_a_reason_may_be_of_a_subclass_of_text(stepped: Stepped) -> None:
    code = """
import numpy
from msgspec.structs import force_setattr

def keep(document):
    force_setattr(document, "text", document.text.upper())
    return document if document.text != "NO" else numpy.str_("too_bad")
"""

    artifact = stepped(code, "yes", "no")

    assert kept_texts(artifact) == ["YES"]
    assert artifact.manifest.identity.counts["changes"] == {"python/text": 1}
    assert [line.reason for line in read_dropped(artifact)] == ["too_bad"]


def test_step_gets_the_text_that_other_filters_keep(stepped: Stepped) -> None:
    code = "def keep(document):\n    return document if 'email@example.com' in document.text else 'no_mask'\n"
    filters = {"length": {"min_words": 2}, "masking": {"emails": True, "public_ips": False}}

    artifact = stepped(code, "one", "two words", "write to me@here.org", filters=filters)

    assert kept_texts(artifact) == ["write to email@example.com"]
    assert [line.reason for line in read_dropped(artifact)] == ["few_words", "no_mask"]


@pytest.mark.parametrize(
    "engine",
    [
        RunSettings(1),
        RunSettings(2),
        pytest.param(RunSettings(2, start_method="spawn"), marks=pytest.mark.slow),
        pytest.param(RunSettings(2, engine="ray"), marks=pytest.mark.slow),
    ],
    ids=["one worker", "two workers", "spawned", "ray"],
)
def test_workers_do_not_change_the_bytes_of_a_step(engine: RunSettings, tmp_path: Path) -> None:
    if engine.engine == "ray":
        pytest.importorskip("ray", reason="needs the extra `ray`")
    code = """
        from msgspec.structs import replace

        words = {"red", "green", "blue", "black", "white"}

        def keep(document):
            if "7" in document.text:
                import os
                os._exit(9)
            return replace(document, text=document.text + " ".join(words))
    """
    texts = [f"This is note {number} of many. " * 9 for number in range(12)]
    path = write_step(tmp_path, code, texts, max_reject_fraction="0.5")
    path.write_text(path.read_text().replace(str(1 << 30), "600"))

    alone = build_step(path, tmp_path / "alone")
    with ray_here():
        shared = build_step(path, tmp_path / "shared", engine)

    assert len(document_shards(alone)) > 3
    assert alone.manifest.identity.counts["ledger"]["rejected"] == {"killed_worker": 1}
    assert shared.manifest.digest == alone.manifest.digest


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import socket\ndef keep(d):\n    socket.socket()\n", "got socket.__new__"),
        ("import subprocess\ndef keep(d):\n    subprocess.run(['ls'])\n", "got subprocess.Popen"),
        ("import os\ndef keep(d):\n    os.system('ls')\n", "got os.system"),
        (
            "import multiprocessing as m\ndef keep(d):\n    m.get_context('spawn').Process(target=print).start()\n",
            "got fork_exec",
        ),
        ("import os\ndef keep(d):\n    os.remove('a')\n", "got os.remove"),
        ("def keep(d):\n    open('/dev/shm/own-step', 'w')\n", "got /dev/shm/own-step"),
        (
            "import os\ndef keep(d):\n    os.open('/dev/shm/own-step', os.O_CREAT | os.O_RDWR)\n",
            "got /dev/shm/own-step",
        ),
        ("def keep(d):\n    open('/home/words.txt')\n", "got /home/words.txt"),
        ("def keep(d):\n    open('words.txt')\n", "got /words.txt"),
        (
            "def keep(d):\n    open('/etc/hostname')\n",
            "read files outside Python, packages, /usr, /lib, /proc, /sys and /dev, got /etc/hostname",
        ),
        ("def keep(d):\n    open('/etc/localtime.old')\n", "got /etc/localtime.old"),
        ("def keep(d):\n    open('/library/words.txt')\n", "got /library/words.txt"),
    ],
)
def test_document_of_a_forbidden_call_is_rejected_with_the_line(code: str, detail: str, stepped: Stepped) -> None:
    number = len(code.splitlines())
    code = code.replace("(d):\n", "(d):\n    if 'bad' not in d.text:\n        return d\n")

    artifact = stepped(code, "bad", "good")

    [reject] = kept_rejects(artifact)
    assert reject.reason == "step_failed"
    assert reject.detail.startswith(f"my_filter.py:{number + 2}: PermissionError: a step must not ")
    assert reject.detail.endswith(detail)
    assert not Path("/dev/shm/own-step").exists()


def test_packages_may_read_their_files_and_those_of_the_system(stepped: Stepped) -> None:
    code = """
def keep(document):
    import mimetypes, platform, zoneinfo
    import dateutil.tz, numpy, regex

    mimetypes.init()
    platform.freedesktop_os_release()
    zoneinfo.ZoneInfo.no_cache("Europe/Berlin")
    dateutil.tz.gettz()
    numpy.random.default_rng(7).random()
    return None if regex.search(r"\\p{Lu}", document.text) else document
"""

    assert kept_texts(stepped(code, "one", "Two")) == ["one"]


@pytest.mark.skipif(not Path("/proc/self/ns/net").exists(), reason="the system has no network namespaces")
def test_step_cannot_use_the_network_of_the_machine(stepped: Stepped) -> None:
    if (
        subprocess.run(["unshare", "--net", "true"]).returncode
        and subprocess.run(["unshare", "-Un", "true"]).returncode
    ):
        pytest.skip("the kernel allows no network namespace")
    ours = os.readlink("/proc/self/ns/net")
    code = f"import os\n\ndef keep(d):\n    return 'shared' if os.readlink('/proc/self/ns/net') == {ours!r} else d\n"

    assert kept_texts(stepped(code, "one")) == ["one"]


@pytest.mark.parametrize(
    ("act", "reason", "detail"),
    [
        ("os._exit(0)", "killed_worker", ""),
        ("os.abort()", "killed_worker", ""),
        ("sys.exit(0)", "step_failed", "my_filter.py:5: SystemExit: 0"),
        ("[0] * 10**9", "step_failed", "my_filter.py:5: MemoryError: "),
        ("[].pop(0)", "step_failed", "my_filter.py:5: IndexError: pop from empty list"),
        ("int(object)", "step_failed", None),
        (
            "raise type('Odd', (Exception,), {'__str__': lambda error: 5})",
            "step_failed",
            "my_filter.py:5: Odd: its message cannot be read (TypeError)",
        ),
        ("[0 for _ in iter(int, 1)]", "step_too_slow", "more than 1 s"),
    ],
)
def test_a_document_that_ends_or_exhausts_the_process_is_rejected(
    act: str, reason: str, detail: str | None, stepped: Stepped
) -> None:
    code = (
        f"import os, sys\n\ndef keep(document):\n    if 'bad' in document.text:\n        {act}\n    return document\n"
    )

    artifact = stepped(code, "one", "bad", "two", seconds=1, memory_mib=1024)

    assert kept_texts(artifact) == ["one", "two"]
    [reject] = kept_rejects(artifact)
    assert (reject.row, reject.reason) == (1, reason)
    assert detail in (None, reject.detail)


def test_a_step_whose_import_ends_its_process_stops_the_build(stepped: Stepped) -> None:
    code = "import os\n\nos._exit(1)\n\ndef keep(d):\n    return d\n"

    assert refusal(lambda: stepped(code, "one", "two")) == (
        "my_filter.py: the step's process ended while it loaded the file; correct it, or raise `memory_mib`"
    )


@pytest.mark.slow
def test_a_step_that_kills_its_process_for_many_documents_stops_the_build(stepped: Stepped) -> None:
    code = "import os\n\ndef keep(d):\n    os._exit(1)\n"

    assert refusal(lambda: stepped(code, *map(str, range(20)))) == (
        "my_filter.py: more than 16 documents kill or stop the step's process; correct it, or raise `memory_mib`"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return True", "keep returned True; return the document, None, or a reason of the characters a-z, 0-9 and _,"),
        ("return 'Too Short'", "keep returned 'Too Short'; return the document, None, or a reason"),
        ("kept.append(object()); return kept[-1]", "keep returned <object object at 0x…>; return the document, None"),
        (
            "return replace(document, meta=defstruct('M', [], bases=(type(document.meta),))(*astuple(document.meta)))",
            "keep returned Document(text='note 0', source=",
        ),
        (
            "return replace(document, doc_id='x', source='y')",
            "keep changed source, doc_id; change only text, and other",
        ),
        ("return replace(document, meta=replace(document.meta, source_row=9))", "keep changed meta.source_row; change"),
        ("return 'odd' if random.random() < 0.5 else document", "keep gives different results for one document ("),
        ("return str(time.time_ns()).translate(letters)", "keep gives different results for one document (dropped"),
        (
            "return 'twice' if document.text in kept or kept.append(document.text) else document",
            "(kept then dropped twice)",
        ),
    ],
)
def test_invalid_results_of_a_step_are_refused(body: str, message: str, stepped: Stepped) -> None:
    code = "import random, time\nfrom msgspec import defstruct\nfrom msgspec.structs import astuple, replace\n"
    code += "kept = []\nletters = {48 + digit: 97 + digit for digit in range(10)}\n"
    code += f"def keep(document):\n    {body}\n"
    texts = [f"note {number}" for number in range(40)]

    refused = refusal(lambda: stepped(code, *texts))
    assert message in refused
    assert re.match(r"my_filter\.py, rows\.jsonl#\d+ \(note-\d+\): ", refused), "it names the source row"


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ("text=''", "empty or contains NUL"),
        ("text='a\\0'", "empty or contains NUL"),
        ("text=5", "Expected `str`, got `int`"),
        ("text='\\ud800'", "UnicodeEncodeError"),
        ("meta=replace(d.meta, extra='x')", "JSON is malformed"),
        ("meta=replace(d.meta, extra='[]')", "Expected `object`"),
    ],
)
def test_an_invalid_document_is_rejected(changed: str, detail: str, stepped: Stepped) -> None:
    code = "from msgspec.structs import replace\ndef keep(d):\n    return d if 'a' in d.text else replace(d, CHANGE)\n"

    artifact = stepped(code.replace("CHANGE", changed), "a", "b")

    assert detail in kept_rejects(artifact)[0].detail


def test_too_many_rejects_stop_the_build_with_the_line_of_the_first(stepped: Stepped) -> None:
    message = refusal(lambda: stepped("def keep(d):\n    return d.txt\n", "a", "b", max_reject_fraction="0.1"))

    assert message.startswith(
        "my_filter.py: 2 of 2 rows are rejected (2 step_failed), above `max_reject_fraction` 0.1 (the first: "
        "rows.jsonl#0 (note-0): step_failed (my_filter.py:2: AttributeError: "
    )


def test_corpus_without_kept_rows_is_an_error_with_reasons_and_first_reject(stepped: Stepped) -> None:
    message = refusal(lambda: stepped("def keep(d):\n    return d.txt\n", "a", "b", max_reject_fraction="1"))

    assert message.startswith(
        "mixed/notes: none of the 2 documents is kept (2 step_failed) (the first reject: "
        "rows.jsonl#0 (note-0): step_failed (my_filter.py:2: AttributeError: "
    )
    assert message.endswith("; loosen the filters, correct the step or remove the source")


FATES = {
    "kept": ("out", None),
    "cut it": ("out", None),
    "none": ("dropped", "own_step"),
    "bad": ("dropped", "too_bad"),
    "error": ("rejected", "step_failed"),
}


@given(st.lists(st.sampled_from(sorted(FATES)), min_size=1, max_size=40), st.integers(1, 2000))
@settings(max_examples=10, deadline=None)
def test_every_document_has_one_fate_in_shards_of_any_size(words: list[str], shard_text_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = write_step(root, DECIDES, ["kept", *words], max_reject_fraction="1")
        path.write_text(path.read_text().replace(str(1 << 30), str(shard_text_bytes)))

        ledger = build_step(path, root / "data").manifest.identity.ledger

    expected = Counter(FATES[word] for word in ["kept", *words])
    assert ledger.rows_in == len(words) + 1
    assert ledger.out == expected.pop(("out", None))
    assert ledger.dropped | ledger.rejected == {reason: count for (_, reason), count in expected.items()}
