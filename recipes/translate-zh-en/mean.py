"""The bundled weights: `python recipes/translate-zh-en/mean.py FIRST SECOND SHARE OUT` writes the mean of two models'
weights, SHARE of the second, as float16 (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models")."""

import sys
from pathlib import Path

import torch

from cutaway.checkpoint import folder


def main(first: str, second: str, share: str, out: str) -> None:
    one, two = folder.load(Path(first)), folder.load(Path(second))
    theirs = dict(two.model.named_parameters())
    with torch.no_grad():
        for name, parameter in one.model.float().named_parameters():
            parameter.lerp_(theirs[name].float(), float(share))
    folder.save(Path(out), one.model.half(), one.require_tokenizer())


if __name__ == "__main__":
    main(*sys.argv[1:])
