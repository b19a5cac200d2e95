"""Facts of a dataset that manifests and addresses of its rows state."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline_assets.build.rows.row_facts import url_domain
from pipeline_assets.corpus.publishing.description import Fact, chain_facts
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.lineage import Chain
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.systems.healing import SnapshotRecipe


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://www.example.co.uk/a?b", "example.co.uk"),
        ("HTTP://User@A.Example.COM:8080", "example.com"),
        ("sub.example.org/page", "example.org"),
        ("https://me.github.io", "me.github.io"),  # subdomains belong to different people
        ("https://192.0.2.1/a", "192.0.2.1"),
        ("https://localhost/a", "localhost"),
        ("https://[::1", None),
        ("", None),
    ],
)
def test_domain_of_a_url_is_the_registrable_one(url: str, domain: str | None) -> None:
    assert url_domain(url) == domain


def test_recipe_content_has_a_model_only_if_it_is_set() -> None:
    section = {
        "name": "set",
        "dataset": "a/b",
        "revision": "ab" * 20,
        "files": ["*"],
        "source": "set",
        "amount": {"files": 1},
    }

    assert "generated_by" not in SnapshotRecipe.model_validate(section).content()
    assert SnapshotRecipe.model_validate(section | {"generated_by": "m"}).content()["generated_by"] == "m"


@pytest.mark.parametrize(
    ("tokens", "size_range"),
    [
        (10**9 - 1, "less than 1 billion tokens"),
        (10**9, "1 billion to 10 trillion tokens"),
        (10**13 - 1, "1 billion to 10 trillion tokens"),
        (10**13, "more than 10 trillion tokens"),
    ],
)
def test_token_count_is_in_a_range_of_the_template(tokens: int, size_range: str) -> None:
    assert [fact.value for fact in stated_facts(counts={"tokens": tokens})["size_range"]] == [size_range]


def test_tokens_are_not_counted_if_rows_do_not_state_them() -> None:
    facts = stated_facts(counts={"documents": 14, "tokens": 0})

    assert [fact.value for fact in facts["size"]] == ["14 documents"]
    assert "size_range" not in facts


def test_settings_and_decisions_are_facts_with_their_paths() -> None:
    blocked = {"domains": {"opted_out": {"path": "lists/opted_out.txt", "sha256": "ab" * 32}}, "urls": {}}
    recipe = {"filters": {"language": {"keep": ["de", "en"]}, "blocklist": blocked, "masking": {"emails": True}}}

    facts = stated_facts(
        recipe, {"dumps": {"CC-MAIN-2013-20": {"rows": 1}, "CC-MAIN-2023-50": {"rows": 2}, "10BT": {"rows": 3}}}
    )

    stated = {
        name: [(fact.value, fact.origin) for fact in facts[name]] for name in ("languages", "opt_outs", "periods")
    }
    lists = '{"domains": {"opted_out": {"path": "lists/opted_out.txt", "sha256": "' + "ab" * 32 + '"}}}'
    assert stated == {
        "languages": [(code, "any/kind a: identity.recipe.filters.language.keep") for code in ("de", "en")],
        "opt_outs": [(lists, "any/kind a: identity.recipe.filters.blocklist")],
        "periods": [(name, "any/kind a: identity.decisions.dumps") for name in ("CC-MAIN-2013-20", "CC-MAIN-2023-50")],
    }


def stated_facts(
    recipe: Mapping[str, object] = {},
    decisions: Mapping[str, object] = {},
    counts: Mapping[str, object] = {},
) -> dict[str, list[Fact]]:
    """Return the facts that parts of an identity state."""
    identity = Identity(StageVersion("stage", 1), recipe, [], None, decisions, counts, [])
    facts = chain_facts(Chain(None, [Artifact(Path(), Manifest("any/kind", "a", identity, [], {}))]))
    return {name: list(values) for name, values in facts.items()}


def test_artifact_of_one_source_has_no_steps_of_other_sources() -> None:
    chain = list[Artifact]()

    def add(kind: str, name: str, recipe: Mapping[str, object], *inputs: Artifact) -> Artifact:
        upstream = [{"name": item.manifest.kind, "digest": item.manifest.digest} for item in inputs]
        counts = {"ledger": {"in": 1, "out": 1, "dropped": {}, "rejected": {}}}
        identity = Identity(StageVersion(kind, 1), recipe, upstream, None, {}, counts, [])
        chain.insert(0, Artifact(Path(), Manifest(kind, name, identity, [], {})))
        return chain[0]

    raw = [add("any/raw", f"mix/{name}", {"source": name, "dataset": name}) for name in ("a", "b")]
    filtered = [add("any/filtered", source.manifest.name, {}, source) for source in raw]
    tokenizer = add("any/tokenizer", "mix", {}, filtered[1])
    add("any/shards", "mix/a", {"source": "a"}, add("any/deduplicated", "mix", {}, *filtered), tokenizer)

    facts = chain_facts(Chain(None, chain))

    assert [fact.value for fact in facts["sources"]] == ["folder a"]
    names = ["any/raw mix/a", "any/filtered mix/a", "any/deduplicated mix", "any/shards mix/a"]
    assert [fact.origin for fact in facts["processing"]] == [f"{name}: identity.counts.ledger" for name in names]
    equal_counts = chain_facts(Chain(None, chain[1:]))["processing"]
    names = ["any/raw mix/b", "any/raw mix/a", "any/filtered mix/b", "any/filtered mix/a", "any/deduplicated mix"]
    assert [fact.origin for fact in equal_counts] == [f"{name}: identity.counts.ledger" for name in names]
