"""Streamed text: whole characters, nothing taken back, no stop string leaks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from engine.detokenizer import (
    REPLACEMENT,
    IncrementalDetokenizer,
    TokenTexts,
    first_stop,
    token_pieces,
)
from engine.model_loader import LoadedModel
from engine.model_loader.tiny import byte_tokenizer

BYTES = byte_tokenizer()
TEXTS = ["Plain text.", "naïve café", "日本語テキスト", "🙂👩‍👩‍👧‍👦 ok", "a\n\n  b\t", "שלום 👋🏽!"]


def ids_of(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]


def whole(tokenizer: PreTrainedTokenizerBase, ids: list[int], special: bool = False) -> str:
    text = tokenizer.decode(
        ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False
    )
    assert isinstance(text, str)
    return text


def stream(
    ids: list[int],
    stop: tuple[str, ...] = (),
    tokenizer: PreTrainedTokenizerBase = BYTES,
    prompt: list[int] | None = None,
    min_tokens: int = 0,
) -> tuple[list[str], IncrementalDetokenizer]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt or [], stop, min_tokens)
    pieces = [detokenizer.push(token) for token in ids]
    pieces.append(detokenizer.finish())
    return pieces, detokenizer


@pytest.mark.parametrize("text", TEXTS)
def test_a_character_comes_once_and_whole(text: str) -> None:
    pieces, _ = stream(ids_of(text))
    assert [piece for piece in pieces if piece] == list(text)


def test_an_unfinished_character_comes_out_at_the_end() -> None:
    pieces, _ = stream(ids_of("a🙂")[:-1])
    assert pieces == ["a", "", "", "", "\ufffd"]


@given(st.lists(st.integers(0, 258), max_size=120))
def test_any_tokens_stream_to_their_whole_decode(ids: list[int]) -> None:
    pieces, _ = stream(ids)
    assert "".join(pieces) == whole(BYTES, ids)


@given(st.lists(st.sampled_from([3 + b for b in b"\xf0\x9f\x99\x82\xe2\x80a\xff"]), max_size=150))
def test_broken_characters_stream_to_their_whole_decode(ids: list[int]) -> None:
    pieces, _ = stream(ids)
    assert "".join(pieces) == whole(BYTES, ids)


def test_endless_broken_bytes_are_decoded_in_short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    decode = type(BYTES).decode

    def counted(self: PreTrainedTokenizerBase, ids: list[int], **options: bool) -> object:
        lengths.append(len(ids))
        return decode(self, ids, **options)

    monkeypatch.setattr(type(BYTES), "decode", counted)
    pieces, _ = stream([3 + 0xFF] * 500)
    assert "".join(pieces) == "\ufffd" * 500
    assert max(lengths) <= 40
    assert sum(1 for piece in pieces if piece) > 490  # and they do not wait for the end


@pytest.mark.parametrize("before", range(15, 35))
def test_a_long_window_is_not_cut_within_a_character(before: int) -> None:
    ids = [3 + 0xFF] * before + ids_of("🙂")[:2] + [3 + 0xFF] * 40
    assert "".join(stream(ids)[0]) == whole(BYTES, ids)


def test_a_prompt_that_ends_within_a_character_changes_nothing() -> None:
    head, tail = ids_of("🙂")[:2], ids_of("🙂")[2:] + ids_of("é!")
    pieces, _ = stream(tail, prompt=ids_of("abc") + head)
    assert "".join(pieces).endswith("é!")


def test_special_tokens_are_silent_in_output_and_shown_in_pieces() -> None:
    ids = [1, *ids_of("hi"), 2]
    assert "".join(stream(ids)[0]) == "hi"
    assert token_pieces(BYTES, ids) == ["<|im_start|>", "h", "i", "<|im_end|>"]


@given(st.lists(st.integers(0, 258), max_size=60))
def test_pieces_add_up_to_the_whole(ids: list[int]) -> None:
    pieces = token_pieces(BYTES, ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == whole(BYTES, ids, special=True)


@pytest.mark.parametrize("text", TEXTS)
def test_the_default_model_s_tokens(text: str, default_model: LoadedModel) -> None:
    tokenizer = default_model.tokenizer
    ids = tokenizer(text)["input_ids"]
    assert isinstance(ids, list)
    pieces, _ = stream(ids, tokenizer=tokenizer, prompt=[504, 3575])
    assert "".join(pieces) == whole(tokenizer, ids) == text
    assert "".join(token_pieces(tokenizer, ids)) == text
    assert all("\ufffd" not in piece for piece in pieces)


def sentencepiece_like() -> PreTrainedTokenizerFast:
    """Words with a mark for the space before them, bytes as tokens, as Llama 2 has them."""
    words = ["<unk>", "\u2581the", "\u2581cat", "s", "\u2581"]
    vocabulary = {word: i for i, word in enumerate(words)}
    vocabulary |= {f"<0x{byte:02X}>": len(words) + byte for byte in range(256)}
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_a_decoder_that_strips_the_first_space_keeps_the_others() -> None:
    tokenizer = sentencepiece_like()
    the, cat, s = 1, 2, 3
    assert stream([cat, s, the], tokenizer=tokenizer, prompt=[the])[0][:3] == [" cat", "s", " the"]
    assert stream([the, cat], tokenizer=tokenizer)[0][:2] == ["the", " cat"]


def test_the_text_of_a_token_by_itself() -> None:
    sentencepiece, texts = sentencepiece_like(), TokenTexts(sentencepiece_like())
    assert sentencepiece.decode([1, 2]) == "the cat"
    assert [texts.of(token) for token in (1, 2, 3, 2)] == [" the", " cat", "s", " cat"]
    letters = TokenTexts(byte_tokenizer())
    assert letters.of(3 + ord("a")) == "a"
    assert letters.of(2) != ""  # a special token is shown
    assert letters.of(3 + 0xC3) == REPLACEMENT  # half of a character


def test_a_decoder_that_replaces_each_byte_of_an_unfinished_character() -> None:
    tokenizer = sentencepiece_like()
    smile = [5 + byte for byte in "🙂".encode()]
    assert stream([1, *smile, 2], tokenizer=tokenizer)[0][:6] == ["the", "", "", "", "🙂", " cat"]
    # A stray byte spoils the character before it in this decoder; what is out stays out.
    pieces, _ = stream([*smile, 5 + 0xFF, 2], tokenizer=tokenizer)
    assert "".join(pieces) == "🙂\ufffd cat"


# --- stop strings ------------------------------------------------------------------------------


def test_a_stop_string_ends_the_text_before_it() -> None:
    pieces, detokenizer = stream(ids_of("one two three"), ("zzz", "two"))
    assert "".join(pieces) == "one "
    assert detokenizer.stop_index == 1 and detokenizer.stopped


def test_what_may_become_a_stop_string_waits_and_comes_out_if_it_does_not() -> None:
    pieces, detokenizer = stream(ids_of("ababac"), ("abac",))
    assert pieces[:4] == ["", "", "", "ab"]
    assert "".join(pieces) == "ab" and detokenizer.stop_index == 0
    pieces, detokenizer = stream(ids_of("abax aba"), ("abac",))
    assert pieces[:4] == ["", "", "", "abax"]
    assert "".join(pieces) == "abax aba" and not detokenizer.stopped


def test_the_stop_string_complete_first_counts() -> None:
    assert first_stop("abcd", ("abcd", "bc")) == (1, 1)
    assert first_stop("abcd", ("x",)) is None
    assert "".join(stream(ids_of("xabcd"), ("abcd", "bc"))[0]) == "xa"


def test_a_stop_string_of_several_bytes_a_character() -> None:
    pieces, detokenizer = stream(ids_of("ok 🙂🙂 no"), ("🙂🙂",))
    assert "".join(pieces) == "ok " and detokenizer.stopped


def test_below_min_tokens_a_stop_string_is_text() -> None:
    pieces, detokenizer = stream(ids_of("stop and stop"), ("stop",), min_tokens=4)
    assert "".join(pieces) == "stop and "
    assert detokenizer.stopped
    # One that ends beyond it counts, and a shorter one inside its beginning does not.
    assert "".join(stream(ids_of("stop"), ("stop",), min_tokens=3)[0]) == ""
    assert "".join(stream(ids_of("stop"), ("stop",), min_tokens=4)[0]) == "stop"
    assert "".join(stream(ids_of("xabxy"), ("b", "abc"), min_tokens=3)[0]) == "xabxy"


@settings(max_examples=300)
@given(
    st.text("ab🙂", max_size=30),
    st.lists(st.text("ab🙂", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_no_stop_string_leaks(text: str, stops: list[str]) -> None:
    stop = tuple(stops)
    pieces, detokenizer = stream(ids_of(text), stop)
    out = "".join(pieces)
    assert text.startswith(out)
    assert not any(string in out for string in stop)
    # The same text cut anywhere: the first place where some stop string is complete.
    complete = [n for n in range(len(text) + 1) if any(text[:n].endswith(s) for s in stop)]
    assert detokenizer.stopped == bool(complete)
    if not complete:
        assert out == text
    else:
        assert detokenizer.stop_index is not None
        assert out + stop[detokenizer.stop_index] == text[: complete[0]]


def test_nothing_comes_after_a_stop() -> None:
    detokenizer = IncrementalDetokenizer(BYTES, [], ("b",))
    assert [detokenizer.push(token) for token in ids_of("abc")] == ["a", "", ""]
    assert detokenizer.finish() == ""
