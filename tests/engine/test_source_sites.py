"""Where events are made: read off the source, complete, and the lines that really make them."""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.conformance import driver_of, load_workload
from engine.model_loader import LoadedModel
from engine.records import CODE_OF_REASON, REASONS_BY_CODE, TYPE_OF_FACTS, Event
from engine.source_sites import RULES, Site, site_classes, sites, source_version, sources
from engine.source_values import Value, settings_of, values_in
from engine.trace import Trace
from tests.engine.made_at import Makers, watching
from tests.engine.workloads import FOLDER, SPEC_FOLDER, workload_path

WORKLOADS = (
    ("11-priority-preempt", FOLDER),
    ("13-aborts", FOLDER),
    ("14-stops", FOLDER),
    ("16-no-chunked-prefill", FOLDER),
    ("20-reset-cache", FOLDER),
    ("27-priority-victim-in-step", FOLDER),
)


def by_kind() -> dict[tuple[str, str], list[Site]]:
    found: dict[tuple[str, str], list[Site]] = defaultdict(list)
    for site in sites():
        found[site.kind, site.makes].append(site)
    return found


def test_every_event_and_every_reason_is_made_somewhere() -> None:
    known = set(by_kind())
    events = {("event", name) for name in TYPE_OF_FACTS.values()}
    assert known == events | {("reason", code) for code in REASONS_BY_CODE}


def test_of_those_that_make_the_same_one_is_for_all_other_cases() -> None:
    for found in by_kind().values():
        assert [site.when is None for site in found] == [False] * (len(found) - 1) + [True], found


def test_every_rule_is_of_a_site() -> None:
    assert sum(site.when is not None for site in sites()) == len(RULES)


def test_a_site_is_in_its_function_and_says_what_it_makes() -> None:
    for site in sites():
        lines = sources()[site.path].text.splitlines()
        assert site.first <= site.line <= site.end_line <= site.last
        assert f"def {site.symbol.split('.')[-1]}(" in "\n".join(lines[site.first - 1 : site.line])
        marked = "\n".join(lines[site.line - 1 : site.end_line])
        assert f"{site_classes()[site.makes]}(" in marked


def test_the_version_is_of_all_files_that_make_something() -> None:
    assert {site.path for site in sites()} <= set(sources())
    assert len(source_version()) == 16


def check_lines(trace: Trace, makers: Makers) -> set[str]:
    """Every event and reason of the log was made on a line of one of its sites; which were seen."""
    seen = set()
    for record in trace.records:
        if not isinstance(record, Event):
            continue
        made: list[tuple[str, Any]] = [(TYPE_OF_FACTS[type(record.facts)], record.facts)]
        if record.reason is not None:
            made.append((CODE_OF_REASON[type(record.reason)], record.reason))
        for name, item in made:
            call = makers.of(item)
            if call is None:  # a constant, or a copy with another number in it
                continue
            places = [site for site in sites() if site.makes == name and site.path == call.path]
            assert any(site.line <= call.line <= site.end_line for site in places), (name, call)
            seen.add(name)
    return seen


@pytest.mark.parametrize(("name", "folder"), WORKLOADS)
def test_what_is_made_is_made_there(name: str, folder: Path) -> None:
    with watching() as makers:
        driver = driver_of(load_workload(workload_path(name, folder))[0])
        list(driver.steps())
        assert len(check_lines(driver.trace, makers)) > 10


def test_drafts_and_the_runner_make_theirs_there(tiny_model: LoadedModel) -> None:
    with watching() as makers:
        driver = driver_of(load_workload(sorted((SPEC_FOLDER / "workloads").glob("*.json"))[0])[0])
        list(driver.steps())
        check_lines(driver.trace, makers)
        llm = AsyncLLM(tiny_model, EngineConfig(num_gpu_blocks=20, max_num_seqs=2))
        llm.submit("Once upon a time", SamplingParams(max_tokens=4))
        llm.step()
        llm.step()
        seen = check_lines(llm.trace, makers)
        llm.close()
    assert {"inputs_prepared", "step_dispatched", "token_sampled", "text_emitted"} <= seen


