"""A question, declared once by its function: command, server entry and reference page are made from the signature.

    @question(say("What each layer would say, were it the last."), "layers", WORDS)
    def lens(run: Run, *, top: Annotated[int, Option(say("Readings of a layer."), at_least=1)] = 5) -> Lens: ...

The first parameter is what is asked: a `Run` (a text on its way through a model), a `Loaded` (a model; with
`WordVectors` beside it, word vectors too), or `Contents` (a model's files, whose weights are not read). Every other one
is an option that says what it means; `OtherText` is another text for the same model, and a parameter of type `Progress`
is no option but hears how far the work is.
The function stays the one that Python users call, who hear of a value beyond its bounds, too. Its result lays itself
out: `result.page()`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Literal, TypeVar, get_args

from cutaway.checkpoint.folder import Loaded
from cutaway.checkpoint.word_vectors import WordVectors
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError, nearest
from cutaway.inspection.options import Parameter, Progress, bounded, checked, read_signature
from cutaway.inspection.runs import Run, run
from cutaway.page.drawn import Drawn
from cutaway.words import Phrase, names_of, say

Subject = Literal["text", "model", "files"]
Group = Literal["model", "text", "attention", "layers", "space", "matrices", "causes", "changes"]
GROUPS: dict[Group, Phrase] = {
    "model": say("The model itself"),
    "text": say("The whole text"),
    "attention": say("Attention"),
    "layers": say("Layers and neurons"),
    "space": say("Tokens as points in space"),
    "matrices": say("Matrices"),
    "causes": say("What a number is made of"),
    "changes": say("Changes"),
}
F = TypeVar("F", bound=Callable[..., Drawn])


@dataclass(frozen=True)
class Need:
    """Something that a model must have for a question to make sense, told by its config alone."""

    has: Callable[[ModelConfig], bool]
    what: Phrase


WORDS = Need(
    lambda config: config.head != "none", say("an output head: a model that gives words and not vectors")
)
TRANSLATOR = Need(
    lambda config: config.family == "encoder-decoder", say("an encoder-decoder model: a translator")
)
EXPERTS = Need(lambda config: config.n_experts > 0, say("a mixture of experts"))
VECTORS = Need(lambda config: False, say("word vectors, such as words-en"))
ONE_STACK = Need(lambda config: config.family != "encoder-decoder", say("a model with one stack"))


@dataclass(frozen=True)
class Suggestion:
    """What to ask next, and why."""

    about: Phrase
    question: str
    options: Mapping[str, object]


class Suggesting(Drawn):
    """A result that says what to ask next of the same text."""

    @abstractmethod
    def suggestions(self) -> Iterator[Suggestion]:
        """In the order of a reader's way in."""


class Translating(Drawn):
    """A result that translated its text itself."""

    @property
    @abstractmethod
    def output(self) -> str:
        """What was written, control tokens left out."""


@dataclass(frozen=True)
class Question:
    """A question with all that a command, a server or a page of reference needs to know of it."""

    name: str
    about: Phrase
    group: Group
    function: Callable[..., Drawn]
    subject: Subject
    needs: tuple[Need, ...]
    parameters: tuple[Parameter, ...]
    progress: str | None  # the parameter that hears how far the work is
    of_vectors: bool = False  # whether word vectors can be asked, too

    def check(self, config: ModelConfig, model: str) -> None:
        """CutawayError for a model that lacks what the question is about; no weights are needed to tell."""
        for need in self.needs:
            if not need.has(config):
                raise CutawayError(
                    "{model} is {family}; {question} needs {what}",
                    model=model,
                    family=config.family,
                    question=self.name,
                    what=need.what,
                )

    def options(self, given: Mapping[str, object]) -> dict[str, object]:
        """`options.checked` of this question's options, those of its run among them."""
        of_run = RUN_OPTIONS if self.subject == "text" else ()
        return checked(self.name, (*self.parameters, *of_run), given)

    def __call__(
        self, subject: object, options: Mapping[str, object], progress: Progress | None = None
    ) -> Drawn:
        """Ask, with options as `options` returns them and runs in the place of other texts."""
        heard = {self.progress: progress} if self.progress is not None and progress is not None else {}
        return self.function(subject, **options, **heard)


QUESTIONS: dict[str, Question] = {}


def question(about: Phrase, group: Group, *needs: Need) -> Callable[[F], F]:
    """Declare the function below to be a question. It stays the function that Python users call."""

    def declare(declared: F) -> F:
        function = bounded(declared)
        first, parameters, progress = read_signature(function)
        kinds = get_args(first) or (first,)
        subject: Subject = (
            "text" if Run in kinds else "model" if {Loaded, WordVectors} & {*kinds} else "files"
        )
        name = function.__name__
        QUESTIONS[name] = Question(
            name, about, group, function, subject, needs, parameters, progress, WordVectors in kinds
        )
        return function

    return declare


def names() -> tuple[str, ...]:
    """The names of all questions, without loading them: one question is one file of that name."""
    return tuple(module.name for module in iter_modules([str(Path(__file__).with_name("questions"))]))


def find_question(name: str) -> Question:
    """The question of that name. CutawayError with the nearest one where there is none."""
    if name not in QUESTIONS:
        if name not in names():
            raise CutawayError(
                "there is no question {name!r}{hint}, expected one of {known}",
                name=name,
                hint=nearest(name, names()),
                known=names_of(names()),
            )
        import_module(f"cutaway.inspection.questions.{name}")
    return QUESTIONS[name]


def all_questions() -> tuple[Question, ...]:
    """Every question, group by group."""
    order = list(GROUPS)
    return tuple(sorted(map(find_question, names()), key=lambda each: (order.index(each.group), each.name)))


# The options that every question of a text has: how its run is made.
RUN_OPTIONS = tuple(each for each in read_signature(run)[1] if each.name != "text")
