"""A model's layers in a form that the CPU runs faster: weights packed once, when it is loaded.

No box of the map: the layers compute what they did, and stand where they stood. Whatever is not
known exactly stays as Transformers made it, and so does every model on a GPU. Counterpart in vLLM
0.26.0: `vllm/model_executor/layers`.
"""

from engine.layers.linear import PackedLinear, pack_linears

__all__ = ["PackedLinear", "pack_linears"]
