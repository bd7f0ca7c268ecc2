"""A lesson's texts as Markdown: values filled in, and links that light things on the map.

`[[scheduler]]` names a box, `[[request r0]]`, `[[block 3]]` and `[[moment 57]]` what they say; a
bar gives other words: `[[scheduler|it]]`. Each becomes a link to `#gb-...`, which the page catches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from lessons.expressions import Scope, Template
from lessons.probes import Value

LINK = re.compile(r"\[\[([^\]|]+)(?:\|([^\]]+))?\]\]")
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:])")

Mark = Callable[[str], str]


def render(template: Template, scope: Scope, labels: Mapping[str, str], live: Mark = str) -> str:
    """The text with its values; `live` dresses those that were read from the log.

    Raises ExpressionError or ProbeError where a value cannot be had.
    """
    return LINK.sub(lambda found: _link(found, scope, labels), _filled(template, scope, live))


def told(template: Template, scope: Scope, labels: Mapping[str, str]) -> str:
    """The text as it would be read out: values and names in it, no links and no Markdown.

    Raises ExpressionError or ProbeError where a value cannot be had.
    """

    def named(found: re.Match[str]) -> str:
        name = found[1].strip()
        return found[2] or labels.get(name, name)

    return re.sub(r"[*`]", "", LINK.sub(named, _filled(template, scope, str, str)))


def _filled(template: Template, scope: Scope, live: Mark, escaped: Mark | None = None) -> str:
    pieces = []
    for part in template.parts:
        if isinstance(part, str):
            pieces.append(part)
            continue
        shown = words(part.value(scope))
        is_dressed = part.live and not _inside_link(pieces)
        pieces.append(live((escaped or plain)(shown)) if is_dressed else shown)
    return "".join(pieces)


def _inside_link(pieces: list[str]) -> bool:
    text = "".join(pieces)
    return text.rfind("[[") > text.rfind("]]")


def _link(found: re.Match[str], scope: Scope, labels: Mapping[str, str]) -> str:
    kind, _, name = found[1].strip().partition(" ")
    if not name:
        return f"[{plain(found[2] or labels.get(kind, kind))}](#gb-box-{kind})"
    target = name
    if kind == "moment" and scope.moment is not None:
        target = f"{scope.moment.trace_id}-{name}"
    return f"[{plain(found[2] or f'{kind} {name}')}](#gb-{kind}-{target})"


def boxes(template: Template) -> list[str]:
    """The boxes that a text names."""
    return [
        found[1].strip() for found in LINK.finditer(template.text) if " " not in found[1].strip()
    ]


def texts(part: Any) -> Iterator[Template]:
    """All texts of a part of a lesson."""
    match part:
        case Template():
            yield part
        case BaseModel():
            for name in type(part).model_fields:
                yield from texts(getattr(part, name))
        case list():
            for item in part:
                yield from texts(item)


def words(value: Value) -> str:
    """A value as a text has it: `1,234`, `0.25`, `1, 2, 3`."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case tuple():
            return ", ".join(words(item) for item in value)
    return str(value)


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
