"""Owners and tags of assets, as the settings say them."""

from pathlib import Path

import pytest

from pipeline_assets.assets import OWNERS, TAGS
from pipeline_assets.definitions import definitions_of


def test_every_asset_has_the_owners_and_tags_that_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNERS, "team:data, me@example.org")
    monkeypatch.setenv(TAGS, "project=llm,tier=gold")

    graph = definitions_of(tmp_path).resolve_asset_graph()

    assets = [graph.get(key) for key in graph.get_all_asset_keys()]
    assert {tuple(asset.owners) for asset in assets} == {("team:data", "me@example.org")}
    assert all({"project": "llm", "tier": "gold"}.items() <= asset.tags.items() for asset in assets)
    assert any("dagster/kind/jsonl" in asset.tags for asset in assets)


@pytest.mark.parametrize(("variable", "value"), [(OWNERS, "nobody in particular"), (TAGS, "a b=c")])
def test_what_dagster_does_not_take_is_left_out_and_said(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, value)

    graph = definitions_of(tmp_path).resolve_asset_graph()

    assert {tuple(graph.get(key).owners) for key in graph.get_all_asset_keys()} == {()}
    [record] = [record for record in caplog.records if variable in record.getMessage()]
    assert "left out" in record.getMessage()
