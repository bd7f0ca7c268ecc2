"""The Streamlit script without a browser: what it says while loading, on bad input, on failure."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from engine import sessions
from engine.async_llm import AsyncLLM
from engine.background_model import ModelNotReady
from engine.config import EngineConfig, SpeculativeConfig
from engine.model_loader import LoadedModel, load_model
from engine.model_loader.fetch import ModelError, Progress
from engine.sessions import Sessions
from engine.sizing import Deployment, size
from tests.waiting import PATIENCE_S
from views.page import state, tab_engine
from views.page.presets import PRESETS
from views.page.settings_form import named
from views.page.size_card import picture

PAGE = str(Path(__file__).parents[3] / "views" / "page" / "script.py")


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model("tiny-random")


class Server:
    """The process's sessions with a tab of its own, as the workspace would have made it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, load: Any):
        self.sessions = Sessions(load)
        self.key: str | None = self.sessions.create()
        monkeypatch.setattr(sessions, "_registry", self.sessions)
        monkeypatch.setattr(state, "session_key", lambda: self.key)
        monkeypatch.setattr(tab_engine, "_EVERY_SECONDS", None)

    @property
    def llm(self) -> AsyncLLM:
        assert self.key is not None
        found = self.sessions.get(self.key)
        assert found is not None
        return found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tiny: LoadedModel) -> Iterator[Server]:
    made = Server(monkeypatch, lambda report: tiny)
    made.sessions.wait_for_model()
    yield made
    made.sessions.close()


def open_page() -> AppTest:
    return settled(AppTest.from_file(PAGE, default_timeout=PATIENCE_S).run())


def settled(page: AppTest) -> AppTest:
    assert not page.exception
    return page


def click(page: AppTest, key: str) -> AppTest:
    return settled(page.button(key=key).click().run())


def key(page: AppTest, form: str, name: str) -> str:
    return str(page.session_state["gb-fields" + form].key(name))


def prompt(page: AppTest) -> Any:
    return page.text_area(key=key(page, "composer", "prompt"))


def number(page: AppTest, form: str, name: str) -> Any:
    return page.number_input(key=key(page, form, name))


def has_button(page: AppTest, key: str) -> bool:
    return any(button.key == key for button in page.button)


def words(page: AppTest) -> str:
    """All text of the page outside its widgets."""
    kinds = (page.markdown, page.error, page.warning, page.info, page.success, page.caption)
    parts = [shown(str(element.value)) for kind in kinds for element in kind]
    parts += [str(element.proto.body) for element in page.get("html")]
    return "\n".join(parts)


def shown(markdown: str) -> str:
    """Markdown as it is read: without what keeps it from being markup, or from being a link."""
    return re.sub(r"\\([^A-Za-z0-9\s])", r"\1", markdown).replace("\u2060", "")


def test_a_prompt_reaches_this_tabs_engine(server: Server) -> None:
    page = open_page()
    prompt(page).input("Hello there")
    number(page, "composer", "max_tokens").set_value(3)
    click(page, "gb-send")
    assert server.llm.num_unfinished == 1
    assert "1 request sent. Press Run" in words(page)
    assert prompt(page).value == "Hello there"


def test_bad_sampling_is_named_and_loses_nothing(server: Server) -> None:
    page = open_page()
    prompt(page).input("Keep me")
    number(page, "composer", "top_p").set_value(0.0)
    click(page, "gb-send")
    assert "top_p: must be more than 0" in words(page)
    assert prompt(page).value == "Keep me"
    assert server.llm.num_unfinished == 0


