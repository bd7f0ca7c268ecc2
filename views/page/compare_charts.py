"""The figures of two runs as Plotly charts: to zoom into, and to save as pictures."""

from __future__ import annotations

import html
from statistics import median
from typing import Any, NamedTuple

from engine.comparison.figures import LATENCIES, spread
from engine.comparison.result import Result, RunResult

# Blue and ochre, which nobody takes for each other; a dash and a diamond say it once more. Both are
# to be seen on a light page and on a dark one: all else of a chart follows the theme by itself.
HUES = ("#3473ea", "#ad701a")
DASHES = ("solid", "dash")
SHAPES = ("circle", "diamond")
NAMES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "end to end"}
HEIGHT = 340


class Chart(NamedTuple):
    """A figure, and the same in a sentence for who does not see it."""

    name: str  # of the picture's file
    title: str
    figure: dict[str, Any]
    alt: str


def charts(result: Result, labels: tuple[str, str]) -> list[Chart]:
    """Return what there is to see of a comparison."""
    look = Look(labels, HUES)
    return [
        latencies(result, look),
        throughput(result, look),
        over_steps(result, look, "kv-cache-usage", "KV cache in use while the step ran", usage),
        over_steps(result, look, "prefix-hit-rate", "Prefix cache hit rate so far", hit_rates),
    ]


class Look(NamedTuple):
    """How the two runs are told apart."""

    labels: tuple[str, str]
    hues: tuple[str, str]

    def name(self, number: int) -> str:
        """A run in a legend. Plotly takes `<b>`, `<a href=...>` and `&lt;` for markup."""
        return f"{'AB'[number]}: {html.escape(self.labels[number], quote=False)}"

    def line(self, number: int, **more: Any) -> dict[str, Any]:
        """A run's line."""
        return {"color": self.hues[number], "dash": DASHES[number], "width": 2, **more}


def layout(title: str, x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    """What all figures have; the theme adds its fonts and colours."""
    return {
        # Below the buttons, which reach over all of a narrow figure; in two lines if need be.
        "title": {"text": title.replace(", ", ",<br>", 1), "font": {"size": 14}}
        | {"yref": "paper", "y": 1, "yanchor": "bottom", "pad": {"b": 18}},
        "xaxis": x,
        "yaxis": y,
        "height": HEIGHT,
        "margin": {"l": 56, "r": 12, "t": 86, "b": 96},
        "legend": {"orientation": "h", "y": -0.36, "x": 0},
        "hovermode": "closest",
    }


def latencies(result: Result, look: Look) -> Chart:
    """Median and P99 of each latency, in milliseconds on a scale of tens."""
    traces: list[dict[str, Any]] = []
    said = []
    for number, side in enumerate(result.sides):
        each = [{name: spread(run.samples[name]) for name in LATENCIES} for run in side]
        known = [name for name in LATENCIES if each[0][name]["count"]]
        found = {
            name: {
                which: [figures[name][which] * 1e3 for figures in each]
                for which in ("median", "p99")
            }
            for name in known
        }
        for which, shown in (("median", "median"), ("p99", "P99")):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{'AB'[number]} {shown}",
                    "x": [LATENCIES.index(name) + (number - 0.5) * 0.3 for name in known],
                    "y": [median(found[name][which]) for name in known],
                    "error_y": apart([found[name][which] for name in known]),
                    "customdata": [
                        [look.name(number), NAMES[name], each[0][name]["count"]] for name in known
                    ],
                    "hovertemplate": "%{customdata[0]}<br>%{customdata[1]} "
                    + f"{shown}: %{{y:.3~g}} ms<br>of %{{customdata[2]}} values<extra></extra>",
                    "marker": {
                        "color": look.hues[number],
                        "symbol": SHAPES[number] + ("" if which == "median" else "-open"),
                        "size": 11,
                        "line": {"width": 2, "color": look.hues[number]},
                    },
                }
            )
        said += [
            f"{'AB'[number]} {NAMES[name]} median {median(found[name]['median']):.3g} ms, "
            f"P99 {median(found[name]['p99']):.3g} ms"
            for name in known
        ]
    x = {
        "tickvals": list(range(len(LATENCIES))),
        "ticktext": [NAMES[name] for name in LATENCIES],
        "range": [-0.5, len(LATENCIES) - 0.5],
    }
    title = "Latencies: median (filled) and P99 (open)"
    if len(result.sides[0]) > 1:
        title += ", median of the runs and their range"
    figure = {"data": traces, "layout": layout(title, x, milliseconds())}
    return Chart("latencies", title, figure, f"{title}. {'; '.join(said)}.")


