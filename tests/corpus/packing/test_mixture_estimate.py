"""The estimate of `plan`: whether sources have the tokens of a mixture."""

import json
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill
from hypothesis import given
from hypothesis import strategies as st
from stage_a_build import local_source

from pipeline_assets.commands.plan import _shortage_warnings
from pipeline_assets.corpus.packing.mixture_estimate import estimate_mixture
from pipeline_assets.corpus.packing.recipe import PackRecipe

MIX = {"seq_len": 100, "num_seqs": 50, "weights": {"web": 7, "wiki": 3}}


def recipe(**keys: object) -> dict[str, object]:
    caps = {"max_epochs": {"every_source": 1, "sources": {"wiki": 2}}}
    return PackRecipe.from_mapping(MIX | caps | keys, "mix.yaml").content()


def test_each_source_is_compared_with_its_share_of_the_rows() -> None:
    estimate = estimate_mixture(recipe(), {"web": 4000, "wiki": 600})

    assert [(source.source, source.needed, source.missing_tokens) for source in estimate.sources] == [
        ("web", 3500, 0),
        ("wiki", 1500, 300),
    ]
    assert estimate.possible_rows == 40  # wiki has 1,200 tokens in two epochs, three tenths of 4,000


@pytest.mark.parametrize(("keys", "rows"), [({"num_seqs": None}, 40), ({"num_seqs": None, "weights": None}, 52)])
def test_without_num_seqs_nothing_is_missing(keys: dict[str, object], rows: int) -> None:
    estimate = estimate_mixture(recipe(**keys), {"web": 4000, "wiki": 600})

    assert [(source.needed, source.missing_tokens) for source in estimate.sources] == [(None, 0)] * 2
    assert estimate.possible_rows == rows


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 10**9), min_size=1), st.integers(1, 10**6), st.data())
def test_possible_rows_are_the_most_that_fit(tokens: dict[str, int], rows: int, data: st.DataObject) -> None:
    weights = {name: data.draw(st.integers(1, 99)) for name in tokens}
    keys = {"seq_len": 8, "num_seqs": rows, "weights": weights, "max_epochs": {"every_source": 1}}
    estimate = estimate_mixture(PackRecipe.from_mapping(keys, "mix.yaml").content(), tokens)

    is_short = any(source.missing_tokens for source in estimate.sources)

    if rows <= estimate.possible_rows:
        assert not is_short
    if rows > estimate.possible_rows + 1:
        assert is_short


def test_plan_names_the_source_that_falls_short(corpusmill: Corpusmill, tmp_path: Path) -> None:
    texts = {"web": 400, "wiki": 30}
    sources = [
        local_source(tmp_path, name, [{"text": f"Document {number} of {name}. " * 30} for number in range(count)])
        | {"columns": {"text": "text"}}
        for name, count in texts.items()
    ]
    pack = {"seq_len": 128, "num_seqs": 400, "weights": {"web": 0.7}}  # wiki has the rest
    (tmp_path / "recipes").mkdir()
    content = {"system": "stage_a", "name": "mix", "sources": sources, "dedup": {}, "pack": pack}
    (tmp_path / "recipes" / "mix.yaml").write_text(yaml.safe_dump(content))

    lines = corpusmill("plan", "mix", "--data", tmp_path).stdout.splitlines()
    report = json.loads(corpusmill("plan", "mix", "--data", tmp_path, "--json").stdout)

    start = lines.index("mixture, estimated before filters and deduplication")
    assert [line.partition(": about")[0] for line in lines[start + 1 : start + 3]] == ["  web", "  wiki"]
    assert lines[start + 2].endswith(" tokens, 15,000 needed")
    assert lines[-1].startswith("WARNING wiki falls short by about ")
    assert lines[-1].endswith(" rows, lower its weight, or raise its max_epochs")
    assert report["mixture"]["sources"][1]["needed"] == 15360


@pytest.mark.parametrize(
    ("tokens", "num_seqs", "fixes"),
    [
        ({"web": 700, "wiki": 3}, 10, {"wiki": "request about 1 row, lower its weight, or raise its max_epochs"}),
        (
            {"web": 70, "wiki": 30},
            100,
            dict.fromkeys(("web", "wiki"), "request about 10 rows, or raise its max_epochs"),
        ),
        (
            {"web": 6, "wiki": 2},
            100,
            dict.fromkeys(("web", "wiki"), "lower seq_len, or raise its max_epochs"),
        ),
    ],
)
def test_a_lower_weight_is_not_advised_if_every_source_falls_short(
    tokens: dict[str, int], num_seqs: int, fixes: dict[str, str]
) -> None:
    pack = {
        "seq_len": 10,
        "num_seqs": num_seqs,
        "weights": {"web": "0.7", "wiki": "0.3"},
        "max_epochs": {"every_source": "1", "sources": {}},
    }

    lines = _shortage_warnings(estimate_mixture(pack, tokens))

    assert {line.split()[0]: line.partition("; ")[2] for line in lines} == fixes