def test_sequences_penalties_and_biases_reach_the_engine(server: Server) -> None:
    page = open_page()
    number(page, "composer", "n").set_value(3)
    click(page, "gb-send")
    assert "n: 3 sequences would all be the same" in words(page)
    number(page, "composer", "temperature").set_value(0.7)
    number(page, "composer", "min_p").set_value(0.05)
    number(page, "composer", "repetition_penalty").set_value(1.5)
    number(page, "composer", "presence_penalty").set_value(0.5)
    number(page, "composer", "frequency_penalty").set_value(-0.5)
    bias = page.text_input(key=key(page, "composer", "logit_bias"))
    bias.set_value("5: -3, 300: 1")
    click(page, "gb-send")
    assert "Sampling: logit_bias: token id 300 is outside the vocabulary" in words(page)
    assert server.llm.num_unfinished == 0
    page.text_input(key=key(page, "composer", "logit_bias")).set_value("5: -3")
    click(page, "gb-send")
    assert "3 requests sent. Press Run" in words(page)
    requests = server.llm.trace.state()["requests"]
    assert list(requests) == ["0_r0", "1_r0", "2_r0"]
    given = requests["2_r0"]["sampling"]
    names = ("temperature", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    assert [given[name] for name in names] == [0.7, 0.05, 1.5, 0.5, -0.5]
    assert given["logit_bias"] == {"5": -3.0}


def test_of_several_requests_all_are_sent_or_none(server: Server) -> None:
    page = open_page()
    prompt(page).input("short\n" + "long " * 300)
    page.session_state[key(page, "composer", "split")] = "lines"
    click(page, "gb-send")
    assert "Request 2 of 2: the prompt has 1500 tokens, and may have 1007 at most" in words(page)
    assert server.llm.num_unfinished == 0


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_a_preset_fills_the_composer_and_send_brings_its_settings(
    server: Server, preset: Any
) -> None:
    page = click(open_page(), f"gb-try-{preset.id}")
    assert prompt(page).value == preset.text
    assert server.llm.num_unfinished == 0
    before = server.llm.trace.header.trace_id
    missing = preset.missing(server.llm.requested_config)
    announced = f"Send resets your engine with {named(missing)}: its requests and log end."
    assert (announced in words(page)) == bool(missing) == has_button(page, "gb-keep")
    click(page, "gb-send")
    assert (server.llm.trace.header.trace_id != before) == bool(missing)
    assert preset.missing(server.llm.requested_config) == {}
    assert server.llm.num_unfinished == len(preset.prompts)
    assert f"{len(preset.prompts)} requests sent. {html.escape(preset.watch)}" in words(page)
    assert "Press Run" not in words(page)
    assert "Send resets" not in words(page) and not has_button(page, "gb-keep")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_kept_settings_promise_nothing(server: Server, preset: Any) -> None:
    server.llm.reset(EngineConfig(max_num_seqs=7, num_gpu_blocks=63, watermark=0.01))
    before = server.llm.trace.header.trace_id
    page = click(click(open_page(), f"gb-try-{preset.id}"), "gb-keep")
    assert html.escape(preset.watch) not in words(page) and "Send resets" not in words(page)
    click(page, "gb-send")
    assert server.llm.trace.header.trace_id == before
    assert server.llm.num_unfinished == len(preset.prompts)
    assert "requests sent." in words(page) and html.escape(preset.watch) not in words(page)
    click(page, f"gb-try-{preset.id}")
    assert "Send resets your engine" in words(page)


def test_a_preset_that_was_changed_promises_nothing(server: Server) -> None:
    page = click(open_page(), "gb-try-more-than-seats")
    number(page, "composer", "max_tokens").set_value(1)
    click(page, "gb-send")
    assert "7 requests sent." in words(page) and "Three requests run" not in words(page)


def test_settings_of_ones_own_outlast_a_preset_in_the_composer(server: Server) -> None:
    page = click(click(open_page(), "gb-try-more-than-seats"), "gb-send")
    number(page, "settings", "max_num_seqs").set_value(5)
    click(page, "gb-settings-apply")
    assert "Send resets" not in words(page) and "7 requests sent." not in words(page)
    click(page, "gb-send")
    assert server.llm.requested_config.max_num_seqs == 5
    assert "Three requests run" not in words(page)


def test_only_what_was_sent_calls_for_the_own_engine(server: Server) -> None:
    page = open_page()
    prompt(page).input(" ")
    click(page, "gb-send")
    assert "gb-sent" not in page.session_state
    prompt(page).input("Hello")
    click(page, "gb-send")
    first = page.session_state["gb-sent"]
    prompt(page).input("Hello again")
    assert click(page, "gb-send").session_state["gb-sent"] > first


def test_a_double_click_sends_once_and_says_so(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(state, "_clock", lambda: now)
    page = open_page()
    prompt(page).input("Hello")
    for _ in range(3):
        click(page, "gb-send")
    assert server.llm.num_unfinished == 1
    assert words(page).count("1 request sent.") == words(page).count("it was sent once") == 1
    prompt(page).input("Hello!")  # another prompt is no second press, however soon
    click(page, "gb-send")
    assert server.llm.num_unfinished == 2 and "it was sent once" not in words(page)
    now += 2 * state.DOUBLE_CLICK_SECONDS
    click(page, "gb-send")
    assert server.llm.num_unfinished == 3


def test_a_second_press_while_the_first_is_still_answered_sends_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(state, "_clock", lambda: now)
    page = open_page()
    prompt(page).input("Hello")
    with monkeypatch.context() as cut_short:
        cut_short.setattr(state.Sending, "page_is_drawn", lambda self: None)
        click(page, "gb-send")
    now += 60
    click(page, "gb-send")
    assert server.llm.num_unfinished == 1 and "it was sent once" in words(page)
    now += 2 * state.DOUBLE_CLICK_SECONDS
    click(page, "gb-send")
    assert server.llm.num_unfinished == 2


def test_a_send_reaches_the_engine_that_came_after_a_rest(server: Server) -> None:
    server.llm.reset(EngineConfig(max_num_seqs=5))
    page, before = open_page(), server.llm
    server.sessions.idle_seconds = 0
    server.sessions.sweep()
    server.sessions.idle_seconds = 1800
    prompt(page).input("Hello")
    click(page, "gb-send")
    assert before.closed and server.llm is not before
    assert server.llm.num_unfinished == 1 and server.llm.config.max_num_seqs == 5
    assert "1 request sent." in words(page)


def test_the_notice_of_a_rest_goes_with_the_next_command(server: Server) -> None:
    assert server.llm
    server.sessions.idle_seconds = 0
    server.sessions.sweep()
    server.sessions.idle_seconds = 1800
    page = open_page()
    assert "put to rest" in words(page) and "put to rest" in words(settled(page.run()))
    server.llm.step()
    assert "put to rest" not in words(settled(page.run()))
    server.llm.reset()
    assert "put to rest" not in words(settled(page.run()))


def test_settings_are_applied_by_a_reset(server: Server) -> None:
    page = open_page()
    number(page, "settings", "max_num_seqs").set_value(3)
    click(page, "gb-settings-apply")
    assert server.llm.requested_config == EngineConfig(max_num_seqs=3)
    assert "reset with max_num_seqs 3" in words(page)


def test_impossible_settings_keep_the_engine_and_what_was_typed(server: Server) -> None:
    page = open_page()
    before = server.llm.trace.header.trace_id
    number(page, "settings", "block_size").set_value(500)
    click(page, "gb-settings-apply")
    assert "block_size: must be 128 or less (got 500)" in words(page)
    assert server.llm.trace.header.trace_id == before
    assert number(page, "settings", "block_size").value == 500
    number(page, "settings", "max_num_seqs").set_value(0)
    click(page, "gb-settings-apply")
    said = shown(page.error[0].value)
    assert "block_size: must be 128" in said
    assert "max_num_seqs: must be 1 or more (got 0)" in said


def test_why_an_engine_stopped_is_no_markdown(server: Server) -> None:
    server.llm.failed = "the engine stopped (ValueError: ![x](http://y/z.png) <b>b</b>)"
    page = open_page()
    (error,) = page.error
    assert shown(error.value) == "The engine stopped (ValueError: ![x](http://y/z.png) <b>b</b>)."
    assert "\\!\\[x\\]\\(http\\://\u2060y/z\\.png\\) \\<b\\>" in error.value


def test_the_form_follows_a_reset_from_elsewhere(server: Server) -> None:
    page = open_page()
    server.llm.reset(EngineConfig(num_gpu_blocks=20))
    settled(page.run())
    assert number(page, "settings", "num_gpu_blocks").value == 20


def test_connect_offers_the_shared_engine_only_where_there_is_one(server: Server) -> None:
    def said() -> str:
        return "\n".join(str(caption.value) for caption in open_page().caption)

    assert "shared engine" in said()
    server.sessions.shared_enabled = False
    assert "shared engine" not in said() and "this server takes no requests" in said()


def test_connect_does_not_show_the_key_that_commands_the_shared_engine(server: Server) -> None:
    def all_text() -> str:
        page = open_page()
        return "\n".join([words(page), *(each.value for each in page.code)])

    assert str(server.key) in all_text()
    server.key = server.sessions.create(lambda: True)
    found = all_text()
    assert server.key not in found
    assert "This tab's key commands the class's engine" in found and "Bearer EMPTY" in found


def test_a_priority_can_be_given_where_it_has_an_effect(server: Server) -> None:
    page = open_page()
    assert number(page, "composer", "priority").disabled
    server.llm.reset(EngineConfig(scheduling_policy="priority"))
    assert not number(settled(page.run()), "composer", "priority").disabled


def test_a_preset_changes_no_other_field(server: Server) -> None:
    page = click(open_page(), "gb-try-shared-prefix")
    click(page, "gb-send")
    request = server.llm.trace.state()["requests"]["r0"]
    assert request["max_tokens"] == 12 and request["sampling"]["temperature"] == 0.0
    assert len(server.llm.trace.state()["requests"]) == 4


def test_before_the_tab_has_a_key_nothing_can_be_sent(server: Server) -> None:
    server.key = None
    page = open_page()
    assert page.button(key="gb-send").disabled
    assert not page.error


def test_while_the_model_loads_the_page_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, tiny: LoadedModel
) -> None:
    import threading

    go_on, reported = threading.Event(), threading.Event()

    def load(report: Any) -> LoadedModel:
        report(Progress("download", 30_000_000, 93_000_000, "B"))
        reported.set()
        go_on.wait(60)
        return tiny

    server = Server(monkeypatch, load)
    server.sessions.start()
    assert reported.wait(60)
    try:
        page = open_page()
        assert "downloading 30 of 93 MB" in str(page.get("progress")[0].proto)
        assert page.button(key="gb-send").disabled
        assert "Nothing can be sent before there is an engine" in words(page)
    finally:
        go_on.set()
        server.sessions.close()


def test_a_model_that_cannot_be_loaded_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(report: Any) -> LoadedModel:
        raise ModelError("there is no model at /nowhere: name a model folder or a GGUF file")

    server = Server(monkeypatch, load)
    with pytest.raises(ModelNotReady):
        server.sessions.wait_for_model()
    page = open_page()
    assert "there is no model at /nowhere" in page.error[0].value
    assert "start the server again" in page.error[0].value
    assert "Nothing can be sent before there is an engine" in words(page)
    server.sessions.close()


def test_a_broken_document_is_shown_with_what_to_mend(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "architecture.json"
    broken.write_text('{"schema_version": 1, "diagram_type": "architecture", "meta": {}}')
    monkeypatch.setenv("DOCUMENT", str(broken))
    page = open_page()
    assert "The map cannot be drawn" in [item.value for item in page.subheader]
    assert "$.meta.title" in words(page) and "To mend it" in words(page)


def test_remarks_for_the_documents_author_are_folded(server: Server) -> None:
    page = open_page()
    [notes] = [box for box in page.expander if "for the author of the document" in box.label]
    folded = "\n".join(str(item.proto.body) for item in notes.get("html"))
    assert folded.count("listitem") == int(notes.label.split()[0]) > 0
    assert words(page).count("listitem") == folded.count("listitem")
    assert 'data-severity="error"' not in folded


def test_an_edited_document_and_edited_sources_are_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from views import architecture
    from views.page import documents

    document, sources = tmp_path / "architecture.json", tmp_path / "architecture.sources.json"
    document.write_text(architecture.DEFAULT_DOCUMENT.read_text("utf-8"))
    loaded = []

    def load(path: Path) -> architecture.LoadResult:
        loaded.append(path)
        return architecture.load_document(path)

    monkeypatch.setenv("DOCUMENT", str(document))
    monkeypatch.setattr(documents, "load_document", load)
    page = settled(open_page().run())
    assert len(loaded) == 1
    sources.write_text('{"components": {}}')
    settled(page.run())
    assert len(loaded) == 2
    os.utime(document, ns=(1, 1))
    settled(page.run())
    assert len(loaded) == 3


def test_what_nobody_foresaw_is_said_without_a_traceback(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret detail")

    page = open_page()
    monkeypatch.setattr(AsyncLLM, "submit_many", fail)
    click(page, "gb-send")
    assert "error of its own" in words(page) and "secret detail" not in words(page)
    monkeypatch.setattr(Sessions, "get", fail)
    settled(page.run())
    assert "error of its own" in page.error[0].value


def test_a_pasted_command_fills_the_form_and_apply_applies_it(server: Server) -> None:
    page = open_page()
    before = server.llm.trace.header.trace_id
    assert any("--max-num-seqs 8" in code.value for code in page.code)
    page.text_area(key="gb-settings-command").input(
        "vllm serve tiny-random --max-num-seqs 3 --block-size 500 --port 80"
    )
    click(page, "gb-settings-fill")
    assert "Nothing is applied yet" in words(page)
    said = words(page)
    assert "- `--block-size 500`: block_size: must be 128 or less (got 500)" in said
    assert "- `--port 80`: has no effect here" in said
    assert number(page, "settings", "max_num_seqs").value == 3
    assert server.llm.trace.header.trace_id == before
    click(page, "gb-settings-apply")
    assert server.llm.requested_config == EngineConfig(max_num_seqs=3)
    assert number(page, "settings", "max_num_seqs").value == 3


def test_what_is_no_command_leaves_the_form_alone(server: Server) -> None:
    page = open_page()
    page.text_area(key="gb-settings-command").input("ls -l")
    click(page, "gb-settings-fill")
    assert "no \\`vllm serve\\`" in page.error[0].value
    assert page.text_area(key="gb-settings-command").value == "ls -l"


def test_an_engine_of_16_bits_says_what_text_depends_on(server: Server) -> None:
    def said(page: AppTest) -> list[str]:
        return [item.value for item in page.caption if ":material/warning:" in item.value]

    page = open_page()
    assert said(page) == []
    page.selectbox(key=key(page, "settings", "dtype")).select("bfloat16")
    click(page, "gb-settings-apply")
    assert "computes in bfloat16, with keys and values in bfloat16" in said(page)[0]
    server.llm.reset(EngineConfig(kv_cache_dtype="float16"))
    assert "rounds keys and values to float16" in said(settled(page.run()))[0]
    server.llm.reset(EngineConfig(quantization="int8_weight_only"))
    assert "rounds weights (int8_weight_only)" in said(settled(page.run()))[0]
    server.llm.reset(EngineConfig(dtype="float32"))
    assert said(settled(page.run())) == []


def test_a_card_is_sized_with_formulas_on_hover(server: Server) -> None:
    page = open_page()
    assert "Qwen2.5-7B on RTX 4090" in words(page)
    assert "57,344 bytes</span> a token" in words(page)
    assert 'title="derived: 7,615,616,512 parameters × 2 bytes"' in words(page)
    page.selectbox(key="gb-size-model").select("Llama-3-8B")
    page.selectbox(key="gb-size-kv_cache_dtype").select("fp8")
    page.number_input(key="gb-size-max_model_len").set_value(4096)
    settled(page.run())
    sizing = size(Deployment(model="Llama-3-8B", kv_cache_dtype="fp8", max_model_len=4096))
    assert f"{sizing.cache.num_blocks:,} blocks" in words(page)
    assert f"{sizing.cache.max_concurrency:.2f}</span> requests of 4,096 tokens" in words(page)


def test_a_card_that_is_too_small_says_why(server: Server) -> None:
    page = open_page()
    page.selectbox(key="gb-size-model").select("Llama-3-70B")
    settled(page.run())
    assert "No memory is left for the KV cache" in words(page)
    assert "here the budget ends" in words(page)
    page.number_input(key="gb-size-gpu_memory_utilization").set_value(2.0)
    settled(page.run())
    assert "Gpu_memory_utilization: must be 1.0 or less" in words(page)


def test_the_bar_is_to_scale() -> None:
    sizing = size(Deployment(model="Llama-3-8B", card="H100"))
    widths = [float(w) for w in re.findall(r"width:([\d.]+)%", picture(sizing))]
    parts = [*sizing.taken, sizing.available]
    assert len(widths) == len(parts) and sum(widths) == pytest.approx(100, abs=0.01)
    for width, part in zip(widths, parts, strict=True):
        assert width == pytest.approx(part.num_bytes / sizing.budget.num_bytes * 100, abs=0.01)


def test_a_memory_budget_is_applied_from_the_form(server: Server) -> None:
    page = open_page()
    number(page, "settings", "num_gpu_blocks").set_value(0)
    number(page, "settings", "kv_cache_memory_bytes").set_value(1_000_000)
    click(page, "gb-settings-apply")
    assert server.llm.config.num_gpu_blocks == 61
    said = words(page)
    assert "The engine was reset with num_gpu_blocks 0, kv_cache_memory_bytes 1000000" in said
    number(page, "settings", "max_model_len").set_value(2000)
    click(page, "gb-settings-apply")
    assert "set it to 960 or less, or raise kv_cache_memory_bytes" in words(page)


def test_a_drafter_is_set_by_its_fields_and_taken_away_again(server: Server) -> None:
    page = open_page()
    method = next(box for box in page.selectbox if "speculative_config.method" in str(box.key))
    method.set_value("ngram")
    click(page, "gb-settings-apply")
    assert "speculative_config.num_speculative_tokens: field required" in words(page)
    number(page, "settings", "speculative_config.num_speculative_tokens").set_value(3)
    click(page, "gb-settings-apply")
    drafter = SpeculativeConfig(method="ngram", num_speculative_tokens=3)
    assert server.llm.requested_config.speculative_config == drafter
    method = next(box for box in page.selectbox if "speculative_config.method" in str(box.key))
    method.select_index(0)  # off
    click(page, "gb-settings-apply")
    assert server.llm.requested_config.speculative_config is None


# -- compare -----------------------------------------------------------------------------------


def compare(server: Server, page: AppTest) -> AppTest:
    """Run both, and show what came of it."""
    click(page, "gb-compare-run")
    assert server.key is not None
    comparison = server.sessions.comparisons.get(server.key)
    if comparison is not None:
        comparison.wait(60)
    return settled(page.run())


def test_a_preset_is_compared_with_one_setting_changed(server: Server) -> None:
    page = click(open_page(), "gb-compare-toggle")
    assert "Nothing has been compared yet. Run both" in words(page)
    page.selectbox(key="gb-compare-source").set_value("more-than-seats").run()
    page.selectbox(key="gb-compare-knob").set_value("max_num_seqs").run()
    compare(server, page)
    assert "Nothing has been compared yet" not in words(page)
    said = words(page)
    assert "TTFT, median" in said and "prefix cache hit rate" in said
    assert "r6" in said  # what it wrote
    assert server.llm.is_fresh  # the tab's own engine has nothing to do with it
    assert len(page.get("plotly_chart")) == 4


def test_what_the_engine_was_given_is_compared(server: Server) -> None:
    server.llm.submit("over and over")
    page = click(open_page(), "gb-compare-toggle")
    assert page.selectbox(key="gb-compare-source").value == "recorded"
    page.selectbox(key="gb-compare-knob").set_value("speculative_config.num_speculative_tokens")
    compare(server, page.run())
    found = server.sessions.comparisons.get(server.key or "")
    assert found is not None and found.result is not None
    assert [one.request for one in found.result.texts] == ["r0"]
    assert found.result.b.config["speculative_config"]["num_speculative_tokens"] == 3


def test_a_value_that_cannot_be_is_named_and_nothing_runs(server: Server) -> None:
    page = click(open_page(), "gb-compare-toggle")
    page.selectbox(key="gb-compare-knob").set_value("block_size").run()
    field = next(each for each in page.number_input if each.label == "B: block_size")
    field.set_value(0).run()
    compare(server, page)
    assert "With block_size 0: block_size: must be" in words(page).replace("\\", "")
    assert server.sessions.comparisons.get(server.key or "") is None
    page.selectbox(key="gb-compare-knob").set_value("max_num_seqs").run()
    assert "With block" not in words(page)


def test_without_requests_the_page_says_what_to_do(server: Server) -> None:
    page = click(open_page(), "gb-compare-toggle")
    page.selectbox(key="gb-compare-source").set_value("recorded").run()
    assert "send some first" in words(page)
    assert page.button(key="gb-compare-run").disabled


def test_a_lesson_is_begun_left_and_gone_on_with(server: Server) -> None:
    page = click(open_page(), "gb-lessons")
    page = click(page, "gb-start-one-request")
    assert "**One request" in words(page)
    page = click(page, "gb-lesson-next")
    assert page.button(key="gb-lesson-back").disabled is False
    page = click(page, "gb-lesson-close")
    page = click(page, "gb-go-on-one-request")
    page = click(page, "gb-lesson-back")
    assert page.button(key="gb-lesson-back").disabled
