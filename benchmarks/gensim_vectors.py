"""Word vectors that gensim learns by a recipe of ours, on the same words, to be measured beside ours:

python -m benchmarks.gensim_vectors recipes/word2vec-en.toml gensim.bin [key=value …]
cutaway evaluate -m gensim.bin --analogies questions-words.txt --word-pairs wordsim353.tsv
"""

import sys
import tempfile
from pathlib import Path

from gensim.models import Word2Vec

from benchmarks.word2vec import write_lines
from cutaway.train.word_recipe import WordRecipe, read_word_recipe
from cutaway.train.word_vectors import read_sequences


def learn(recipe: WordRecipe, out: Path) -> None:
    """Write gensim's vectors in word2vec's binary form."""
    text, part = read_sequences(recipe, lambda *_, **__: None), recipe.train
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "text.txt"
        write_lines(file, text)
        model = Word2Vec(
            corpus_file=str(file), vector_size=recipe.model.d_model, window=part.window, negative=part.negatives,
            sg=int(recipe.model.context == "skip-gram"), workers=recipe.run.threads or 1, min_count=1,
            sample=part.subsample, epochs=part.epochs, alpha=recipe.lr, min_alpha=part.end_lr,
            ns_exponent=part.exponent, seed=recipe.run.seed,
        )  # fmt: skip
    model.wv.save_word2vec_format(str(out), binary=True)


if __name__ == "__main__":
    learn(read_word_recipe(Path(sys.argv[1]), sys.argv[3:]), Path(sys.argv[2]))
