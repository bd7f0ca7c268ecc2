"""What the parts of a lesson are made of: texts, expressions, names, and tables of settings."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, model_validator
from pydantic_core import PydanticCustomError

from lessons.expressions import Expression, Template

Place = tuple[int | str, ...]  # where in the front matter something stands
Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=60)]
Expr = Annotated[InstanceOf[Expression], BeforeValidator(Expression.parse)]
Text = Annotated[InstanceOf[Template], BeforeValidator(Template.parse)]
Setting = bool | int | float | str | InstanceOf[Expression]


def _computed(values: object) -> object:
    """In a table of settings a string that begins with = is an expression."""
    if isinstance(values, dict):
        return {key: _computed(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_computed(value) for value in values]
    return Expression.parse(values) if isinstance(values, str) and values[:1] == "=" else values


# A setting may be a table itself, as `speculative_config` is, or a list.
Settings = Annotated[
    dict[str, Setting | dict[str, Setting] | list[Setting]], BeforeValidator(_computed)
]


def unknown(key: object, known: list[str], what: str = "field") -> PydanticCustomError:
    """An error at a key that means nothing, with what was probably meant."""
    near = get_close_matches(str(key), known, n=1)
    fix = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
    return PydanticCustomError(
        "unknown_key", "there is no {what} `{key}`; {fix}", {"what": what, "key": key, "fix": fix}
    )


class Part(BaseModel):
    """Any part of a lesson: fixed once it is read, and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, values: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                raise unknown(key, known)
        return values
