"""`cutaway train`: a recipe becomes a model."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.help import argument, described


@described(
    "Train a model by a recipe; the same command again goes on where it stopped.\n\nCtrl-C "
    "or SIGTERM saves and ends with 130 or 143; a second one ends at once. The result "
    "lies in runs/NAME/model, a Hugging Face folder."
)
def train(
    recipe: Annotated[Path, argument("The TOML file that describes the run.")],
    overrides: Annotated[
        list[str] | None, argument("Changes to the recipe, such as train.steps=100.", metavar="KEY=VALUE")
    ] = None,
) -> None:
    from cutaway.train.word_recipe import is_of_words, read_word_recipe

    if is_of_words(recipe):
        of_words = read_word_recipe(recipe, overrides or [])

        from cutaway.train.machine import Interrupts
        from cutaway.train.word_vectors import train_vectors

        interrupts = Interrupts()
        train_vectors(of_words, interrupts)
    else:
        from cutaway.train.recipe import read_recipe

        plan = read_recipe(recipe, overrides or [])

        from cutaway.train.machine import Interrupts
        from cutaway.train.run import train as run_recipe

        interrupts = Interrupts()
        run_recipe(plan, interrupts)
    if interrupts.received is not None:
        raise typer.Exit(interrupts.exit_code)
