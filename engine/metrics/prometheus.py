"""An engine's stats as Prometheus metrics, under vLLM's names.

Part of box `async-engine`. vLLM 0.26.0: `vllm/v1/metrics/loggers.py` (`PrometheusStatLogger`).
Names, types, labels and buckets are vLLM's. What vLLM has and this does not, since there is no
such figure here: sleep state, external and multi-modal caches, estimated FLOPs and bytes, the
label values `deferred`, `external_kv_transfer`, `error` and `repetition`, and `_created`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from engine.metrics.histogram import Histogram
from engine.metrics.stats import EngineStats, Histograms
from engine.sizing import CacheSize

ENGINE = "0"  # one engine answers a scrape; vLLM numbers those of its data-parallel ranks
LABELS = ("model_name", "engine")


class Figure(NamedTuple):
    """A gauge or a counter; with a label of its own, a value for each of the label's."""

    name: str
    help: str
    read: Callable[[EngineStats], float | dict[str, float]]
    label: str | None = None


class Distribution(NamedTuple):
    """A histogram."""

    name: str
    help: str
    read: Callable[[Histograms], Histogram]


GAUGES = (
    Figure("num_requests_running", "Requests that have a seat.", lambda s: s.num_running),
    Figure(
        "num_requests_waiting",
        "Requests in the waiting queue; those that no step has taken in yet are not in it.",
        lambda s: s.num_waiting,
    ),
    Figure(
        "num_requests_waiting_by_reason",
        "Requests in the waiting queue; all of them wait for capacity here.",
        lambda s: {"capacity": s.num_waiting},
        "reason",
    ),
    Figure(
        "kv_cache_usage_perc",
        "Share of the KV cache's blocks that somebody holds, from 0 to 1.",
        lambda s: s.kv_cache_usage,
    ),
)

COUNTERS = (
    Figure(
        "prefix_cache_queries",
        "Tokens looked for in the prefix cache, for requests that were not preempted.",
        lambda s: s.prefix_queries,
    ),
    Figure("prefix_cache_hits", "Of these, tokens found.", lambda s: s.prefix_hits),
    Figure("num_preemptions", "Preemptions.", lambda s: s.num_preemptions),
    Figure(
        "prompt_tokens",
        "Prompt tokens of requests that have got their first token.",
        lambda s: s.prompt_tokens,
    ),
    Figure(
        "prompt_tokens_by_source",
        "Prompt tokens by where their KV came from.",
        lambda s: {
            "local_compute": s.prompt_tokens_computed,
            "local_cache_hit": s.prompt_tokens_cached,
        },
        "source",
    ),
    Figure(
        "prompt_tokens_cached",
        "Prompt tokens that came from the prefix cache.",
        lambda s: s.prompt_tokens_cached,
    ),
    Figure("generation_tokens", "Tokens generated.", lambda s: s.generation_tokens),
    Figure(
        "request_success",
        "Requests that came to their end; a request that its client took back did not.",
        lambda s: dict(s.finished),
        "finished_reason",
    ),
)

# Only of an engine that speculates, as in vLLM (`vllm/v1/spec_decode/metrics.py`).
DRAFT_COUNTERS = (
    Figure(
        "spec_decode_num_drafts",
        "Requests that had drafts verified, counted once a step.",
        lambda s: s.num_drafts,
    ),
    Figure("spec_decode_num_draft_tokens", "Drafts verified.", lambda s: s.num_draft_tokens),
    Figure("spec_decode_num_accepted_tokens", "Drafts kept.", lambda s: s.num_accepted_tokens),
    Figure(
        "spec_decode_num_accepted_tokens_per_pos",
        "Drafts kept, by their place in the draft.",
        lambda s: {str(place): count for place, count in enumerate(s.accepted_per_pos)},
        "position",
    ),
)

