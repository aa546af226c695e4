"""`python -m benchmarks.everyday [--model FOLDER]`: everyday sentences, how they come out, and how that was judged.

everyday.tsv has 60 sentences, 30 of each language, written after the training data were made; none is among those
data. It holds every translation that was judged, with its verdict: `right`; `understandable`, where the sense is there
and the wording is not; `wrong`; `reversed`, where the opposite is said; `profane`. A translation that nobody has judged
is shown as such.
"""

import argparse
from collections import Counter
from pathlib import Path

from cutaway.checkpoint.folder import load
from cutaway.decode.translator import Translator
from cutaway.zoo import TRANSLATOR, find

JUDGED = Path(__file__).with_name("everyday.tsv")
VERDICTS = ("right", "understandable", "wrong", "reversed", "profane", "not judged")


def judged() -> dict[str, dict[str, str]]:
    """Sentence, translation, verdict."""
    found: dict[str, dict[str, str]] = {}
    for line in JUDGED.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            text, translation, verdict = line.split("\t")
            found.setdefault(text, {})[translation] = verdict
    return found


def main(arguments: list[str] | None = None) -> Counter[str]:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.everyday", description=__doc__)
    reader.add_argument(
        "--model", default=TRANSLATOR, help="a translator's folder, in place of the bundled one"
    )
    given = reader.parse_args(arguments)
    known = judged()
    counts: Counter[str] = Counter()
    for result, (text, verdicts) in zip(
        Translator(load(find(given.model))).translate(list(known)), known.items(), strict=True
    ):
        verdict = verdicts.get(result.best.text, "not judged")
        counts[verdict] += 1
        print(f"{verdict:15}{text}\n{'':15}{result.best.text}")
    print(", ".join(f"{verdict}: {counts[verdict]}" for verdict in VERDICTS if counts[verdict]))
    return counts


if __name__ == "__main__":
    main()