def apart(values: list[list[float]]) -> dict[str, Any]:
    """Bars from the least of some runs to the most, about their median; none for a single run."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(runs) - median(runs) for runs in values],
        "arrayminus": [median(runs) - min(runs) for runs in values],
        "visible": any(len(runs) > 1 for runs in values),
        "thickness": 1.5,
    }


def milliseconds() -> dict[str, Any]:
    """A scale of tens, since a token takes a hundredth of what its request takes."""
    return {"title": {"text": "milliseconds"}, "type": "log", "dtick": 1, "exponentformat": "none"}


def throughput(result: Result, look: Look) -> Chart:
    """Tokens generated over time: the steeper, the more a second."""
    traces = []
    for number, run in enumerate(result.runs):
        first = run.first_us
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": look.name(number),
                "x": [0.0, *((step.t_us - first) / 1e6 for step in run.steps)],
                "y": [0, *(step.generated for step in run.steps)],
                "customdata": [None, *(step.step for step in run.steps)],
                "hovertemplate": "%{y} tokens after %{x:.3f} s<br>step %{customdata}"
                f"<extra>{'AB'[number]}</extra>",
                "line": look.line(number),
            }
        )
    title = "Throughput: tokens generated over time"
    if len(result.sides[0]) > 1:
        title += ", in the first run of each"
    x = {"title": {"text": "seconds since the first request came"}, "rangemode": "tozero"}
    y = {"title": {"text": "tokens"}, "rangemode": "tozero"}
    said = "; ".join(
        f"{'AB'[number]} {run.generated} tokens in {run.seconds:.3g} s, "
        f"{run.per_second(run.generated):.3g} a second"
        for number, run in enumerate(result.runs)
    )
    return Chart(
        "throughput", title, {"data": traces, "layout": layout(title, x, y)}, f"{title}. {said}."
    )


def usage(run: RunResult) -> list[float | None]:
    """Share of the blocks that was in use, step by step."""
    return [step.kv_cache_usage for step in run.steps]


def hit_rates(run: RunResult) -> list[float | None]:
    """Share of the tokens looked for that were found, up to each step; None before the first."""
    return [step.hits / step.queries if step.queries else None for step in run.steps]


def over_steps(result: Result, look: Look, name: str, title: str, values: Any) -> Chart:
    """A share of both runs over the steps that they have in common, and beyond."""
    traces = []
    said = []
    for number, run in enumerate(result.runs):
        shares = values(run)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": look.name(number),
                "x": [step.step for step in run.steps],
                "y": shares,
                "hovertemplate": "%{y:.1%} in step %{x}" + f"<extra>{'AB'[number]}</extra>",
                "line": look.line(number, shape="hv"),
            }
        )
        known = [share for share in shares if share is not None]
        most = f"{max(known):.1%} at most, {known[-1]:.1%} at the end" if known else "none"
        said.append(f"{'AB'[number]} {most}")
    layer = layout(
        title,
        {"title": {"text": "step"}, "rangemode": "tozero"},
        {"tickformat": ".0%", "rangemode": "tozero"},
    )
    if result.divergence is not None:
        layer["shapes"] = [
            {
                "type": "line",
                "x0": result.divergence.step,
                "x1": result.divergence.step,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": "#e11d48", "width": 1.5, "dash": "dot"},
                "label": {"text": "first difference", "textposition": "end", "textangle": 0}
                | {"xanchor": "left", "yanchor": "top", "padding": 4},
            }
        ]
    return Chart(name, title, {"data": traces, "layout": layer}, f"{title}. {'; '.join(said)}.")
