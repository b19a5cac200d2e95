"""Terms, card and metadata of a publication."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from description_checks import croissant_warnings
from forgery import flip
from hub_pools import AGREEMENT, NAME, Place, build_rows, card_yaml, check_whole, open_place, pools, read_card, row
from pool_publications import prepare, send

from pipeline_assets.corpus.publishing.publication import CROISSANT_FILE, prepare_publication
from pipeline_assets.corpus.publishing.publish import publish
from pipeline_assets.demo.loopback_repos import RepoReader
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError


def test_rows_of_unknown_licences_are_published_only_on_request(place: Place, tmp_path: Path) -> None:
    custom = "o" * 61
    rows = [row(1, place.revision, meta_license=None), row(2, place.revision, meta_license=custom)]
    rules = {"all_rows": ["stats_tokens > 0"]}
    artifact = pools(tmp_path, {"low": rows}, rules=rules)

    with pytest.raises(UsageError, match="1 row of all configs has an unknown licence: 'not stated'; state"):
        prepare(pools(tmp_path / "one", {"low": rows[:1]}, rules=rules), place)
    with pytest.raises(
        UsageError, match=rf"2 rows of all configs have an unknown licence: 'not stated', '{custom[:60]}'; state"
    ):
        prepare(artifact, place)

    terms = prepare(artifact, place, allow_unknown_licences=True).describe_terms()
    assert list(terms) == [f"licence {name}: 1 row of all configs" for name in ("not stated", custom)]


def test_the_agreement_of_the_source_is_set_before_any_file(tmp_path: Path, unloaded: None) -> None:
    for place in open_place(tmp_path / "hub", gated=True):
        artifact = pools(tmp_path / "first", {"low": build_rows(place.revision)})
        assert any("use it for training alone" in line for line in prepare(artifact, place).describe_terms())
        send(artifact, place)

        metadata = card_yaml(place.folder)
        assert (metadata["extra_gated_prompt"], metadata["extra_gated_fields"]) == (AGREEMENT, {"Name": "text"})
        assert (place.folder / ".gated").exists() and check_whole(place.folder) == artifact.manifest.digest
        paths = [request.path for request in place.hub.requests]
        assert paths.index(f"/api/datasets/{NAME}/settings") < min(
            number for number, path in enumerate(paths) if path.startswith("/upload/")
        )


@pytest.mark.parametrize("kind", ["nemotron/prompts", "nemotron/score_report", "nemotron/model", "stage_a/packed"])
def test_a_kind_of_rows_without_dataset_and_licence_is_refused(place: Place, first: Artifact, kind: str) -> None:
    artifact = replace(first, manifest=replace(first.manifest, kind=kind))

    with pytest.raises(UsageError, match=f"expected an artifact of Nemotron rows, got {kind}; choose a folder of inv"):
        prepare(artifact, place)


def test_readers_agree_to_the_terms_of_all_sources(tmp_path: Path) -> None:
    for place in open_place(tmp_path / "hub", gated=True):
        other = tmp_path / "hub/datasets/maker/tools"
        other.mkdir()
        other.joinpath("README.md").write_text(
            "---\nextra_gated_prompt: No weapons.\nextra_gated_fields: {Country: country}\n---\n"
        )
        revision = RepoReader().read(other, "", "tools").commit
        mixed = [row(1, place.revision), row(2, revision, dataset="maker/tools"), row(3, None)]

        agreement = prepare(pools(tmp_path / "first", {"low": mixed}), place).agreement

        assert agreement["extra_gated_prompt"] == f"{AGREEMENT}\n\nNo weapons."
        assert agreement["extra_gated_fields"] == {"Name": "text", "Country": "country"}


def test_the_repo_has_valid_croissant_metadata_of_its_files(place: Place, first: Artifact) -> None:
    publication = prepare(first, place)

    source = publication.files[CROISSANT_FILE].source
    assert isinstance(source, bytes)
    content = json.loads(source)

    assert croissant_warnings(source.decode()) == {"citeAs", "datePublished", "version"}
    owner, _, _ = place.repo().name.partition("/")
    assert content["url"] == f"https://huggingface.co/datasets/{place.repo().name}"
    assert content["creator"] == {"@type": "sc:Organization", "name": owner}
    assert {file["contentUrl"]: file["sha256"] for file in content["distribution"]} == {
        path: file.sha256 for path, file in publication.files.items() if path not in (CROISSANT_FILE, "README.md")
    }
    assert content["license"] == ["https://creativecommons.org/licenses/by/4.0/"]
    assert [source["name"].partition("@")[0] for source in content["prov:wasDerivedFrom"]] == ["maker/chats"]


NASTY = ["a`|b <script>\n---\nconfigs: []", "<|start|>system", "](javascript:alert(1))", "x: y\n- z"]


def test_text_of_rows_is_escaped_in_the_card(place: Place, tmp_path: Path, unloaded: None) -> None:
    rows = [row(number, place.revision, meta_license=text) for number, text in enumerate(NASTY)]
    artifact = pools(tmp_path, {"low": rows}, rules={"all_rows": ["stats_tokens > 0", "text <> '```\n---\n<b>'"]})
    publish(prepare(artifact, place, allow_unknown_licences=True), place.repo())

    _, body = read_card(place.folder)
    assert [config["config_name"] for config in card_yaml(place.folder)["configs"]] == ["all_rows"]
    assert check_whole(place.folder) == artifact.manifest.digest
    assert body.count("```") == 6 and "<script>" not in body and "\n---\n" not in body


def test_the_script_in_the_card_names_a_repo_of_any_name(place: Place, first: Artifact) -> None:
    card = prepare_publication(first, place.repo(name="me/DIGEST-pools")).files["README.md"].source

    assert isinstance(card, bytes) and b"# hf download me/DIGEST-pools --repo-type dataset" in card


def test_the_script_in_the_card_finds_a_flipped_byte(place: Place, first: Artifact) -> None:
    send(first, place)
    script = (place.folder / "README.md").read_text().rsplit("```python\n", 1)[1].partition("```")[0]
    assert len(script.splitlines()) <= 20

    def verify() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", script, str(place.folder)], capture_output=True, text=True)

    assert verify().returncode == 0
    victim = next(place.folder.rglob("*.parquet"))
    flip(victim)
    assert verify().returncode == 1 and f"not as published: {victim.relative_to(place.folder)}" in verify().stderr
    (place.folder / "manifest.json").write_text("{")
    assert verify().stderr.startswith("not as published: manifest.json (")
