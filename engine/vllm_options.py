"""The options of `vllm serve` in vLLM 0.26.0, by how many values they take.

No box of the map: names only, so that a command can be read without vLLM. Most of them have no
effect here. Listed from `vllm/engine/arg_utils.py`, `vllm/entrypoints/openai/cli_args.py` and the
fields of `vllm/config/`.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# No value; most have a twin that begins with `no-`.
SWITCHES = _names(
    """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization async-scheduling
    calculate-kv-scales cudagraph-metrics data-parallel-external-lb data-parallel-hybrid-lb
    data-parallel-multi-port-external-lb disable-cascade-attn disable-chunked-mm-input
    disable-custom-all-reduce disable-fastapi-docs disable-hybrid-kv-cache-manager
    disable-log-stats disable-nccl-for-dp-synchronization disable-sliding-window
    disable-uvicorn-access-log enable-auto-tool-choice enable-bf16x3-router-gemm
    enable-chunked-prefill enable-cumem-allocator enable-dbo enable-elastic-ep
    enable-ep-weight-filter enable-eplb enable-expert-parallel enable-flash-late-interaction
    enable-flashinfer-autotune enable-force-include-usage enable-layerwise-nvtx-tracing
    enable-log-deltas enable-log-outputs enable-log-requests enable-logging-iteration-details
    enable-lora enable-mamba-cache-stochastic-rounding enable-mfu-metrics
    enable-mixed-moe-lora-format enable-mm-embeds enable-moe-shared-loras enable-offline-docs
    enable-per-request-metrics enable-prefix-caching enable-prompt-embeds
    enable-prompt-tokens-details enable-request-id-headers enable-return-routed-experts
    enable-server-load-tracking enable-sleep-mode enable-ssl-refresh
    enable-tokenizer-info-endpoint enable-tower-connector-lora enforce-eager
    exclude-tools-when-tool-choice-none fail-on-environ-validation fully-sharded-loras grpc
    headless interleave-mm-strings jit-monitor-verbose kv-cache-metrics kv-sharing-fast-prefill
    language-model-only log-error-stack mm-encoder-only numa-bind ray-workers-use-nsight
    return-tokens-as-token-ids scheduler-reserve-full-isl skip-mm-profiling skip-tokenizer-init
    specialize-active-lora tokens-only trust-remote-code trust-request-chat-template
    use-fp64-gumbel use-tqdm-on-load
    """
)

ONE_VALUE = _names(
    """
    additional-config all2all-backend allowed-headers allowed-local-media-path allowed-methods
    allowed-origins api-server-count attention-backend attention-config block-size chat-template
    chat-template-content-format code-revision compilation-config config config-format convert
    cp-kv-cache-interleave-size cpu-distributed-timeout-seconds cpu-offload-gb
    cpu-offload-params data-parallel-address data-parallel-backend data-parallel-rank
    data-parallel-rpc-port data-parallel-size data-parallel-size-local data-parallel-start-rank
    data-parallel-supervisor-port dbo-decode-token-threshold dbo-prefill-token-threshold
    dcp-comm-backend dcp-kv-cache-interleave-size decode-context-parallel-size
    default-chat-template-kwargs default-mm-loras diffusion-config
    disable-access-log-for-endpoints distributed-executor-backend distributed-timeout-seconds
    download-dir dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
    dp-supervisor-probe-timeout-s dtype ec-transfer-config eplb-config expert-placement-strategy
    fingerprint-mode fingerprint-value gdn-prefill-backend generation-config
    gpu-memory-utilization h11-max-header-count h11-max-incomplete-event-size hf-config-path
    hf-overrides hf-token host io-processor-plugin ir-op-priority jit-monitor-mode kernel-config
    kv-cache-dtype kv-cache-memory-bytes kv-cache-metrics-sample kv-events-config
    kv-offloading-backend kv-offloading-size kv-transfer-config limit-mm-per-prompt
    linear-backend load-format log-config-file logprobs-mode long-prefill-token-threshold
    lora-dtype mamba-backend mamba-block-size mamba-cache-dtype mamba-cache-mode
    mamba-cache-philox-rounds mamba-ssm-cache-dtype master-addr master-port max-cpu-loras
    max-cudagraph-capture-size max-log-len max-logprobs max-long-partial-prefills max-lora-rank
    max-loras max-model-len max-num-batched-tokens max-num-partial-prefills
    max-num-scheduled-tokens max-num-seqs max-parallel-loading-workers media-io-kwargs middleware
    mm-encoder-attn-backend mm-encoder-attn-dtype mm-encoder-fp8-scale-path
    mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path mm-encoder-tp-mode
    mm-ipc-gpu-memory-gb mm-processor-cache-gb mm-processor-cache-type mm-processor-kwargs
    mm-shm-cache-max-object-size-mb mm-tensor-ipc model model-class-overrides model-impl
    model-loader-extra-config moe-backend nnodes node-rank num-gpu-blocks-override
    offload-backend offload-group-size offload-num-in-group offload-params offload-prefetch-step
    optimization-level otlp-traces-endpoint override-attention-dtype override-generation-config
    performance-mode pipeline-parallel-size pooler-config port prefill-context-parallel-size
    prefill-schedule-interval prefix-caching-hash-algo prefix-match-unit profiler-config
    pt-load-map-location quantization quantization-config reasoning-config reasoning-parser
    reasoning-parser-plugin renderer-num-workers response-role revision root-path runner
    safetensors-load-strategy safetensors-prefetch-block-size safetensors-prefetch-num-threads
    scheduler-cls scheduling-policy seed show-hidden-metrics-for-version shutdown-timeout
    spec-method spec-model spec-tokens speculative-config ssl-ca-certs ssl-cert-reqs
    ssl-certfile ssl-ciphers ssl-keyfile stream-interval structured-outputs-config
    tensor-parallel-size tokenizer tokenizer-mode tokenizer-revision tool-call-parser
    tool-parser-plugin tool-server ubatch-size uds uvicorn-log-level video-pruning-rate
    watermark weight-transfer-config worker-cls worker-extension-cls
    """
)

# Everything up to the next option.
SEVERAL_VALUES = _names(
    """
    allowed-media-domains api-key collect-detailed-traces cudagraph-capture-sizes device-ids
    ignore-patterns kv-cache-dtype-skip-layers logits-processors lora-modules
    lora-target-modules numa-bind-cpus numa-bind-nodes served-model-name
    """
)

SHORT = {
    "-ac": "attention-config",
    "-asc": "api-server-count",
    "-cc": "compilation-config",
    "-dc": "diffusion-config",
    "-dcp": "decode-context-parallel-size",
    "-dp": "data-parallel-size",
    "-dpa": "data-parallel-address",
    "-dpb": "data-parallel-backend",
    "-dpe": "data-parallel-external-lb",
    "-dph": "data-parallel-hybrid-lb",
    "-dpl": "data-parallel-size-local",
    "-dpm": "data-parallel-multi-port-external-lb",
    "-dpn": "data-parallel-rank",
    "-dpp": "data-parallel-rpc-port",
    "-dpr": "data-parallel-start-rank",
    "-ep": "enable-expert-parallel",
    "-n": "nnodes",
    "-pcp": "prefill-context-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-q": "quantization",
    "-r": "node-rank",
    "-sc": "speculative-config",
    "-tp": "tensor-parallel-size",
}

NAMES = SWITCHES | ONE_VALUE | SEVERAL_VALUES
