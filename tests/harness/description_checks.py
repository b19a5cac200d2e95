"""Validation of descriptions by the libraries of the standards."""

import io
import json
from pathlib import Path

import mlcroissant
from spdx_python_model import v3_0_1 as spdx_model

from pipeline_assets.build.rows.row_facts import row_facts
from pipeline_assets.corpus.publishing.description import Description, chain_facts, stored_files
from pipeline_assets.corpus.publishing.forms import render_standard
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.lineage import collect_chain
from pipeline_assets.systems.registry import SYSTEMS


def describe_artifact(folder: Path, root: Path, **answers: str) -> Description:
    """Describe an artifact, with facts that its rows state."""
    chain = collect_chain(folder, root)
    stated = {name: list(facts) for name, facts in chain_facts(chain).items()}
    facts = row_facts(chain, SYSTEMS.kinds, 0.1) | {name: facts for name, facts in stated.items() if facts}
    facts = {name: list(found) for name, found in facts.items()}
    return Description(open_artifact(folder).manifest, [*stored_files(folder)], facts, answers)


def croissant_warnings(text: str) -> set[str]:
    """Return the missing properties that mlcroissant recommends; fail on an error."""
    issues = mlcroissant.Dataset(jsonld=json.loads(text)).metadata.ctx.issues
    assert not issues.errors, issues.errors
    return {warning.split('"')[1].rpartition("/")[2] for warning in issues.warnings}


def spdx_elements(text: str) -> dict[str, int]:
    """Count the elements of an SPDX document by type; fail if it is invalid."""
    objects = spdx_model.SHACLObjectSet()
    spdx_model.JSONLDDeserializer().deserialize_data(json.loads(text), objects)
    assert objects.link() == set()  # no reference to a missing element
    spdx_model.JSONLDSerializer().write(objects, io.BytesIO())  # checks that required properties are there
    types = [element.get_compact_type() for element in objects.foreach()]
    return {name: types.count(name) for name in sorted({*types})}


def check_standards(description: Description) -> None:
    """Check that the descriptions of a dataset are valid in each standard."""
    assert croissant_warnings(render_standard("croissant", description)) <= {"citeAs", "version", "datePublished"}
    assert spdx_elements(render_standard("spdx", description))["dataset_DatasetPackage"] == 1
    statement = json.loads(render_standard("in-toto", description))
    assert {subject["name"] for subject in statement["subject"]} == {file.path for file in description.files}
    assert len(statement["predicate"]["buildDefinition"]["resolvedDependencies"]) == len(
        description.manifest.identity.inputs
    )
