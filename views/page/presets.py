"""Ready-made requests, each of which makes one thing of the engine happen for certain.

A preset fills the composer; it sends nothing. `promise` is what its trace must hold, and the tests
run every preset on a real engine to see that it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.config import EngineConfig
from views.page.drafts import Draft, Mode, SamplingFields


@dataclass(frozen=True)
class Promise:
    """What must appear in the log: an event, and where it is a decision, its reason.

    Where a fact of it is named, it must be more than none.
    """

    event: str
    reason: str | None = None
    fact: str | None = None


@dataclass(frozen=True)
class Preset:
    """Requests to try, the settings they need, and what to look at.

    The promise is tested with the default settings, changed by `settings`: it is made for these
    only, and where the engine has others, a preset comes with a reset.
    """

    id: str
    label: str
    watch: str
    prompts: tuple[str, ...]
    max_tokens: int
    promise: Promise
    mode: Mode = "prompt"
    system: str = ""
    ignore_eos: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The prompts as the composer shows them, a request a line."""
        return "\n".join(self.prompts)

    @property
    def draft(self) -> Draft:
        """What the composer holds once the preset has filled it."""
        sampling = SamplingFields(max_tokens=self.max_tokens, ignore_eos=self.ignore_eos)
        return Draft(self.text, self.mode, "lines", system=self.system, sampling=sampling)

    def missing(self, config: EngineConfig) -> dict[str, Any]:
        """Return the settings that the engine would have to change for the promise to hold."""
        wanted = EngineConfig.parse(self.settings)
        if config.max_model_len == config.largest_request():
            # As many as fit: an engine that goes on from a saved one has that as a number.
            config = config.model_copy(update={"max_model_len": None})
        return {
            name: getattr(wanted, name)
            for name in EngineConfig.model_fields
            if (name not in _NO_MATTER or name in self.settings)
            and getattr(config, name) != getattr(wanted, name)
        }


# Presets sample greedily: neither how a forward runs nor whether steps overlap decides what they
# show. The last ones count in a pool sized by memory, and where priorities choose the victim.
_NO_MATTER = (
    *("seed", "enforce_eager", "dtype", "quantization", "kv_cache_dtype"),
    "async_scheduling",
    *("gpu_memory_utilization", "kv_cache_memory_bytes", "cache_uncomputed_blocks"),
)


# Four full blocks of 16 tokens that every later request can hit: 67 tokens of SmolLM2's tokenizer,
# and at least 64 of any other whose tokens have 4.7 of these 301 characters on average, or fewer.
_SYSTEM = (
    "You are the guide of a small museum of lighthouses. Every visitor gets a short, friendly "
    "answer in plain words. Name one lighthouse, say where it stands and how high it is, and end "
    "with a fact that a child would tell at dinner. Never mention the price of the tickets, the "
    "opening hours or the weather."
)

_LONG = (
    "A kitchen on a Friday evening is a scheduler. Orders come in faster than plates go out, and "
    "the cook at the pass decides who gets the next free minute of the stove. A table of two "
    "wants soup, which takes a moment; a table of twelve wants a roast, which takes an hour. If "
    "the roast had the stove to itself, the soup would be cold before it was warm. So the cook "
    "cuts the roast into pieces of work: a while for the roast, and in every while a little for "
    "each soup that is already simmering. Nobody gets the whole stove, and nobody stands before "
    "an empty plate. The roast arrives a little later than it might have, and the soups arrive at"
    " a steady pace, one spoon after the other. What the guests of a good kitchen praise is not "
    "the speed of the stove, it is that the next spoon always comes. The moral of this story is"
)

PRESETS: tuple[Preset, ...] = (
    Preset(
        id="shared-prefix",
        label="Shared prefix",
        watch=(
            "The shared beginning is computed once: later requests hit its full blocks in the "
            "cache, and several block tables point at the same physical blocks."
        ),
        mode="chat",
        system=_SYSTEM,
        prompts=(
            "Tell me about a lighthouse in France.",
            "Which lighthouse is the oldest?",
            "Is there a lighthouse made of wood?",
            "Where do the keepers sleep?",
        ),
        max_tokens=12,
        promise=Promise("blocks_hit"),
        settings={"enable_prefix_caching": True},
    ),
    Preset(
        id="long-and-short",
        label="Long and short",
        watch=(
            "The long prompt is computed in chunks of what the step's budget has left, while each "
            "short request gets its token in every step."
        ),
        prompts=(
            "The sky is blue because",
            "Two and two make",
            "Bread is made of",
            _LONG,
        ),
        max_tokens=12,
        ignore_eos=True,
        promise=Promise("request_scheduled", "budget_left"),
        settings={
            "max_num_batched_tokens": 64,
            "enable_chunked_prefill": True,
            "long_prefill_token_threshold": 0,
        },
    ),
    Preset(
        id="more-than-seats",
        label="Few seats",
        watch=(
            "Three requests run, the others wait; when one finishes, the head of the queue takes "
            "its seat in the next step."
        ),
        prompts=(
            "One, two,",
            "Red, green,",
            "Monday, Tuesday,",
            "January, February,",
            "North, east,",
            "Spring, summer,",
            "Do, re, mi,",
        ),
        max_tokens=6,
        ignore_eos=True,
        promise=Promise("admission_stopped", "seats_full"),
        settings={"max_num_seqs": 3},
    ),
    Preset(
        id="memory-pressure",
        label="Memory pressure",
        watch=(
            "The answers outgrow the pool: a request loses its blocks, waits at the front of the "
            "queue and starts over; it hits those of its blocks that are still cached."
        ),
        prompts=(
            "Once upon a time there was a clockmaker who",
            "Deep in the forest there was a library where",
            "On the last day of summer the whole village",
            "The captain opened the letter and read that",
        ),
        max_tokens=64,
        ignore_eos=True,
        promise=Promise("request_preempted"),
        settings={"num_gpu_blocks": 14, "block_size": 16, "max_num_seqs": 4},
    ),
    Preset(
        id="speculation",
        label="Speculation",
        watch=(
            "What followed the same last tokens before is drafted, and one forward verifies it "
            "all: where a text repeats itself, a step brings several tokens."
        ),
        prompts=(
            "one, two, three, four, one, two, three, four, one, two,",
            "The cat saw the dog. The dog saw the cat. The cat saw the dog. The dog",
            "My favourite colours are green, blue and",
        ),
        max_tokens=48,
        ignore_eos=True,
        promise=Promise("drafts_verified", fact="num_accepted"),
        settings={
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "prompt_lookup_min": 2,
                "prompt_lookup_max": 4,
            },
            "async_scheduling": False,  # drafts come from the tokens of the step before
        },
    ),
)


def preset_by_id(preset_id: str) -> Preset | None:
    """Return the preset of that name, or None."""
    return next((preset for preset in PRESETS if preset.id == preset_id), None)
