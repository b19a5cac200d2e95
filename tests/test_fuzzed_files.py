"""Readers of external files and texts report edited inputs in one line.

Each reader gets a few edits in this file, and more under `slow`; `make fuzz CASES=1000000` draws a million.
"""

import hashlib
import json
import re
from pathlib import Path

import fuzz_arrays
import fuzz_rows
import fuzz_sealed
import fuzz_texts
import pytest
from fuzz_edits import Case, Reader, cases, check, draw_case
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER

READERS = (*fuzz_texts.READERS, *fuzz_rows.READERS, *fuzz_arrays.READERS, *fuzz_sealed.READERS)
BY_NAME = {reader.name: reader for reader in READERS}
STAGE_A = (PROJECT_RECIPES_FOLDER / "stage_a_v1.yaml").read_text()
each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


@each_reader
def test_valid_inputs_are_read(reader: Reader, tmp_path: Path) -> None:
    refused = [seed for seed in range(len(reader.inputs)) if check(reader, Case(seed, (), False), tmp_path)]

    assert refused == []


@each_reader
def test_edited_inputs_are_read_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        check(reader, data.draw(cases(reader)), tmp_path)

    run()


@pytest.mark.slow
@each_reader
def test_seeded_edits_are_read_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    refused = sum(check(reader, draw_case(reader, number), tmp_path) for number in range(120))

    assert refused < 120, "edits are small, so that some inputs stay valid"


def replace_minhash(settings: str) -> bytes:
    return re.sub("minhash: .*", f"minhash: {settings}", STAGE_A).encode()


def build_receipt(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("recipes", replace_minhash("[1]")),
        ("recipes", replace_minhash("{permutations: 128, rows: 300}")),
        ("recipes", replace_minhash("{permutations: .inf}")),
        (".npy headers", b"\x93NUMPY\x01\x00\x10\x00{'descr': (\0     \n"),
        (".npy headers", b"\x93NUMPY\x01\x00\x10\x00{'descr': '''   \n"),
        ("call files", build_receipt(b"[")),
        ("call files", build_receipt(b'{"files": [{}], "counts": {}}')),
        ("call files", build_receipt(b"[" * 100_000)),
        ("answers of Modal", build_receipt(b"\xff")),
    ],
)
def test_inputs_of_former_tracebacks_are_read_or_refused(name: str, data: bytes, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(BY_NAME[name]), "inputs", [data])

        assert check(BY_NAME[name], Case(0, (), False), tmp_path) or name == "call files"


def test_a_pointer_with_an_invalid_name_is_refused_in_one_line(tmp_path: Path) -> None:
    reader = BY_NAME["store pointers"]
    pointer = json.loads(reader.inputs[0])
    pointer["artifacts"][0]["manifest"] = "\0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(reader), "inputs", [json.dumps(pointer).encode()])

        assert check(reader, Case(0, (), False), tmp_path)
