"""Valid descriptions of datasets, with the origin of each value."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_results import Corpusmill
from description_checks import check_standards, croissant_warnings, describe_artifact, spdx_elements

from pipeline_assets.corpus.publishing.description import Description, Fact
from pipeline_assets.corpus.publishing.forms import form_lines, load_disclosures, render_standard
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage

TITLE = "stage_a/filtered mixed/sites"


def form_items(form: str, description: Description) -> dict[str, list[list[str]]]:
    """Return the rows of a form (value, details, origin) by the number of their item."""
    items: dict[str, list[list[str]]] = {}
    for line in form_lines(form, description):
        if line.startswith("## "):
            rows = items.setdefault(line.removeprefix("## ").split()[0], [])
        elif line.startswith("| ") and not line.startswith(("| value", "| ---")):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return items


def test_croissant_has_the_facts_and_their_origins(folder: Path, description: Description) -> None:
    shard, *_ = [file for file in open_artifact(folder).manifest.storage if file.path.startswith("shards/")]

    text = render_standard("croissant", description)

    content = json.loads(text)
    assert croissant_warnings(text) == {"citeAs", "version"}
    assert content["name"] == TITLE
    assert content["description"] == f"{TITLE}, built by corpusmill: 4 documents, 2,050 text bytes"
    assert content["license"] == [
        "https://opensource.org/license/mit",
        "https://creativecommons.org/publicdomain/zero/1.0/",
    ]
    assert (content["url"], content["datePublished"]) == ("https://data.example/sites", "2026-01-02")
    assert [source["name"] for source in content["prov:wasDerivedFrom"]] == ["folder sites"]
    assert [file for file in content["distribution"] if file["@id"] == shard.path] == [
        {
            "@type": "cr:FileObject",
            "@id": shard.path,
            "name": shard.path,
            "contentUrl": shard.path,
            "contentSize": f"{shard.bytes} B",
            "encodingFormat": "application/zstd",
            "sha256": shard.sha256,
        }
    ]
    assert {entry["name"]: entry["description"] for entry in content["dct:provenance"]} == {
        "name": f"{TITLE} (kind, name)",
        "description": f"{content['description']} (kind, name, identity.counts)",
        "identifier": f"{description.manifest.digest} (digest)",
        "url": "https://data.example/sites (answers: url)",
        "version": "not answered (answers: version)",
        "datePublished": "2026-01-02 (answers: date_published)",
        "license": f"CC0-1.0 ({TITLE}: rows)",  # the last of two
        "creator": "Example Lab (answers: creator)",
        "inLanguage": "not answered (answers: languages)",
        "prov:wasDerivedFrom": "folder sites (stage_a/raw mixed/sites: identity.inputs, identity.recipe)",
    }


def test_spdx_has_a_dataset_licences_and_an_annotation_per_property(description: Description) -> None:
    text = render_standard("spdx", description)

    assert spdx_elements(text) == {
        "Annotation": 12,
        "CreationInfo": 1,
        "Hash": 1,
        "Organization": 1,
        "Relationship": 2,
        "SpdxDocument": 1,
        "dataset_DatasetPackage": 1,
        "simplelicensing_LicenseExpression": 2,
    }
    [dataset] = [element for element in json.loads(text)["@graph"] if element["type"] == "dataset_DatasetPackage"]
    assert dataset["releaseTime"] == "2026-01-02T00:00:00Z"
    assert dataset["software_downloadLocation"] == "https://data.example/sites"
    assert "dataset_intendedUse" not in dataset
    assert '"dataset_intendedUse: not answered (answers: purpose)"' in text
    expressions = [value for key, value in json_pairs(json.loads(text)) if key == "simplelicensing_licenseExpression"]
    assert expressions == ["NOASSERTION", "MIT AND CC0-1.0"]


def json_pairs(value: object) -> Iterator[tuple[str, object]]:
    for item in value.items() if isinstance(value, dict) else []:
        yield item
        yield from json_pairs(item[1])
    for entry in value if isinstance(value, list) else []:
        yield from json_pairs(entry)


def test_spdx_needs_a_date_and_does_not_use_the_clock(description: Description) -> None:
    with pytest.raises(UsageError, match="SPDX requires a date, which the manifest lacks"):
        render_standard("spdx", Description(description.manifest, description.files, {}))


def test_in_toto_statement_has_all_files_and_inputs(folder: Path, description: Description) -> None:
    manifest = open_artifact(folder).manifest

    statement = json.loads(render_standard("in-toto", description))

    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert subjects.items() >= {file.path: file.sha256 for file in manifest.storage}.items()
    assert subjects.keys() - {file.path for file in manifest.storage} == {"manifest.json"}
    [entry] = manifest.identity.inputs
    assert statement["predicate"]["buildDefinition"]["resolvedDependencies"] == [
        {"name": entry["name"], "digest": {"corpusmillIdentity": entry["digest"].removeprefix("sha256:")}}
    ]


def test_eu_summary_names_sources_domains_and_the_model_of_synthetic_text(description: Description) -> None:
    items = form_items("eu-summary", description)

    assert [row[0] for row in items["1.3"]][:3] == ["text", "4 documents, 2,050 text bytes", "not answered"]
    assert items["2.1"][0][0] == "folder sites"
    count, largest = items["2.3"][2:4]  # after the questions on crawlers
    assert (count[0], count[1].split()[0:2]) == ("1 of 2 domains", ["registrable", "domains"])
    assert largest == ["example.co.uk", "1,100 bytes of text in 2 documents", f"{TITLE}: rows, meta.url"]
    assert items["2.5"] == [
        ["some-model 1", "", "stage_a/normalized mixed/sites: identity.recipe.generated_by"],
        ["not answered", load_disclosures()["questions"]["synthetic"], "answers: synthetic"],
    ]


def test_ab2013_has_all_twelve_items_without_guesses(description: Description) -> None:
    items = form_items("ab2013", description)

    assert list(items) == [f"({number})" for number in range(1, 13)]
    answered = {number: [row[0] for row in rows if row[0] != "not answered"] for number, rows in items.items()}
    assert answered["(1)"] == ["folder sites", "Example Lab"]
    assert answered["(3)"] == ["4 documents, 2,050 text bytes"]
    assert answered["(9)"] == [
        "4 of 4 rows kept by normalize version 3",
        "4 of 4 rows kept by filter version 3",
    ]
    assert [number for number, values in answered.items() if not values] == ["(2)", "(6)", "(7)", "(8)", "(11)"]


def test_forms_use_every_question_and_only_known_facts(description: Description) -> None:
    forms, questions = load_disclosures()["forms"].values(), load_disclosures()["questions"]
    items = [item for form in forms for item in form["items"]]
    later = {"generated", "periods", "dump_dates", "opt_outs", "masking", "size_range"}  # facts of other datasets

    used = {question for item in items for question in item.get("ask", ())}
    assert questions.keys() - used == {"url", "date_published", "version", "licence"}  # used only by standards
    assert used <= questions.keys()
    assert {name for item in items for name in item.get("facts", ())} <= description.facts.keys() | later | {
        "languages"
    }


def test_missing_input_is_named_and_its_licence_is_not_guessed(folder: Path, root: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder, tmp_path / "stage_a" / "mixed" / "filtered" / "sites")
    manifest = open_artifact(moved).manifest
    [entry] = manifest.identity.inputs

    description = describe_artifact(moved, tmp_path)

    missing = Fact("missing input stage_a/normalized/sites", f"{TITLE}: identity.inputs", entry["digest"])
    assert description.facts["sources"] == [missing]
    assert str(tmp_path) not in "\n".join(form_lines("eu-summary", description))


@pytest.mark.parametrize("form", ["croissant", "spdx", "in-toto", "eu-summary", "ab2013"])
def test_equal_artifacts_get_equal_bytes(corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, form: str) -> None:
    copied = shutil.copytree(demo_root, tmp_path / "copy", ignore=shutil.ignore_patterns("hub*"))

    outputs = []
    for root in (demo_root, copied):
        result = corpusmill("describe", root / "megatron" / "healing_text_v1", "--as", form)
        assert result.returncode == 0, result.stderr
        outputs.append(result.stdout)

    assert outputs[0] == outputs[1]
    assert str(demo_root) not in outputs[0]


def test_dataset_with_members_is_valid_in_each_standard(demo_root: Path) -> None:
    check_standards(describe_artifact(demo_root / "megatron" / "healing_text_v1", demo_root))


def test_domains_are_not_counted_for_rows_without_urls(intact_roots: Path) -> None:
    root = intact_roots / "nemotron"
    folder = next(path for path, sealed in Lineage(root).manifests.items() if sealed.kind == "nemotron/candidate_pools")

    facts = describe_artifact(folder, root).facts

    assert facts["licences"] and not facts["domains"]
