"""Who may send to the shared engine, and whose key is whose."""

from __future__ import annotations

import pytest

from engine.audience import KNOWN_SECONDS, MOST_KNOWN, Audience, NotAdmitted, OpenTo, Rules
from engine.config import ConfigError, SamplingParams
from engine.engine_errors import EngineBusy
from engine.input_processor import Encoded


def asked(prompt: int = 4, max_tokens: int = 6, n: int = 1) -> Encoded:
    params = SamplingParams(max_tokens=max_tokens, n=n)
    return Encoded("", list(range(prompt)), params, 0, "")


@pytest.mark.parametrize(
    ("open_to", "refused"),
    [("everybody", []), ("class", ["http"]), ("nobody", ["http", "class:Ada"])],
)
def test_it_is_open_to_whom_the_teacher_says(open_to: OpenTo, refused: list[str]) -> None:
    audience = Audience()
    audience.rules = Rules(open_to)
    for source in ("http", "class:Ada", "page"):  # the last one is who directs the engine
        if source in refused:
            with pytest.raises(NotAdmitted, match="shared engine takes"):
                audience.admit([asked()], source, 0)
        else:
            audience.admit([asked()], source, 0)


def test_a_sender_has_so_many_at_once_and_is_told_how_many_there_are() -> None:
    audience = Audience()
    audience.rules = Rules(most_requests=3)
    audience.admit([asked(n=2), asked()], "class:Ada", 0)
    audience.admit([asked()], "class:Ada", 2)
    with pytest.raises(
        EngineBusy, match=r"takes 3 of a sender at once, you have 2 under way, .* 2"
    ):
        audience.admit([asked(n=2)], "class:Ada", 2)
    with pytest.raises(EngineBusy, match="those without a name have 3"):
        audience.admit([asked()], "http", 3)


def test_a_request_has_so_many_tokens_and_is_told_what_would_do() -> None:
    audience = Audience()
    audience.rules = Rules(most_tokens=10)
    audience.admit([asked(4, 6)], "class:Ada", 0)
    with pytest.raises(ConfigError, match="set max_tokens to 6 or less") as caught:
        audience.admit([asked(), asked(4, 7)], "class:Ada", 0)
    assert caught.value.field == "max_tokens"
    with pytest.raises(ConfigError, match="shorten the prompt"):
        audience.admit([asked(10, 1)], "class:Ada", 0)


def test_a_key_is_looked_up_anew_and_what_nobody_has_is_not_remembered() -> None:
    now, names = 0.0, {"gb-class-1": "Ada"}
    audience = Audience(lambda: now)
    audience.look_up = names.get
    assert audience.name_of("gb-class-1") == "Ada"
    assert audience.source_of("gb-class-1") == "class:Ada"
    assert audience.source_of("gb-1") == "http"
    names["gb-1"] = "not asked for"
    assert audience.name_of("gb-1") is None
    del names["gb-class-1"]
    assert audience.name_of("gb-class-1") == "Ada"
    now += KNOWN_SECONDS
    assert audience.name_of("gb-class-1") is None
    names |= {f"gb-class-{n}": str(n) for n in range(MOST_KNOWN + 5)}
    assert all(audience.name_of(key) == name for key, name in names.items() if key != "gb-1")
    assert len(audience._known) == MOST_KNOWN
