"""What the tests of the panels share: traces, and the page that draws panels without a server."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig, SamplingParams
from engine.conformance import Conformance, driver_of, load_workload
from engine.core import EngineCore
from engine.events import KVCacheCompared
from engine.memory_parts import Memory
from engine.model_loader import LoadedModel
from engine.model_runner import ModelRunner
from engine.output_processor import OutputProcessor, RequestStream
from engine.records import FACTS_BY_TYPE, Event, Phase
from engine.request import Request
from engine.trace import SCHEMA_VERSION, Trace, TraceHeader, fold
from tests.engine.workloads import SPEC_FOLDER, workload_path

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "tests" / "conformance" / "workloads"
PANELS = ("lifecycle", "blocks", "graph")
Json = dict[str, Any]


# --- traces ------------------------------------------------------------------------------------


@cache
def workload_trace(name: str, cache_uncomputed_blocks: bool = True) -> Trace:
    """What the engine logs of a recorded workload; no model runs."""
    workload, _ = load_workload(WORKLOADS / f"{name}.json")
    conformance = Conformance(workload, cache_uncomputed_blocks)
    for _ in conformance.steps():
        pass
    return conformance.trace


def drafting_trace(name: str) -> Trace:
    """The same of a workload with drafts."""
    driver = driver_of(load_workload(workload_path(name, SPEC_FOLDER))[0])
    list(driver.steps())
    return driver.trace


def text_of(trace: Trace) -> str:
    return "\n".join(trace.lines())


def model_trace(model: LoadedModel, max_tokens: int = 5, **settings: Any) -> Trace:
    """Three requests on a real model: a shared prefix, a chunked prompt, decodes together."""
    defaults = {"num_gpu_blocks": 24, "max_num_batched_tokens": 48, "max_num_seqs": 3}
    config = EngineConfig(**{**defaults, **settings}).resolve(model.max_model_len)
    shape = {
        "num_layers": model.num_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "device": "cpu",
    }
    header = TraceHeader(
        schema_version=SCHEMA_VERSION,
        trace_id="tiny",
        config=config.model_dump(mode="json"),
        model=shape,
        document="",
        versions={},
        started_at=0.0,
        state={},
    )
    trace = Trace(header)
    outputs = OutputProcessor(model.tokenizer, trace)
    core = EngineCore(config, ModelRunner(model, config, trace), trace, outputs)
    shared = "A block holds sixteen tokens, and"
    for number, text in enumerate((f"{shared} no more.", f"{shared} then?", "<b>bold</b> " * 5)):
        ids = list(model.tokenizer(text)["input_ids"])
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        request = Request(f"r{number}", ids, params, model.eos_token_ids)
        stream = RequestStream(request.request_id, text, request.all_token_ids[:])
        outputs.add_request(request, "page", stream)
        core.add_request(request, "page")
        core.step()
    while core.has_work():
        core.step()
    return trace


def all_events(trace: Trace) -> list[Any]:
    """The events, in order, their facts of whatever type."""
    return [record for record in trace.records if isinstance(record, Event)]


def events_of(trace: Trace, kind: str) -> list[Any]:
    """The events of one type, in order."""
    return [event for event in all_events(trace) if type(event.facts) is FACTS_BY_TYPE[kind]]


def last_of_step(trace: Trace, step: int) -> int:
    """The last record of a step, commands aside."""
    return max(
        i for i, r in enumerate(trace.records) if r.step == step and r.phase.value != "command"
    )


def command_trace(facts: Any, reason: Any = None, aside: bool = False) -> Trace:
    """A trace whose last word is an event that no workload has.

    Its patch says something of the work as well, unless it is beside that: a command without any
    word of the work would not be on show once its event is deleted.
    """
    trace = Trace.parse(text_of(workload_trace("01-single")).splitlines())
    trace.begin_phase(99, Phase.COMMAND)
    trace.event(facts, reason)
    trace.end_phase({} if aside else {"command": {"number": 1}})
    return trace


COMPARED = KVCacheCompared(
    request="r0",
    dtype="fp8_e4m3",
    weights="float32",
    logits_error=0.0,
    num_tokens=17,
    key_errors=(0.026, 0.034),
    value_errors=(0.027, 0.06),
    key_rounding=(0.026, 0.025),
    value_rounding=(0.027, 0.026),
    greedy=True,
    num_outputs=3,
    differs_at=1,
    shown_from=0,
    written=("one", " <b>two</b>", " three"),
    in_fp32=("one", " too", " many"),
)


def state_of(page: Page) -> Json:
    """The page's state at its cursor: inside a phase tests/browser/test_phase_state.py has it."""
    state: Json = json.loads(page.evaluate("JSON.stringify(harness.store.state)"))
    return state


def memory_of(trace: Trace, cursor: int) -> Memory:
    state = fold(trace.header.state, trace.records[: cursor + 1])
    return Memory(state, EngineConfig(**trace.header.config))


# --- the page ----------------------------------------------------------------------------------


def show(page: Page, panel: str, trace: Trace | str, cursor: int = -1) -> None:
    text = trace if isinstance(trace, str) else text_of(trace)
    page.evaluate("([name, text, at]) => harness.show(name, text, at)", [panel, text, cursor])


def models(page: Page, trace: Trace | str, cursor: int) -> Json:
    """The data of all panels with the cursor at a record."""
    text = trace if isinstance(trace, str) else text_of(trace)
    result: Json = page.evaluate(
        "([text, at]) => { harness.open(text).seek(at); return harness.all(); }", [text, cursor]
    )
    return result


def check_accessibility(page: Page) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    # The page's own frame (its landmarks, its title's level) is the workspace's.
    results = Axe().run(page, context="#host", options={"runOnly": ["wcag2a", "wcag2aa"]})
    assert len(results.response["passes"]) > 5  # it has looked into the shadow root
    assert results.violations_count == 0, results.generate_report()


def sentence_of(data: Json, panel: str) -> str:
    return "".join(part["text"] for part in data[panel]["sentence"])
