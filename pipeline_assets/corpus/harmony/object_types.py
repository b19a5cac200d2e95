"""Tool schemas whose objects say that they are objects.

openai-harmony renders a schema without `type` as `any`, whatever its properties: the arguments are lost. Many tools of
real datasets are written so.
"""

from pipeline_assets.corpus.harmony.json_text import MAX_DEPTH, JsonValue
from pipeline_assets.corpus.harmony.refusal import Reason, Refusal


def with_object_types(schema: JsonValue, depth: int = 0) -> JsonValue:
    """The schema with `"type": "object"` wherever there are `properties` and no type (or null), nested ones too.

    It goes where the rendering goes: into properties, items and the variants of `oneOf`. The order of keys stays; the
    type that is added comes first. What has a type is unchanged, also where the rendering loses its properties: under
    a list of types (`["object", "null"]`), or beside a `oneOf`.

    Raises:
        Refusal: schemas nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise Refusal(Reason.SCHEMA_TOO_DEEP, f"a tool's schema is nested more than {MAX_DEPTH} deep")
    if not isinstance(schema, dict):
        return schema
    completed = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        completed["properties"] = {name: with_object_types(one, depth + 1) for name, one in properties.items()}
        if schema.get("type") is None:
            completed.pop("type", None)
            completed = {"type": "object", **completed}
    if "items" in schema:
        completed["items"] = with_object_types(schema["items"], depth + 1)
    variants = schema.get("oneOf")
    if isinstance(variants, list):
        completed["oneOf"] = [with_object_types(variant, depth + 1) for variant in variants]
    return completed
