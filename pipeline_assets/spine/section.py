"""Sections of recipes: frozen models that refuse unknown keys."""

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Self

import pydantic

from pipeline_assets.spine.errors import UsageError, combine_errors
from pipeline_assets.spine.recipe_errors import format_validation_errors

_MAX_INTEGER = 2**63 - 1  # of manifests and arrays


class RecipeSection(pydantic.BaseModel):
    """Frozen section of a recipe.

    Unknown keys are errors. Fractions are decimal strings, which a recipe may write as numbers.

    Attributes:
        OMITTABLE_KEYS: Keys that the first version of the section lacked. While such a key has its default value, the
            key is not written, so that digests of earlier recipes do not change.
    """

    OMITTABLE_KEYS: ClassVar[frozenset[str]] = frozenset()
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    @pydantic.model_serializer(mode="wrap")
    def _omit_default_keys(self, serialize: pydantic.SerializerFunctionWrapHandler) -> dict[str, object]:
        content: dict[str, object] = serialize(self)
        omitted = {name for name in self.OMITTABLE_KEYS if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in content.items() if name not in omitted}

    @pydantic.model_validator(mode="after")
    def _check_bounds(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, int) and not -_MAX_INTEGER <= value <= _MAX_INTEGER:
                raise ValueError(f"`{name}` must be from -{_MAX_INTEGER} to {_MAX_INTEGER}, got {value}")
            maximum = f"max_{name.removeprefix('min_')}"
            high = getattr(self, maximum, None) if name.startswith("min_") else None
            if value is not None and high is not None and Fraction(value) > Fraction(high):
                raise ValueError(f"{name} must be <= {maximum} {high}, got {value}")
        return self

    def content(self) -> dict[str, object]:
        """Return the section as JSON values, without `OMITTABLE_KEYS` at their defaults."""
        return self.model_dump(mode="json")

    @classmethod
    def from_mapping(cls, content: Mapping[str, object], where: object) -> Self:
        """Build the section from a mapping; if invalid, raise UsageError about `where`."""
        try:
            return cls.model_validate(dict(content))
        except pydantic.ValidationError as error:
            raise combine_errors(format_validation_errors(error, cls, lambda location: where)) from None

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> Self:
        """Build the section from its content in a manifest; UsageError if it is invalid."""
        try:
            return cls.from_mapping(content, "the recipe in the manifest")
        except UsageError as refused:
            raise UsageError(refused.what, refused.where, "use the version of the program that wrote it") from None
