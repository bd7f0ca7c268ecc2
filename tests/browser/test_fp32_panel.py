"""Beside fp32: what a pool's dtype costs and holds, as the engine found it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import pytest

from engine.config import EngineConfig
from engine.events import KVCacheCompared
from engine.kv_cache import KVCacheSpec
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import by_name, dtype_name
from engine.trace import Trace
from engine.trace_header import model_facts
from tests.browser.panels import (
    COMPARED,
    check_accessibility,
    command_trace,
    show,
    text_of,
    workload_trace,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page


def beside_fp32(page: Page, trace: Trace) -> None:
    show(page, "blocks", trace)
    page.get_by_role("button", name="Beside fp32").click()
    page.evaluate("harness.settle()")


def compared_trace(model: LoadedModel, dtype: str, compared: KVCacheCompared | None) -> Trace:
    """A log of an engine with a pool of this dtype, whose last word is a comparison."""
    trace = command_trace(compared, aside=True) if compared else workload_trace("01-single")
    spec = KVCacheSpec.of(model, trace.header.config["block_size"], by_name(dtype))
    facts = model_facts(model) | {
        "kv_cache_dtype": dtype,
        "kv_bytes_per_token": spec.bytes_per_token,
    }
    parsed = Trace.parse(text_of(trace).splitlines())
    parsed.header = parsed.header.model_copy(update={"model": facts})
    return parsed


@pytest.mark.usefixtures("blocks_again")
@pytest.mark.parametrize("own", ["float32", "fp8_e4m3"])
def test_the_room_in_each_dtype_is_what_a_pool_of_it_takes(
    page: Page, tiny_model: LoadedModel, own: str
) -> None:
    trace = compared_trace(tiny_model, own, None)
    beside_fp32(page, trace)
    size, blocks = trace.header.config["block_size"], trace.header.config["num_gpu_blocks"]
    pool = KVCacheSpec.of(tiny_model, size, by_name(own)).bytes_per_block * blocks
    shown = page.locator(".gbp-rooms tbody tr").all()
    for row, name in zip(shown, kv_names(), strict=True):
        block = KVCacheSpec.of(tiny_model, size, by_name(name)).bytes_per_block
        tokens = (pool // block - 1) * size
        assert name in (row.locator("th").text_content() or "")
        assert row.locator("td").nth(1).text_content() == f"{tokens:,}"
        assert ("is-taken" in (row.get_attribute("class") or "")) == (name == own)
        kinds = [node.get_attribute("data-truth") for node in row.locator("td.gb-truth").all()]
        assert kinds == ["derived", "derived"]


@pytest.mark.usefixtures("blocks_again")
def test_weights_in_fewer_bits_are_told_with_their_part_of_the_change(
    page: Page, tiny_model: LoadedModel
) -> None:
    rounded = {"quantization": "int8_weight_only", "quantized_layers": 28, "linear_layers": 29}
    words = page.locator(".gbp-blockshead .gbp-beside-words:visible")
    for compared, told in (
        (
            None,
            "Keys and values are kept in float32, as they come: none is rounded. Of 29 linear "
            "layers, 28 have weights in int8_weight_only.",
        ),
        (
            COMPARED._replace(weights="int8_weight_only", logits_error=0.0193),
            "In 17 tokens of r0, kept in fp8_e4m3, keys are off by 3.0 % and values by 4.3 %. Its "
            "weights, in int8_weight_only, move logits by 1.9 %. Its text goes another way than "
            "in fp32 at token 2 of 3.",
        ),
    ):
        trace = compared_trace(tiny_model, "float32", compared)
        model = trace.header.model | rounded
        trace.header = trace.header.model_copy(update={"model": model})
        beside_fp32(page, trace)
        assert (words.text_content() or "").startswith(told)


def kv_names() -> list[str]:
    """The dtypes in the page's order: all that a setting can name, and fp32."""
    settings = get_args(EngineConfig.model_fields["kv_cache_dtype"].annotation)
    names = {dtype_name(by_name(name)) for name in settings if name != "auto"} | {"float32"}
    order = ["float32", "bfloat16", "float16", "int8_per_token_head", "fp8_e4m3", "fp8_e5m2"]
    assert names == set(order)
    return order


