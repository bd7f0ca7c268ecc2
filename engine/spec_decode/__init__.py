"""What drafts tokens for the model to verify (map: GPU model runner).

Counterpart in vLLM 0.26.0: `vllm/v1/spec_decode/`.
"""
