"""A tiny Llama with random but fixed weights: for tests and demos where the text does not matter.

No box of the map. vLLM 0.26.0 has random weights for any architecture (`--load-format dummy`:
`vllm/model_executor/model_loader/dummy_loader.py`); here they are fixed, so that tests can compare.
It loads in milliseconds as `MODEL=tiny-random` and is wired like the default model (grouped
queries, rotary embedding, tied embedding), so everything but the text it writes is real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

TINY_MODEL = "tiny-random"
_SEED = 0
_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tiny_llama(
    seed: int = _SEED, attn_implementation: str = "sdpa", num_layers: int = 4
) -> LlamaForCausalLM:
    """Layers of width 64, 4 query heads on 2 KV heads of 16, 259 tokens, 2,048 positions, fp32.

    The caller's random state is left as it was.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(_SPECIAL_TOKENS) + 256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        # Five times the usual spread: attention then depends on its keys, and no two logits tie.
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,  # a padding row would be all zeros, and that token then never chosen
        dtype="float32",
    )
    config._attn_implementation = attn_implementation
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.eval().requires_grad_(False)
    return model


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte after three special ones, so that every text can be encoded and read back.

    Ids: 0 <|endoftext|>, 1 <|im_start|> (bos), 2 <|im_end|> (eos), then 3 + byte.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    vocabulary = {token: index for index, token in enumerate(_SPECIAL_TOKENS)}
    vocabulary |= {letters[byte]: len(_SPECIAL_TOKENS) + byte for byte in range(256)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<|endoftext|>",
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        model_max_length=2048,
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer
