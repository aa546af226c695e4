"""`cutaway train`: a recipe becomes a model."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.help import in_chinese
from cutaway.words import told


@in_chinese(
    "按配方训练模型；同一命令再运行一次，就从停下的地方接着训练。\n\n"
    "Ctrl-C 或 SIGTERM 会先保存再结束，退出码为 130 或 143；再来一次则立即结束。"
    "结果在 runs/NAME/model，是一个 Hugging Face 文件夹。"
)
def train(
    recipe: Annotated[Path, typer.Argument(help=told("The TOML file that describes the run."))],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help=told("Changes to the recipe, such as train.steps=100."),
        ),
    ] = None,
) -> None:
    """Train a model by a recipe; the same command again goes on where it stopped.

    Ctrl-C or SIGTERM saves and ends with 130 or 143; a second one ends at once. The result lies in
    runs/NAME/model, a Hugging Face folder.
    """
    from cutaway.train.recipe import read_recipe

    plan = read_recipe(recipe, overrides or [])

    from cutaway.train.machine import Interrupts
    from cutaway.train.run import train as run_recipe

    interrupts = Interrupts()
    run_recipe(plan, interrupts)
    if interrupts.received is not None:
        raise typer.Exit(interrupts.exit_code)
