"""Where in this project's source each event and each reason is made, and what stands for its facts.

Part of no box; vLLM has nothing like it. The page shows a function beside the event that came from
it, with the event's numbers beside the names that they had there. Nothing is recorded for that as
the engine runs: the places are read off the source, once, and `RULES` tell those apart that make
the same. Tests hold every event of recorded workloads to the line that really made it.

A value stands beside a name only where it must be that name's: an argument of the call, a local
variable that is not bound again between it and the call, or a setting that a class took over.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engine.config import EngineConfig
from engine.records import CODE_OF_REASON, TYPE_OF_FACTS, snake_case
from engine.source_values import Function, Settings, Value, settings_of, values_in

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = re.compile(r"^from engine\.(events|reasons) import", re.MULTILINE)
VOCABULARY: dict[str, Any] = {cls.__name__: cls for cls in (*TYPE_OF_FACTS, *CODE_OF_REASON)}
CALLS = re.compile(rf"\b({'|'.join(VOCABULARY)})\(")
SETTINGS = {"", *EngineConfig.model_fields}
SIMPLE = (ast.Expr, ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign)

Kind = Literal["event", "reason"]


class Among(NamedTuple):
    """A number or name that is one of these values."""

    name: str
    values: tuple[str | int | bool, ...]


class When(NamedTuple):
    """What an event must have for a site to be the one; what is left out asks for nothing."""

    event: tuple[str, ...] = ()  # its type is one of these
    reason: tuple[str, ...] = ()  # its reason's code is one of these
    fact: Among | None = None
    number: Among | None = None  # of its reason
    after: str = ""  # its request had an event of this type before, in the same phase ...
    after_fact: Among | None = None  # ... of which this holds


class Site(NamedTuple):
    """A call that makes an event or a reason, in the function around it. Lines count from 1."""

    kind: Kind
    makes: str  # type of the event, or code of the reason
    path: str
    symbol: str  # the function, with its class
    first: int  # line of the function
    last: int
    line: int  # first line of the statement with the call
    end_line: int
    when: When | None  # None: wherever no other site is the one
    values: tuple[Value, ...]


SUBMITTED = Among("status", ("submitted",))
# By what is made, the function, and which of its calls that make it.
RULES: dict[tuple[str, str, int], When] = {
    ("request_aborted", "EngineCore._abort_arriving", 0): When(fact=SUBMITTED),
    ("request_finished", "EngineCore._abort_arriving", 0): When(
        after="request_aborted", after_fact=SUBMITTED
    ),
    ("client_aborted", "EngineCore._abort_arriving", 0): When(
        event=("request_aborted",), fact=SUBMITTED
    ),
    ("client_aborted", "EngineCore._abort_arriving", 1): When(
        event=("request_finished",), after="request_aborted", after_fact=SUBMITTED
    ),
    ("client_aborted", "Scheduler.abort_request", 0): When(event=("request_aborted",)),
    ("request_passed_over", "Scheduler._pass_over_all", 0): When(
        reason=("budget_spent", "preempted_this_step")
    ),
    ("token_dropped", "AsyncScheduler._is_void", 0): When(reason=("reset_requested",)),
    ("token_dropped", "Scheduler._append_tokens", 0): When(after="request_finished"),
    ("prefix_cache_reset", "BlockPool.reset_prefix_cache", 0): When(fact=Among("done", (False,))),
    ("budget_spent", "Scheduler._schedule_running", 0): When(event=("request_passed_over",)),
    ("preempted_this_step", "Scheduler._allocate_or_preempt", 0): When(
        event=("request_passed_over",)
    ),
    ("model_length_reached", "Scheduler._check_stop", 0): When(event=("request_finished",)),
    ("never_computed", "KVCacheManager.uncache_blocks", 0): When(event=("blocks_uncached",)),
    ("reset_requested", "AsyncScheduler._is_void", 0): When(event=("token_dropped",)),
    ("mode_for_any_batch", "CudagraphDispatcher._why", 0): When(number=Among("mode", ("NONE",))),
}


class Source(NamedTuple):
    """A file of the engine, as it was when this process first looked."""

    path: str
    text: str


@cache
def sources() -> dict[str, Source]:
    """The files that make events or reasons, by their path from the project's root."""
    found = {}
    for file in sorted((ROOT / "engine").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if IMPORTS.search(text) and CALLS.search(text):
            path = file.relative_to(ROOT).as_posix()
            found[path] = Source(path, text)
    return found


@cache
def source_version() -> str:
    """A digest of those files: a log that has another one comes from another engine."""
    digest = hashlib.sha256()
    for source in sources().values():
        digest.update(f"{source.path}\n{source.text}\n".encode())
    return digest.hexdigest()[:16]


@cache
def sites() -> tuple[Site, ...]:
    """All sites; of those that make the same, the one for all other cases comes last."""
    trees = {path: ast.parse(source.text) for path, source in sources().items()}
    settings = _all_settings(trees.values())
    found: list[Site] = []
    counts: Counter[tuple[str, str]] = Counter()
    for path, tree in trees.items():
        lines = sources()[path].text.splitlines()
        for symbol, owner, function in _functions(tree):
            for marked, call, kind in _makers(function):
                made = _named(call)
                makes = snake_case(made.__name__)
                key = makes, symbol, counts[makes, symbol]
                counts[makes, symbol] += 1
                of = "facts" if kind == "event" else "reason"
                own = settings.get(owner, {})
                found.append(
                    Site(
                        kind,
                        makes,
                        path,
                        symbol,
                        *_lines(function),
                        *_lines(marked),
                        RULES.get(key),
                        values_in(lines, function, call, made._fields, of, own),
                    )
                )
    return tuple(sorted(found, key=lambda site: (site.kind, site.makes, site.when is None)))


def site_classes() -> dict[str, str]:
    """The class of each event's type and each reason's code."""
    return {snake_case(name): name for name in VOCABULARY}


def _lines(node: ast.stmt | ast.expr) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)]), node.end_lineno or 0


