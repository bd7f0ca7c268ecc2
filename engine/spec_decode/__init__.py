"""What drafts tokens for the model to verify (vLLM 0.26.0: `vllm/v1/spec_decode/`)."""
