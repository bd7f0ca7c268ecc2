"""What the engine's log adds up to: Prometheus metrics and the periodic line, as vLLM has them."""
