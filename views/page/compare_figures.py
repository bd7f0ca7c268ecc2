"""The figures of two runs as tables: what was decided, what was measured, what was written.

Whatever a model wrote goes into the page as escaped text.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from engine.comparison.comparisons import Comparison, order
from engine.comparison.figures import LATENCIES, spread
from engine.comparison.result import Difference, Result, RunResult
from views.page.compare_charts import NAMES

_DECIDED = (
    "Decisions and what follows from them: exact, the same each time these settings run this "
    "workload."
)
_ALIKE_EACH = " All {runs} runs of each side decided the same."
_MEASURED = (
    "Times, measured on this machine in one run each ({device}): other runs give others. Have each "
    "side run several times to see how much.{rehearsed}"
)
_MEASURED_AGAIN = (
    "Times, measured on this machine ({device}) in {runs} runs of each side, in the order {order}: "
    "the median of the runs, and from the least of them to the most. Where the two ranges overlap, "
    "the difference may be chance.{rehearsed}"
)
_REHEARSED = " The first run of {which} captured graphs, and went again; its second go counts."
_ODD = (
    "Run {repetition} of {side} {what}, though its settings are those of {side}'s first run. What "
    "is shown as decided is the first run's, and is not to be relied on; please report this."
)
_BUSY = (
    "Other programs wanted the cores: the engine's thread had one for {a:.0%} of A's steps and "
    "{b:.0%} of B's. The times below say little; run both again when the machine is quieter."
)
_ENOUGH, _ALIKE = 0.75, 0.1  # of a core, for times to be compared
_SHOWN = 400  # characters of an output


class Row(NamedTuple):
    """One figure of both runs."""

    name: str
    how: str  # its provenance
    value: Callable[[RunResult], float | None]
    text: Callable[[float], str]


def whole(value: float) -> str:
    """A count."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """A part of all."""
    return f"{value:.1%}"


def time(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def rate(value: float) -> str:
    """So many a second."""
    return f"{value:,.1f}/s"


DECIDED = (
    Row("steps", "measured: steps of the log", lambda r: r.num_steps, whole),
    Row("preemptions", "measured: request_preempted events", lambda r: r.preemptions, whole),
    Row(
        "KV cache in use, at most",
        "derived: (blocks - free) ÷ blocks at the end of a step's schedule phase, the largest",
        lambda r: r.most_usage,
        share,
    ),
    Row(
        "prefix cache hit rate",
        "derived: tokens found ÷ tokens looked for, of requests that never ran before",
        lambda r: r.hit_rate,
        share,
    ),
    Row("tokens generated", "measured: token_appended events", lambda r: r.generated, whole),
    Row(
        "drafts accepted",
        "derived: drafts accepted ÷ drafts verified, of drafts_settled events",
        lambda r: r.accepted / r.drafts if r.drafts else None,
        share,
    ),
)


def _latency(name: str, which: str) -> Row:
    what = {
        "ttft": "from a request's coming to its first token",
        "itl": "between two outcomes of a request",
        "tpot": "from the first token to the last ÷ the tokens after the first",
        "e2e": "from a request's coming to its end",
    }[name]

    def value(run: RunResult) -> float | None:
        found: float | None = spread(run.samples[name])[which]
        return found

    shown = "P99" if which == "p99" else which
    return Row(f"{NAMES[name]}, {shown}", f"measured: {what}; as vLLM's metrics", value, time)


MEASURED = (
    *(_latency(name, which) for name in LATENCIES for which in ("median", "p99")),
    Row(
        "output tokens a second",
        "derived: tokens generated ÷ seconds from the first request to the last outcome",
        lambda r: r.per_second(r.generated),
        rate,
    ),
    Row(
        "all tokens a second",
        "derived: tokens of prompts and generated ÷ the same seconds",
        lambda r: r.per_second(r.generated + r.prompt_tokens),
        rate,
    ),
    Row("whole run", "measured: first request to last outcome", lambda r: r.seconds, time),
    Row(
        "of it, waiting for other engines",
        "measured: time in which a step stood in the queue of the engine thread",
        lambda r: r.waited,
        time,
    ),
    Row(
        "of its steps, with a core",
        "measured: CPU time of the engine's thread ÷ time of its steps; low where other programs "
        "want the cores",
        lambda r: r.core_share,
        share,
    ),
)


DEFINITIONS = (
    ("TTFT", "time to first token: from a request's coming to the outcome with its first token"),
    ("ITL", "inter-token latency: from one outcome of a request to its next one"),
    (
        "TPOT",
        "time per output token: from a request's first outcome to its last, divided by its tokens "
        "after the first; a request of one token has none",
    ),
    ("end to end", "from a request's coming to its last outcome"),
    (
        "median, P99",
        "half, and 99 of 100, of a run's values are no larger; of few values, P99 is nearly the "
        "largest",
    ),
)


def progress_text(comparison: Comparison) -> str:
    """Which run it is and how far: its steps are known in advance where its side has run before."""
    step, finished, requests, _ = comparison.progress
    again = " once more, since the first go captured graphs" if comparison.again else ""
    of_steps = f" of {comparison.steps}" if comparison.steps is not None else ""
    now = comparison.doing  # it takes longer than a step
    held = f". It is {now}" if now is not None else ""
    return (
        f"Run {comparison.run} of {len(comparison.order)}, of side {'AB'[comparison.side]}{again}: "
        f"step {step}{of_steps}, {finished} of {requests} requests finished{held}"
    )


def busy(result: Result) -> str:
    """Return what is to be said where the machine was too busy for times to mean much."""
    shares = [[run.core_share for run in side] for side in result.sides]
    known = [[share for share in side if share is not None] for side in shares]
    if not all(known):
        return ""
    a, b = (min(side) for side in known)
    if min(a, b) >= _ENOUGH and abs(a - b) <= _ALIKE:
        return ""
    return _BUSY.format(a=a, b=b)


def odd(result: Result) -> list[str]:
    """Return what is to be said of runs of one side that were not alike."""
    return [
        _ODD.format(
            side=each.side,
            repetition=each.repetition,
            what=f"decided otherwise from step {each.step} on, over {each.request}"
            if each.step is not None
            else f"wrote other tokens for {each.request}",
        )
        for each in result.unequal
    ]


def figures(result: Result, labels: tuple[str, str]) -> str:
    """Both tables, beside each other where there is room."""
    twice = [side for side, run in zip("AB", result.runs, strict=True) if run.rehearsed]
    runs = len(result.sides[0])
    decided = _DECIDED + (_ALIKE_EACH.format(runs=runs) if runs > 1 and not result.unequal else "")
    measured = (_MEASURED_AGAIN if runs > 1 else _MEASURED).format(
        device="CPU" if result.a.device == "cpu" else result.a.device,
        runs=runs,
        order=" ".join("AB"[side] for side in order(runs)),
        rehearsed=_REHEARSED.format(which=" and of ".join(twice)) if twice else "",
    )
    firsts = tuple([run] for run in result.runs)
    return (
        '<div class="gb-compare-figures">'
        + _table("Decided", decided, DECIDED, firsts, labels, _definitions())
        + _table("Measured", measured, MEASURED, result.sides, labels)
        + "</div>"
    )


def _definitions() -> str:
    rows = "".join(f"<dt>{name}</dt><dd>{html.escape(what)}</dd>" for name, what in DEFINITIONS)
    return f"<h4>What the times are</h4><dl>{rows}</dl>"


Runs = Sequence[Sequence[RunResult]]  # of A, and of B


def _table(
    title: str,
    note: str,
    rows: tuple[Row, ...],
    sides: Runs,
    labels: tuple[str, str],
    below: str = "",
) -> str:
    head = "".join(
        f'<th scope="col" title="{html.escape(name)}"><b data-side="{side}">{side}</b></th>'
        for side, name in zip("AB", labels, strict=True)
    )
    body = "".join(_row(row, sides) for row in rows)
    return (
        f"<section><h4>{title}</h4><p>{html.escape(note)}</p><table><thead><tr>"
        f'<th scope="col">figure</th>{head}<th scope="col">B beside A</th></tr></thead>'
        f"<tbody>{body}</tbody></table>{below}</section>"
    )


def _row(row: Row, sides: Runs) -> str:
    values = [[v for v in map(row.value, side) if v is not None] for side in sides]
    a, b = (median(side) if side else None for side in values)
    if a is None and b is None:
        return ""
    cells = "".join(f"<td>{_cell(row, side)}</td>" for side in values)
    return (
        f'<tr><th scope="row"><span title="{html.escape(row.how)}">{html.escape(row.name)}</span>'
        f"</th>{cells}<td>{beside(a, b)}</td></tr>"
    )


def _cell(row: Row, values: list[float]) -> str:
    """A side's median, and how far its runs lie apart."""
    if not values:
        return "none"
    low, high = row.text(min(values)), row.text(max(values))
    apart = f"<small>{low} to {high}</small>" if len(values) > 1 else ""
    return row.text(median(values)) + apart


def beside(a: float | None, b: float | None) -> str:
    """How the second value stands to the first one."""
    if a is None or b is None:
        return ""
    if a == b:
        return "same"
    return f"× {b / a:.2f}" if a and b else ""


def outputs(result: Result) -> str:
    """Each request's texts: the same in both, or from which token on they are not."""
    rows = "".join(_output(one) for one in result.texts)
    return (
        '<div class="gb-compare-outputs"><table><thead><tr><th scope="col">request</th>'
        '<th scope="col">text</th><th scope="col"><b data-side="A">A</b></th>'
        '<th scope="col"><b data-side="B">B</b></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _output(one: Difference) -> str:
    if one.same:
        said, cells = "same", f'<td colspan="2">{_text(one.a.text)}</td>'
    else:
        said = (
            f"differs from token {one.at} on"
            if one.at is not None
            else f"same, but {len(one.a.tokens)} and {len(one.b.tokens)} tokens long"
        )
        cells = f"<td>{_text(one.a.text)}</td><td>{_text(one.b.text)}</td>"
    return f'<tr><th scope="row">{html.escape(one.request)}</th><td>{said}</td>{cells}</tr>'


def _text(text: str) -> str:
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return html.escape(cut) or "<i>nothing</i>"
