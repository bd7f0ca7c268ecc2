"""What a comparison shows: the same figures as its logs, and no text of it becomes markup."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from engine.comparison.comparisons import Comparison, Setting
from engine.comparison.result import Difference, Output, Result, Unequal
from engine.comparison.run import Progress
from engine.comparison.workload import of_prompts
from engine.config import EngineConfig, SamplingParams, SpeculativeConfig
from engine.doing import Doing
from engine.input_processor import Encoded
from engine.model_loader import load_model
from engine.sessions import Sessions
from views.page.compare_charts import charts, hit_rates
from views.page.compare_figures import beside, busy, figures, odd, outputs, progress_text
from views.page.compare_knobs import compared, first_values, knobs, label

LABELS = ("max_num_batched_tokens 64", "<b>32</b>")


@pytest.fixture(scope="module")
def result() -> Iterator[Result]:
    sessions = Sessions(lambda report: load_model("tiny-random"))
    sessions.wait_for_model()
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
    prompts = [list(range(40, 72 + n)) for n in range(3)]
    workload = of_prompts("", "", [Encoded("", each, params, 0, "") for each in prompts])
    setting = Setting("max_num_batched_tokens", 64, 32)
    found = sessions.comparisons.start(sessions.create(), workload, EngineConfig(), setting)
    assert found.wait(60) == "done" and found.result is not None
    yield found.result
    sessions.close()


def test_charts_have_the_values_of_the_runs(result: Result) -> None:
    shown = {chart.name: chart for chart in charts(result, LABELS)}
    assert set(shown) == {"latencies", "throughput", "kv-cache-usage", "prefix-hit-rate"}
    a_median, a_p99, b_median, _ = shown["latencies"].figure["data"]
    for number, trace in enumerate((a_median, b_median)):
        values = [value * 1e3 for _, value in result.runs[number].samples["ttft"]]
        assert trace["y"][0] == pytest.approx(np.median(values))
    values = [value * 1e3 for _, value in result.a.samples["itl"]]
    assert a_p99["y"][1] == pytest.approx(np.percentile(values, 99))
    assert f"A TTFT median {a_median['y'][0]:.3g} ms" in shown["latencies"].alt
    for number, trace in enumerate(shown["throughput"].figure["data"]):
        assert trace["y"][-1] == result.runs[number].generated == 15
        assert trace["x"] == sorted(trace["x"])
    for number, trace in enumerate(shown["kv-cache-usage"].figure["data"]):
        assert max(trace["y"]) == result.runs[number].most_usage
    assert hit_rates(result.a)[-1] == result.a.hit_rate
    marked = shown["kv-cache-usage"].figure["layout"]["shapes"]
    assert result.divergence is not None and marked[0]["x0"] == result.divergence.step
    for chart in shown.values():
        json.dumps(chart.figure)


def test_the_two_hues_can_be_told_from_the_page_and_from_each_other(result: Result) -> None:
    lines = charts(result, LABELS)[1].figure["data"]
    for page in ("#ffffff", "#0b1220"):  # they stay where the theme changes: WCAG asks for 3
        assert all(contrast(each["line"]["color"], page) >= 4 for each in lines)
    assert len({each["line"]["dash"] for each in lines}) == 2


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_figures_tell_what_is_exact_from_what_was_measured(result: Result) -> None:
    page = figures(result, LABELS)
    decided, measured = page.split("<section>")[1:]
    assert "exact" in decided and "tokens generated" in decided
    assert "TTFT" not in decided.partition("<h4>What the times are</h4>")[0]
    assert "measured on this machine" in measured and "TTFT, P99" in measured
    assert "&lt;b&gt;32&lt;/b&gt;" in page and "<b>32" not in page


def test_of_several_runs_the_median_stands_there_with_their_range(result: Result) -> None:
    times = [1.0, 5.0, 2.0]
    runs = [result.a._replace(first_us=0, seconds=seconds) for seconds in times]
    again = result._replace(a=runs[0], again=(runs[1:], [result.b, result.b]))
    row = figures(again, LABELS).partition(">whole run</span>")[2].partition("</tr>")[0]
    assert "<td>2 s<small>1 s to 5 s</small></td>" in row
    assert "All 3 runs of each side decided the same." in figures(again, LABELS)
    shown = charts(again, LABELS)[0].figure["data"][0]
    assert shown["error_y"]["visible"] and shown["error_y"]["array"] == [0, 0, 0, 0]
    assert not charts(result, LABELS)[0].figure["data"][0]["error_y"]["visible"]


def test_runs_of_one_side_that_differ_are_told_of(result: Result) -> None:
    assert odd(result) == []
    both = (Unequal("A", 2, 7, "r1"), Unequal("B", 3, None, "r2"))
    first, second = odd(result._replace(unequal=both))
    assert first.startswith("Run 2 of A decided otherwise from step 7 on, over r1, though")
    assert second.startswith("Run 3 of B wrote other tokens for r2, though")


def test_what_a_model_wrote_is_never_markup(result: Result) -> None:
    evil = Output((1, 2), "<img src=x onerror=alert(1)>", "length", 0, 0)
    other = evil._replace(tokens=(1, 3), text="")
    page = outputs(
        Result(
            result.a._replace(outputs={"<u>r0": evil, "r1": evil, "r2": evil}),
            result.b._replace(
                outputs={"<u>r0": evil, "r1": other, "r2": evil._replace(tokens=(1,))}
            ),
            None,
            None,
        )
    )
    assert "<img" not in page and "<u>" not in page and "&lt;img" in page
    assert "differs from token 1 on" in page and "<i>nothing</i>" in page
    assert "same, but 2 and 1 tokens long" in page
    assert Difference("r1", evil, other).at == 1


def test_two_values_beside_each_other() -> None:
    assert (beside(2, 2), beside(2, 1), beside(None, 1), beside(0, 3)) == ("same", "× 0.50", "", "")


def test_a_busy_machine_is_told_of(result: Result) -> None:
    def runs(a: float, b: float, device: str = "cpu") -> Result:
        shared = {"worked": 1.0, "device": device}
        return result._replace(
            a=result.a._replace(computed=a, **shared), b=result.b._replace(computed=b, **shared)
        )

    assert busy(runs(0.95, 0.97)) == ""
    assert "40% of A's steps and 95% of B's" in busy(runs(0.4, 0.95))
    assert busy(runs(0.8, 0.95)) != ""
    assert busy(runs(0.1, 0.1, "cuda")) == ""


@pytest.mark.parametrize("base", [EngineConfig(), EngineConfig(cudagraph_capture_sizes=(1, 4))])
def test_every_setting_that_is_offered_has_two_values_to_compare(base: EngineConfig) -> None:
    offered = knobs(base)
    assert next(iter(offered)) == "max_num_batched_tokens"
    assert "async_scheduling" not in offered
    for setting in offered.values():
        a, b = first_values(setting, base)
        first, second = compared(setting, base, a, b).configs(base)
        assert first.model_copy(update={"async_scheduling": False}) == first
        if a != b:
            assert first != second, setting.name


def test_drafts_are_switched_by_their_number() -> None:
    base = EngineConfig()
    drafts = knobs(base)["speculative_config.num_speculative_tokens"]
    off, on = compared(drafts, base, None, 4).configs(base)
    assert off.speculative_config is None
    assert on.speculative_config == SpeculativeConfig(method="ngram", num_speculative_tokens=4)
    assert label(drafts.name, None) == "num_speculative_tokens none"
    assert label("enforce_eager", True) == "enforce_eager on"
    with_drafts = EngineConfig(speculative_config=on.speculative_config)
    assert first_values(drafts, with_drafts) == (4, None)
    assert "speculative_config.prompt_lookup_max" in knobs(with_drafts)


def test_a_label_that_plotly_would_take_for_markup_is_shown_as_it_is(result: Result) -> None:
    hostile = '<b>a</b> <a href="javascript:alert(1)">&lt;b&gt;</a>'
    shown = '&lt;b&gt;a&lt;/b&gt; &lt;a href="javascript:alert(1)"&gt;&amp;lt;b&amp;gt;&lt;/a&gt;'
    for chart in charts(result, (hostile, hostile)):
        told = json.dumps(chart.figure)
        assert "<b>" not in told and "<a " not in told
    assert charts(result, (hostile, ""))[1].figure["data"][0]["name"] == f"A: {shown}"


def test_progress_names_the_steps_of_a_run_whose_side_has_run_before() -> None:
    workload = of_prompts("", "tiny-random", [Encoded("", [1, 2], SamplingParams(), 0, "")])
    setting = Setting("max_num_seqs", 8, 4)
    configs = setting.configs(EngineConfig())
    comparison = Comparison(workload, setting, configs, lambda *_: None, None, 2)  # type: ignore[arg-type]
    comparison.progress = Progress(3, 0, 1, 0.5)
    assert progress_text(comparison) == "Run 1 of 4, of side A: step 3, 0 of 1 requests finished"
    comparison.run, comparison._steps = 3, {0: 9, 1: 12}
    comparison.doing = Doing("compiling", 1, 2, "kernels")
    assert progress_text(comparison) == (
        "Run 3 of 4, of side B: step 3 of 12, 0 of 1 requests finished. "
        "It is compiling (1 of 2 kernels)"
    )
