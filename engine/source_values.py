"""Which numbers of an event stand for which names in the function that made it.

Part of no box; `engine/source_sites.py` asks. A name gets a value only where it must have had it as
the marked call ran:

- an argument of the call is the fact (or the number of the reason) that it became;
- a local variable that is such an argument has that value wherever it is not bound again between
  there and the call, and is the same variable in the same round of the same loops;
- `self.config.NAME` is a setting, and so is `self.X` where the class's `__init__` took it over from
  its config and nothing binds it again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Settings = dict[str, str]  # attribute of `self` -> the setting it is; "" is the config itself
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
COMPOUND = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp)
NAMING = (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
SCOPES = (*COMPREHENSIONS, ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Value(NamedTuple):
    """Behind this place of the file stands a value of the event."""

    line: int  # counts from 1
    column: int  # characters before the place
    whole: bool  # of a sum or a choice that ends here, not of the name that stands here
    of: str  # "facts", "reason" or "config"
    name: str  # of the fact, of the reason's number or of the setting


def values_in(
    lines: list[str],
    function: Function,
    call: ast.Call,
    fields: tuple[str, ...],
    of: str,
    settings: Settings,
) -> tuple[Value, ...]:
    """All places in `function` with a value of what `call` made; `fields` are its parameters."""
    found: set[Value] = set()

    def end_of(node: ast.expr | ast.arg) -> tuple[int, int]:
        line, column = node.end_lineno or 0, node.end_col_offset or 0
        if isinstance(node, ast.arg):  # its annotation comes behind its name
            line, column = node.lineno, node.col_offset + len(node.arg)
        return line, len(lines[line - 1].encode()[:column].decode())

    for name, argument in arguments(call, fields):
        if not isinstance(argument, ast.Constant):
            found.add(Value(*end_of(argument), isinstance(argument, COMPOUND), of, name))
        if isinstance(argument, ast.Name):
            for place in same_value(function, call, argument.id):
                found.add(Value(*end_of(place), False, of, name))
    told = {value[:2] for value in found if not value.whole}
    for node in _outside_texts(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            setting = setting_of(node, settings)
            if setting and end_of(node) not in told:
                found.add(Value(*end_of(node), False, "config", setting))
    return tuple(sorted(found))


def _outside_texts(function: Function) -> Iterator[ast.AST]:
    """All of a function but what stands inside of f-strings, whose places Python 3.11 mistakes."""
    nodes: list[ast.AST] = [function]
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):
            nodes.extend(ast.iter_child_nodes(node))


def arguments(call: ast.Call, fields: tuple[str, ...]) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call by the parameters they are for; none behind a `*`."""
    for name, argument in zip(fields, call.args, strict=False):
        if isinstance(argument, ast.Starred):
            break
        yield name, argument
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value


def same_value(function: Function, call: ast.Call, name: str) -> list[ast.expr | ast.arg]:
    """Where else in the function this local variable had the value that the call got."""
    if any(_binds_otherwise(node, name) for node in ast.walk(function) if node is not function):
        return []
    bindings = list(_bindings(function, name))
    if not bindings:
        return []  # a global
    here = _place(call)
    loops = [
        loop
        for loop in ast.walk(function)
        if isinstance(loop, Loop)
        and _is_inside(call, loop)
        and any(_is_inside(binding, loop) for binding in bindings)
    ]
    places: list[ast.expr | ast.arg] = [
        node
        for node in _outside_texts(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    latest = max((b for b in bindings if _place(b) < here), key=_place, default=None)
    if latest is not None and _takes_effect_there(function, latest):
        places.append(latest)
    return [
        place
        for place in places
        if all(_is_inside(place, loop) for loop in loops)
        and not any(_is_between(binding, place, call) for binding in bindings)
    ]


def setting_of(node: ast.Attribute, settings: Settings) -> str:
    """The setting that an attribute is; "" where it is none for certain."""
    value = node.value
    if isinstance(value, ast.Name) and value.id == "self":
        return settings.get(node.attr, "")
    if (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id == "self"
        and settings.get(value.attr) == ""
    ):
        return node.attr
    return ""


def settings_of(owner: ast.ClassDef) -> Settings:
    """What `__init__` took over from its `config: EngineConfig`, where nothing binds it again."""
    taken: Settings = {}
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            if not any(_is_config(argument) for argument in method.args.args):
                return {}
            for node in method.body:
                if isinstance(node, ast.Assign) and len(node.targets) == 1:
                    attribute, setting = _own(node.targets[0]), _from_config(node.value)
                    if attribute and setting is not None:
                        taken[attribute] = setting
    stores = [
        attribute
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        if (attribute := _own(node))
    ]
    return {name: setting for name, setting in taken.items() if stores.count(name) == 1}


def _is_config(argument: ast.arg) -> bool:
    return argument.arg == "config" and getattr(argument.annotation, "id", "") == "EngineConfig"


def _own(node: ast.expr) -> str:
    """`X` of `self.X`."""
    own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def _from_config(node: ast.expr) -> str | None:
    """ "" for `config`, `X` for `config.X`, None for all else."""
    if isinstance(node, ast.Name) and node.id == "config":
        return ""
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "config":
        return node.attr
    return None


def _bindings(function: Function, name: str) -> Iterator[ast.expr | ast.arg]:
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.arg == name:
            yield argument
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            yield node


def _takes_effect_there(function: Function, target: ast.expr | ast.arg) -> bool:
    """Whether a binding is a parameter, a loop's, or plain `=`: no `+=`, whose value is a part."""
    if isinstance(target, ast.arg):
        return True
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.For):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(target is part for each in targets for part in ast.walk(each)):
                return True
    return False


def _binds_otherwise(node: ast.AST, name: str) -> bool:
    """Whether a name means something of its own inside, or is bound here in another way."""
    if isinstance(node, SCOPES):
        inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.arg)]
        return any(
            inner.arg == name
            if isinstance(inner, ast.arg)
            else inner.id == name and not isinstance(inner.ctx, ast.Load)
            for inner in inside
        )
    if isinstance(node, ast.Global | ast.Nonlocal):
        return name in node.names
    if isinstance(node, ast.alias):
        return name in (node.name, node.asname)
    return isinstance(node, NAMING) and node.name == name


Node = ast.expr | ast.arg | ast.stmt


def _place(node: Node) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _is_inside(node: Node, loop: Loop) -> bool:
    end = loop.end_lineno or 0, loop.end_col_offset or 0
    return _place(loop) <= _place(node) < end


def _is_between(binding: Node, place: Node, call: Node) -> bool:
    """Whether the name is bound anew between a place and the call, whichever comes first.

    A binding takes effect behind its statement, of which the value stands to its right: a place
    on its own line counts as before it.
    """
    first, last = sorted((_place(place), _place(call)))
    if binding is place:
        return False
    return first[0] <= binding.lineno <= last[0] and first < last