@pytest.mark.usefixtures("blocks_again")
def test_a_comparison_is_told_in_words_figures_bars_and_text(
    page: Page, tiny_model: LoadedModel
) -> None:
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", COMPARED))
    words = page.locator(".gbp-blockshead .gbp-beside-words:visible").text_content()
    assert words == (
        "In 17 tokens of r0, kept in fp8_e4m3, keys are off by 3.0 % and values by 4.3 %. "
        "Its text goes another way than in fp32 at token 2 of 3."
    )
    texts = page.locator(".gbp-fp32-text dd")
    assert texts.all_text_contents() == ["one <b>two</b> three", "one too many"]
    marked = page.locator(".gbp-fp32-text mark").all_text_contents()
    assert marked == [" <b>two</b> three", " too many"]
    heights = page.evaluate(
        """() => [...harness.box.querySelectorAll('.gbp-layers i')].map((bar) =>
          [bar, bar.firstChild].map((each) => each.getBoundingClientRect().height))"""
    )
    widths = page.locator(".gbp-layers i").evaluate_all(
        "bars => bars.map((bar) => bar.clientWidth)"
    )
    assert min(widths) >= 3
    tallest = heights[3][0]
    for (whole, rounding), error, part in zip(
        heights, (0.026, 0.027, 0.034, 0.06), (0.026, 0.027, 0.025, 0.026), strict=True
    ):
        assert whole / tallest == pytest.approx(error / 0.06, abs=0.02)
        assert rounding / tallest == pytest.approx(part / 0.06, abs=0.02)
    assert page.get_by_role("button", name="Compare r0 with fp32").is_disabled()  # a saved trace


@pytest.mark.usefixtures("blocks_again")
def test_a_comparison_without_a_difference_or_without_anything_says_so(
    page: Page, tiny_model: LoadedModel
) -> None:
    words = page.locator(".gbp-blockshead .gbp-beside-words:visible")
    same = COMPARED._replace(differs_at=-1, in_fp32=COMPARED.written, greedy=False)
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", same))
    assert (words.text_content() or "").endswith("Its 3 tokens of text are those that fp32 writes.")
    assert page.locator(".gbp-fp32-text mark").count() == 0
    nothing = COMPARED._replace(
        num_tokens=0, num_outputs=0, differs_at=-1, written=(), in_fp32=(), key_errors=(),
        value_errors=(), key_rounding=(), value_rounding=(),
    )  # fmt: skip
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", nothing))
    assert words.text_content() == (
        "The pool has no key or value of r0. It has written nothing yet."
    )
    assert page.locator(".gbp-layers").count() == page.locator(".gbp-fp32-text dd").count() == 0


def test_the_pool_says_in_what_it_keeps_a_token(page: Page, tiny_model: LoadedModel) -> None:
    show(page, "blocks", compared_trace(tiny_model, "int8_per_token_head", None))
    size = KVCacheSpec.of(tiny_model, 1, by_name("int8_per_token_head")).bytes_per_token
    assert page.locator(".gbp-dtype").text_content() == f"int8_per_token_head, {size} B a token"


@pytest.mark.parametrize("theme,width", [("light", 1240), ("dark", 370)])
def test_the_comparison_fits_and_axe_finds_no_fault(
    open_page: Callable[..., Page], tiny_model: LoadedModel, theme: str, width: int
) -> None:
    page = open_page(theme, width)
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", COMPARED))
    fits = "width => document.documentElement.scrollWidth <= width"
    page.wait_for_function(fits, arg=width)
    check_accessibility(page)
