"""Expressions: arithmetic over a variant's values and probes, and texts with expressions in them.

    ceil(prompt_tokens('r0') / block_size)
    The table has {{blocks('r0')}} blocks.

The grammar is a part of Python's, read by `ast` and evaluated here: numbers, strings, names,
+ - * / // %, comparisons, and/or/not, a choice (`a if b else c`), an index, and calls of probes and
of the functions below. Nothing else is possible, so a lesson cannot run a program.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.config import ConfigError
from engine.sizing import Deployment, figures, size
from lessons.probes import PROBES, Moment, Value, arguments_of, entry


def on_card(figure: str, card: str, model: str, *rest: Any) -> Any:
    """A figure of a published model on a card, which runs nowhere: `engine/sizing.py`.

    `rest` are further options, each by its name and its value.
    """
    if len(rest) % 2:
        raise TypeError(f"the option {rest[-1]!r:.40} has no value")
    options = {"card": card, "model": model, **dict(zip(rest[::2], rest[1::2], strict=True))}
    return entry(figures(size(Deployment.parse(options))), figure, "figure of a card")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "on_card": on_card,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "min": min,
    "max": max,
    "abs": abs,
    "len": len,
    "sum": sum,
}
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class ExpressionError(ValueError):
    """An expression that is none, or that has no value here; the message says why."""


@dataclass(frozen=True)
class Scope:
    """What an expression can see: a variant's values, and the log at a moment, if there is one."""

    values: Mapping[str, Value] = field(default_factory=dict)
    moment: Moment | None = None

    def having(self, **more: Value) -> Scope:
        """The same with more values."""
        return Scope({**self.values, **more}, self.moment)


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: object) -> Expression:
        """Read an expression, or a number; raise ExpressionError where it is none."""
        if isinstance(text, Expression):
            return text
        if not isinstance(text, str | int | float):
            raise ExpressionError(f"an expression or a number is expected, not {text!r:.40}")
        source = str(text).strip().removeprefix("=").strip()
        try:
            tree = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise ExpressionError(
                f"`{source:.60}` is no expression; write for example ceil(prompt / block_size)"
            ) from None
        for node in ast.walk(tree):
            _check(node)
        return cls(source, tree)

    @property
    def names(self) -> set[str]:
        """The values that it asks for."""
        called = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        return {
            node.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and id(node) not in called
        }

    @property
    def live(self) -> bool:
        """Whether it reads the log."""
        return any(_called(node) in PROBES for node in ast.walk(self.tree))

    @property
    def derived(self) -> bool:
        """Whether the engine's own arithmetic of memory works it out."""
        return any(_called(node) == "on_card" for node in ast.walk(self.tree))

    def value(self, scope: Scope) -> Value:
        """Its value; raises ExpressionError or ProbeError where it has none."""
        try:
            found: Value = _evaluate(self.tree, scope)
        except (TypeError, ZeroDivisionError, IndexError, OverflowError, ConfigError) as error:
            raise ExpressionError(f"`{self.text}` has no value here ({error})") from None
        return found

    def whole(self, scope: Scope) -> int:
        """Its value as a whole number."""
        found = self.value(scope)
        if isinstance(found, bool) or not isinstance(found, int):
            raise ExpressionError(f"`{self.text}` is {found!r:.40}, and must be a whole number")
        return found


@dataclass(frozen=True)
class Template:
    """A text of Markdown with expressions in double braces."""

    text: str
    parts: tuple[str | Expression, ...]

    @classmethod
    def parse(cls, text: object) -> Template:
        """Read a text; raise ExpressionError where what stands in braces is no expression."""
        if isinstance(text, Template):
            return text
        if not isinstance(text, str) or not text.strip():
            raise ExpressionError("a text is expected")
        pieces = _HOLE.split(text)
        stray = next((piece for piece in pieces[::2] if "{{" in piece or "}}" in piece), None)
        if stray is not None:
            raise ExpressionError("double braces are not closed; write {{expression}}")
        parts = [Expression.parse(p) if n % 2 else p for n, p in enumerate(pieces)]
        return cls(text, tuple(part for part in parts if part != ""))

    @property
    def expressions(self) -> Iterator[Expression]:
        """Those that stand in it."""
        return (part for part in self.parts if isinstance(part, Expression))


def _called(node: ast.AST) -> str:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return node.func.id if is_call else ""  # type: ignore[attr-defined]


def _check(node: ast.AST) -> None:
    """Let only the grammar through, and only calls that can be answered."""
    match node:
        case ast.Constant(value=int() | float() | str() | bool()):
            return
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            _check_call(name, len(arguments))
        case (
            ast.Name()
            | ast.BinOp()
            | ast.UnaryOp()
            | ast.BoolOp()
            | ast.Compare()
            | ast.IfExp()
            | ast.Subscript()
            | ast.Load()
            | ast.And()
            | ast.Or()
        ):
            return
        case ast.operator() | ast.unaryop() | ast.cmpop() if type(node) in _OPERATORS:
            return
        case _:
            raise ExpressionError(
                f"`{_shown(node)}` cannot stand in an expression; numbers, strings, names, "
                "+ - * / // %, comparisons, and calls of probes can"
            )


def _shown(node: ast.AST) -> str:
    return ast.unparse(node)[:40] if isinstance(node, ast.expr) else type(node).__name__


def _check_call(name: str, given: int) -> None:
    if name in FUNCTIONS:
        return
    if name not in PROBES:
        raise ExpressionError(
            f"there is no probe `{name}`; `python -m lessons probes` lists those that there are"
        )
    signature = arguments_of(name)
    try:
        signature.bind(*range(given))
    except TypeError:
        raise ExpressionError(f"call it as {name}{_as_call(name)}, not with {given}") from None


def _as_call(name: str) -> str:
    parameters = arguments_of(name).parameters.values()
    words = [p.name if p.default is p.empty else f"[{p.name}]" for p in parameters]
    return f"({', '.join(words)})"


def _evaluate(node: ast.expr, scope: Scope) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in scope.values:
                raise ExpressionError(f"there is no value `{name}` here")
            return scope.values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _evaluate(left, scope), _evaluate(right, scope))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand, scope))
        case ast.BoolOp(op=op, values=values):
            every = isinstance(op, ast.And)
            found = (bool(_evaluate(value, scope)) for value in values)
            return all(found) if every else any(found)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            terms = [_evaluate(term, scope) for term in (left, *comparators)]
            pairs = zip(ops, terms, terms[1:], strict=False)
            return all(_OPERATORS[type(op)](a, b) for op, a, b in pairs)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if _evaluate(test, scope) else orelse, scope)
        case ast.Subscript(value=value, slice=index):
            return _evaluate(value, scope)[_evaluate(index, scope)]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, [_evaluate(argument, scope) for argument in arguments], scope)
    raise ExpressionError(f"`{_shown(node)}` cannot be evaluated")


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError(f"{left!r:.30} and {right!r:.30} are no numbers")
    return _OPERATORS[type(op)](left, right)


def _call(name: str, arguments: list[Any], scope: Scope) -> Any:
    if name in FUNCTIONS:
        return FUNCTIONS[name](*arguments)
    if scope.moment is None:
        raise ExpressionError(f"`{name}` reads the log, and no engine has run at this point")
    return PROBES[name](scope.moment, *arguments)
