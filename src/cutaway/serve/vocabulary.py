"""What can be asked, as JSON: every question with its options, every change, term and tap. All of it is read off where
it is declared."""

import dataclasses
from typing import Literal, get_args, get_origin, get_type_hints

from cutaway.glossary import GLOSSARY
from cutaway.inspection.changes.change import Change
from cutaway.inspection.changes.lists import KINDS, kinds_in, spelled
from cutaway.inspection.options import Parameter, Repeated
from cutaway.inspection.question import GROUPS, RUN_OPTIONS, Question, all_questions
from cutaway.serve.refusal import text_value
from cutaway.tap import TAPS


def vocabulary_value() -> dict[str, object]:
    return {
        "groups": [{"name": name, "title": text_value(title)} for name, title in GROUPS.items()],
        "questions": [_question(each) for each in all_questions()],
        "run_options": [_option(each) for each in RUN_OPTIONS],
        "changes": [
            {
                "op": kind.op,
                "name": text_value(kind.title),
                "about": text_value(kind.about),
                "title": text_value(title),
                "example": {"op": kind.op, **kind.example.change},
                "fields": [_field(kind, each) for each in dataclasses.fields(kind)],
            }
            for title, module in KINDS
            for kind in kinds_in(module)
        ],
        "glossary": [
            {"term": text_value(each.term), "symbol": each.symbol, "about": text_value(each.about)}
            for each in GLOSSARY.values()
        ],
        "taps": [
            {"name": name, "dims": dims, "about": text_value(about)} for name, (dims, about) in TAPS.items()
        ],
    }


def _question(question: Question) -> dict[str, object]:
    return {
        "name": question.name,
        "about": text_value(question.about),
        "group": question.group,
        "subject": question.subject,
        "needs": [text_value(need.what) for need in question.needs],
        "options": [_option(each) for each in question.parameters],
    }


def _option(parameter: Parameter) -> dict[str, object]:
    option = parameter.option
    bounds = {"at_least": option.at_least, "at_most": option.at_most}
    choices = {"choices": list(get_args(parameter.kind))} if get_origin(parameter.kind) is Literal else {}
    return {
        "name": parameter.name,
        "about": text_value(option.about),
        "kind": _kind(parameter),
        **choices,
        "default": None if parameter.required else parameter.default,
        "required": parameter.required,
        **{name: bound for name, bound in bounds.items() if bound is not None},
        "positional": option.positional,
    }


def _kind(parameter: Parameter) -> str:
    several = get_origin(parameter.kind) is tuple
    if isinstance(parameter.option, Repeated):
        return "changes"
    if parameter.is_text:
        return "text"
    if get_origin(parameter.kind) is Literal:
        return "choice"
    if parameter.names_tokens:
        return "tokens" if several else "token"
    if several:
        return "list"
    return {bool: "boolean", int: "integer", float: "number", str: "string"}[parameter.kind]


def _field(kind: type[Change], field: "dataclasses.Field[Change]") -> dict[str, object]:
    hint = get_type_hints(kind)[field.name]
    takes_all = any("*" in get_args(each) for each in (hint, *get_args(hint)))
    required = field.default is dataclasses.MISSING
    default = {} if required else {"default": field.default}
    about = text_value(field.metadata["key"].about)
    return {"name": spelled(field.name), "about": about, **default, "required": required, "all": takes_all}
