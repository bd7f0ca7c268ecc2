"""How far a comparison is, and what it found: both logs on one clock, figures, charts, texts."""

from __future__ import annotations

import json

import streamlit as st

from engine.comparison.comparisons import Comparison
from engine.comparison.result import Result
from views.page.bootstrap import bootstrap
from views.page.compare_charts import charts
from views.page.compare_figures import busy, figures, odd, outputs, progress_text
from views.page.words import plain, sentence

_EVERY_SECONDS = 0.4


def outcome(comparison: Comparison) -> None:
    """Draw how a comparison stands."""
    match comparison.stage:
        case "running":
            _progress(comparison)
        case "failed":
            st.error(plain(sentence(comparison.problem)))
        case "cancelled":
            st.info("Cancelled. Nothing was kept of it.")
        case "done":
            assert comparison.result is not None
            _result(comparison, comparison.result)


@st.fragment(run_every=_EVERY_SECONDS)
def _progress(comparison: Comparison) -> None:
    if comparison.stage != "running":
        st.rerun()
    st.progress(comparison.share, text=plain(progress_text(comparison)))
    st.button("Cancel", key="gb-compare-cancel", on_click=comparison.cancel)


def _result(comparison: Comparison, result: Result) -> None:
    labels = comparison.labels
    _strips(result, labels)
    for warning in (*odd(result), busy(result)):
        if warning:
            st.warning(plain(warning), icon=":material/warning:")
    st.html(figures(result, labels))
    columns = st.columns(2, gap="small")
    for place, chart in enumerate(charts(result, labels)):
        with columns[place % 2]:
            st.plotly_chart(
                chart.figure,
                key=f"gb-compare-chart-{chart.name}",
                alt=chart.alt,
                config={
                    "displaylogo": False,
                    "displayModeBar": True,
                    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
                    "toImageButtonOptions": {"filename": f"glassbox-{chart.name}", "scale": 2},
                },
            )
    with st.expander("What the requests wrote"):
        st.html(outputs(result))


def _strips(result: Result, labels: tuple[str, str]) -> None:
    told = [each and each._asdict() for each in (result.divergence, result.dispatch)]
    data = {
        "id": f"{result.a.trace_id}:{result.b.trace_id}",
        "labels": list(labels),
        "steps": min(run.num_steps for run in result.runs),
        "divergence": told[0],
        "dispatch": told[1],
    }
    component = st.components.v2.component("compare", js=bootstrap("compare/compare.js"))
    component(key="gb-compare-strips", data=json.loads(json.dumps(data)))