def test_a_setting_that_stands_in_the_code_is_the_header_s(tiny_model: LoadedModel) -> None:
    llm = AsyncLLM(tiny_model, EngineConfig(num_gpu_blocks=20))
    config = llm.trace.header.config
    owners = {
        "Scheduler": llm.core.scheduler,
        "KVCacheManager": llm.core.scheduler.kv_cache_manager,
        "ModelRunner": llm.core.runner,
        "EngineCore": llm.core,
    }
    assert llm.trace.header.versions["glassbox"] == source_version()
    seen = 0
    for site in sites():
        owner = owners.get(site.symbol.split(".")[0])
        lines = sources()[site.path].text.splitlines()
        for value in site.values:
            if value.of != "config" or owner is None or value.name not in config:
                continue
            expression = lines[value.line - 1][: value.column].split("self.")[-1]
            found: object = owner
            for part in expression.split("."):
                found = getattr(found, part)
            told = config[value.name]
            assert found == told or str(found) == told, (site.symbol, expression)
            seen += 1
    llm.close()
    assert seen > 20


# --- which names a value stands for ------------------------------------------------------------


def shown(source: str, fields: tuple[str, ...] = ("a", "b")) -> str:
    """The source with `{field}` behind each name that has a value of `Made(...)`."""
    source = textwrap.dedent(source).strip("\n")
    lines = source.splitlines()
    tree = ast.parse(source)
    owner = tree.body[0]
    function = owner if isinstance(owner, ast.FunctionDef) else None
    settings = {}
    if isinstance(owner, ast.ClassDef):
        settings = settings_of(owner)
        function = next(f for f in owner.body if isinstance(f, ast.FunctionDef) and f.name == "go")
    assert function is not None
    call = next(
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Made"
    )
    for value in reversed(values_in(lines, function, call, fields, "facts", settings)):
        lines[value.line - 1] = put(lines[value.line - 1], value)
    return "\n".join(lines)


def put(line: str, value: Value) -> str:
    mark = f"{{{'=' if value.whole else ''}{value.name}}}"
    return line[: value.column] + mark + line[value.column :]


def same(source: str, wanted: str) -> None:
    assert shown(source) == textwrap.dedent(wanted).strip("\n")


def test_arguments_have_their_facts_and_sums_as_a_whole() -> None:
    same("def f(self):\n    Made(self.x.y, len(self.z) + 1)",
         "def f(self):\n    Made(self.x.y{a}, len(self.z) + 1{=b})")  # fmt: skip
    same("def f(self):\n    Made(1, b=g(2))", "def f(self):\n    Made(1, b=g(2){b})")
    same("def f(self, x):\n    Made(*x)", "def f(self, x):\n    Made(*x)")


def test_a_local_has_its_value_as_long_as_nothing_binds_it_again() -> None:
    same("def f(n: int):\n    m = n + 1\n    if m > n:\n        Made(m, n)",
         "def f(n{b}: int):\n    m{a} = n{b} + 1\n    if m{a} > n{b}:\n        Made(m{a}, n{b})",
         )  # fmt: skip
    same("def f(n):\n    g(n)\n    n += 1\n    h(n)\n    Made(n)\n    n = 2\n    g(n)",
         "def f(n):\n    g(n)\n    n += 1\n    h(n{a})\n    Made(n{a})\n    n = 2\n    g(n)",
         )  # fmt: skip


def test_a_loop_s_variable_has_its_value_in_the_same_round_alone() -> None:
    same("def f(all):\n    for n in all:\n        g(n)\n        Made(n)\n    return n",
         "def f(all):\n    for n{a} in all:\n        g(n{a})\n        Made(n{a})\n    return n",
         )  # fmt: skip
    same("def f(n):\n    while n:\n        Made(n)\n        n = n.next\n    return n",
         "def f(n):\n    while n{a}:\n        Made(n{a})\n        n = n.next\n    return n",
         )  # fmt: skip


def test_names_that_mean_something_else_inside_have_none() -> None:
    same("def f(n):\n    g([n for n in h()])\n    Made(n)",
         "def f(n):\n    g([n for n in h()])\n    Made(n{a})")  # fmt: skip
    same("def f():\n    Made(N)", "def f():\n    Made(N{a})")


def test_settings_that_a_class_took_over() -> None:
    same(
        """
        class C:
            def __init__(self, config: EngineConfig):
                self.config = config
                self.size = config.block_size
                self.seats = config.max_num_seqs
                self.more = config.watermark + 1
            def go(self):
                self.seats = 3
                return Made(self.size * self.seats, self.config.policy)
        """,
        """
        class C:
            def __init__(self, config: EngineConfig):
                self.config = config
                self.size = config.block_size
                self.seats = config.max_num_seqs
                self.more = config.watermark + 1
            def go(self):
                self.seats = 3
                return Made(self.size{block_size} * self.seats{=a}, self.config.policy{b})
        """,
    )