def _functions(tree: ast.Module) -> Iterator[tuple[str, str, Function]]:
    """Every function: its qualified name, its class ("" where it has none), itself."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, "", node
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, Function):
                    yield f"{node.name}.{method.name}", node.name, method


def _makers(function: Function) -> Iterator[tuple[ast.stmt | ast.expr, ast.Call, Kind]]:
    """Each call that makes an event or a reason, and what to mark: its statement if that is one."""
    found: list[tuple[ast.stmt | ast.expr, ast.Call, Kind]] = []

    def look(node: ast.AST, statement: ast.stmt | None) -> None:
        if isinstance(node, SIMPLE):
            statement = node
        if isinstance(node, ast.Call) and (made := _named(node)):
            found.append((statement or node, node, "event" if made in TYPE_OF_FACTS else "reason"))
        for child in ast.iter_child_nodes(node):
            look(child, statement)

    look(function, None)
    yield from sorted(found, key=lambda each: (each[1].lineno, each[1].col_offset))


def _named(call: ast.Call) -> Any:
    """The class of events or reasons that is called; None for all other calls."""
    return VOCABULARY.get(call.func.id) if isinstance(call.func, ast.Name) else None


def _all_settings(trees: Iterable[ast.Module]) -> dict[str, Settings]:
    """By class, what it took over from its config; what a class inherits is its own as well."""
    classes = {
        node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)
    }

    def of(name: str) -> Settings:
        if name not in classes:
            return {}
        taken: Settings = {}
        for base in classes[name].bases:
            taken |= of(base.id) if isinstance(base, ast.Name) else {}
        return taken | settings_of(classes[name])

    return {
        name: {own: setting for own, setting in of(name).items() if setting in SETTINGS}
        for name in classes
    }
