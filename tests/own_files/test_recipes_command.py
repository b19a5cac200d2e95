"""The list of recipes and the JSON schemas that `recipes` prints."""

import json
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill

PROJECT = Path(__file__).parents[2]


def test_recipes_lists_existing_recipes_with_their_state(built: Path, corpusmill: Corpusmill) -> None:
    (built / "recipes" / "broken.yaml").write_text("system: stage_a\n")

    listed = corpusmill("recipes", "--data", built)

    lines = {line.split()[0]: line for line in listed.stdout.splitlines()}
    (built / "recipes" / "broken.yaml").unlink()
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "9 current" in lines["mine"]
    assert "cannot be read" in lines["broken"]
    assert {"healing_text_v1", "stage_a_v1", "nemotron_v1"} <= lines.keys()


@pytest.mark.parametrize("system", ["healing", "stage_a", "nemotron", "stage2", "parallel_text"])
def test_the_json_schema_accepts_shipped_recipes_and_refuses_unknown_keys(system: str, corpusmill: Corpusmill) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    printed = corpusmill("recipes", "--schema", system)
    validator = jsonschema.Draft202012Validator(json.loads(printed.stdout))
    validator.check_schema(validator.schema)
    shipped = [yaml.safe_load(path.read_text()) for path in (PROJECT / "manifests" / "recipes").glob("*.yaml")]
    recipes = [recipe for recipe in shipped if recipe["system"] == system]

    assert recipes
    for recipe in recipes:
        validator.validate(recipe)
        assert not validator.is_valid(recipe | {"sead": 1})
