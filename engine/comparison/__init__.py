"""Two fresh engines, one after the other, on one recorded workload, with one setting changed.

No box of its own: it looks on, as the log does. vLLM 0.26.0 has a benchmark for each half of it
(`vllm bench serve`), and nothing that sets two logs side by side.
"""
