"""The command `cutaway`: which commands there are, and what happens to a user's mistake.

Command modules import nothing heavy at their top, so that `cutaway --help` answers at once.
"""

import io
import sys
from typing import Annotated

import typer
from typer._click.exceptions import ClickException, NoArgsIsHelpError

import cutaway
from cutaway.cli.chat import chat
from cutaway.cli.convert import convert
from cutaway.cli.demo import demo
from cutaway.cli.embed import embed
from cutaway.cli.evaluate import evaluate
from cutaway.cli.fill import fill
from cutaway.cli.generate import generate
from cutaway.cli.help import Command, Group, option
from cutaway.cli.inspect import app as questions
from cutaway.cli.models import models
from cutaway.cli.serve import serve
from cutaway.cli.similarity import similarity
from cutaway.cli.tokenize import tokenize
from cutaway.cli.tokenizer import tokenizer
from cutaway.cli.train import train
from cutaway.cli.translate import translate
from cutaway.cli.usage import usage_error
from cutaway.errors import CutawayError, reason
from cutaway.text.display import harmless
from cutaway.words import Phrase, say, told

app = typer.Typer(
    name="cutaway",
    cls=Group,
    help=told("Train, run and see inside Transformers. Try: cutaway demo"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command, line in (
    (demo, told("Translate a few sentences and draw how one came about.")),
    (translate, told("Translate between Chinese and English.")),
    (generate, told("Go on with a text.")),
    (chat, told("Talk with a model that was taught to chat.")),
    (fill, told("Find the words for the gaps of a text.")),
    (embed, told("Turn texts into vectors that say what they are about.")),
    (similarity, told("Compare texts by their vectors.")),
    (evaluate, told("BLEU and chrF of a translator on a test set.")),
    (models, told("List the bundled models.")),
    (serve, told("Show the explorer: a page that sees inside models.")),
    (tokenize, told("Show how a text is cut into pieces.")),
    (convert, told("Write a model as a Hugging Face folder.")),
    (train, told("Train a model by a recipe.")),
):
    app.command(cls=Command, short_help=line)(command)
app.add_typer(
    questions,
    name="inspect",
    short_help=told("See inside a model: a text on its way through it, or the model itself."),
)
app.add_typer(tokenizer, name="tokenizer", short_help=told("Learn a vocabulary (tokenizer train)."))


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cutaway {cutaway.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, option("Print the version and exit.", "--version", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command line. Exit codes: 0 done, 2 a mistake of the user's (told on stderr), 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a narrow encoding must not end in a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(prog_name="cutaway", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except ClickException as error:
        _end(usage_error(error))
    except CutawayError as error:
        _end(error.message)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        _end(say("not enough memory on this machine for a model or text of this size"))
    # a full disk, a file that may not be written
    except OSError as error:
        where = error.filename or say("input or output")
        _end(say("{where}: {reason}", where=where, reason=reason(error)))


def _end(problem: Phrase) -> None:
    """Tell what was wrong, in the reader's language, and end."""
    typer.echo(harmless(told("error: {problem}", problem=problem)), err=True)
    sys.exit(2)