HISTOGRAMS = (
    Distribution(
        "request_prompt_tokens", "Prompt tokens of finished requests.", lambda h: h.prompt_tokens
    ),
    Distribution(
        "request_generation_tokens",
        "Tokens generated for finished requests.",
        lambda h: h.generation_tokens,
    ),
    Distribution(
        "iteration_tokens_total",
        "Tokens of a step that returned any: those it generated, and the computed prompt tokens "
        "of requests that got their first one.",
        lambda h: h.iteration_tokens,
    ),
    Distribution(
        "request_max_num_generation_tokens",
        "Tokens of the longest of a request's n sequences.",
        lambda h: h.max_num_generation_tokens,
    ),
    Distribution("request_params_n", "n of finished requests.", lambda h: h.n),
    Distribution(
        "request_params_max_tokens", "max_tokens of finished requests.", lambda h: h.max_tokens
    ),
    Distribution(
        "time_to_first_token_seconds",
        "From the arrival at the front end to the first token there.",
        lambda h: h.time_to_first_token,
    ),
    Distribution(
        "inter_token_latency_seconds",
        "Between a request's tokens, as the engine returned them.",
        lambda h: h.inter_token_latency,
    ),
    Distribution(
        "request_time_per_output_token_seconds",
        "Decode time by tokens but the first, of finished requests.",
        lambda h: h.time_per_output_token,
    ),
    Distribution(
        "e2e_request_latency_seconds",
        "From the arrival to the last token, both at the front end.",
        lambda h: h.e2e_latency,
    ),
    Distribution(
        "request_queue_time_seconds",
        "From the waiting queue to the first share of a step.",
        lambda h: h.queue_time,
    ),
    Distribution(
        "request_inference_time_seconds",
        "From the first share of a step to the last token.",
        lambda h: h.inference_time,
    ),
    Distribution(
        "request_prefill_time_seconds",
        "From the first share of a step to the first token.",
        lambda h: h.prefill_time,
    ),
    Distribution(
        "request_decode_time_seconds",
        "From the first token to the last one.",
        lambda h: h.decode_time,
    ),
    Distribution(
        "request_prefill_kv_computed_tokens",
        "Prompt tokens of finished requests that did not come from the prefix cache.",
        lambda h: h.prefill_kv_computed_tokens,
    ),
)


class EngineCollector(Collector):
    """Makes samples of one engine's stats when it is scraped."""

    def __init__(self, stats: EngineStats):
        self.stats = stats

    def collect(self) -> Iterator[Metric]:
        yield cache_config_info(self.stats)
        for figure in GAUGES:
            yield self._figure(GaugeMetricFamily, figure)
        speculates = self.stats.config.speculative_config is not None
        for figure in COUNTERS + (DRAFT_COUNTERS if speculates else ()):
            yield self._figure(CounterMetricFamily, figure)
        for distribution in HISTOGRAMS:
            yield self._histogram(distribution)

    def _figure(
        self, make: type[GaugeMetricFamily] | type[CounterMetricFamily], figure: Figure
    ) -> Metric:
        labels = LABELS if figure.label is None else (*LABELS, figure.label)
        family = make("vllm:" + figure.name, figure.help, labels=labels)
        value = figure.read(self.stats)
        for extra, number in value.items() if isinstance(value, dict) else [(None, value)]:
            family.add_metric([*self._labels, *([] if extra is None else [extra])], number)
        return family

    def _histogram(self, distribution: Distribution) -> Metric:
        histogram = distribution.read(self.stats.histograms)
        family = HistogramMetricFamily(
            "vllm:" + distribution.name, distribution.help, labels=LABELS
        )
        bounds = (*histogram.bounds, float("inf"))
        buckets = zip(map(floatToGoString, bounds), histogram.cumulative(), strict=True)
        family.add_metric(self._labels, list(buckets), histogram.sum)
        return family

    @property
    def _labels(self) -> list[str]:
        return [self.stats.model_name, ENGINE]


def cache_config_info(stats: EngineStats) -> Metric:
    """1, with the settings of the cache as labels, under the names of vLLM's CacheConfig."""
    config = stats.config
    overridden = stats.pool_set_by == "num_gpu_blocks"
    cache = CacheSize(config.num_gpu_blocks, config.block_size, config.max_model_len or 1)
    labels = {
        "block_size": config.block_size,
        "cache_dtype": config.kv_cache_dtype,
        "enable_prefix_caching": config.enable_prefix_caching,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "kv_cache_max_concurrency": cache.max_concurrency,
        "kv_cache_memory_bytes": config.kv_cache_memory_bytes,
        "kv_cache_size_tokens": cache.num_tokens,
        "num_gpu_blocks": config.num_gpu_blocks,
        "num_gpu_blocks_override": config.num_gpu_blocks if overridden else None,
        "prefix_caching_hash_algo": "sha256",
        "engine": ENGINE,
    }
    family = GaugeMetricFamily(
        "vllm:cache_config_info", "Settings of the KV cache.", labels=list(labels)
    )
    family.add_metric([str(value) for value in labels.values()], 1)
    return family


def exposition(stats: EngineStats | None, accept: str) -> tuple[bytes, str]:
    """The metrics of an engine and of the process, in the format that `accept` asks for.

    Returns the body and its content type: Prometheus' text, or OpenMetrics.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PROCESS_COLLECTOR)
    if stats is not None:
        registry.register(EngineCollector(stats))
    for media in accept.split(","):  # clients name what they like best first
        match media.split(";")[0].strip().lower():
            case "application/openmetrics-text":
                # Any other way of escaping would rename `vllm:`, whose colon needs none.
                body: bytes = openmetrics.generate_latest(  # type: ignore[no-untyped-call]
                    registry, escaping=openmetrics.ALLOWUTF8
                )
                return body, openmetrics.CONTENT_TYPE_LATEST
            case "text/plain" | "*/*":
                break
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4
