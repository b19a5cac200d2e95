"""Recipe sections that are refused if they have no effect."""

from collections.abc import Mapping
from typing import ClassVar

import pydantic

from pipeline_assets.spine.section import RecipeSection


class EffectSection(RecipeSection):
    """Section that is refused if no key has an effect: all are unset, false or empty.

    Attributes:
        MODIFIER_KEYS: Keys that only have an effect together with other keys.
    """

    MODIFIER_KEYS: ClassVar[frozenset[str]] = frozenset()

    @pydantic.model_validator(mode="before")
    @classmethod
    def _require_effect(cls, content: object) -> object:
        if isinstance(content, Mapping) and content.keys() <= cls.model_fields.keys():
            keys = [name for name in cls.model_fields if name not in cls.MODIFIER_KEYS]
            values = [content.get(key) for key in keys]
            if not any(value or (value == 0 and value is not False) for value in values):  # 0 may be a limit
                raise ValueError(f"has no effect; set a key such as `{keys[0]}`, or remove the section")
        return content
