"""What is known of a model from its config and files, as JSON has it."""

from torch import nn

from cutaway.checkpoint.word_vectors import TYPE
from cutaway.decode.translator import Translator
from cutaway.inspection.answers import Session, VectorSession
from cutaway.inspection.changes.presets import Preset, presets
from cutaway.inspection.question import all_questions, find_question
from cutaway.serve.refusal import text_value

SIDES = {
    "encoder-decoder": ["encoder", "decoder"],
    "decoder-only": ["decoder"],
    "encoder-only": ["encoder"],
}


def facts(session: Session | VectorSession) -> dict[str, object]:
    """Its sizes, the questions that can be asked of it, and changes to try first. No weights of a model are
    read; word vectors are one table, and have no more to tell."""
    if isinstance(session, VectorSession):
        model = session.vectors.model
        return {
            "family": TYPE,
            "architecture": TYPE,
            "sides": [],
            "d_model": model.config.d_model,
            "vocab_size": len(session.vectors.words),
            "parameters": sum(each.numel() for each in model.parameters()),
            "languages": [],
            "questions": [each.name for each in all_questions() if each.of_vectors],
            "presets": [],
        }
    config = session.config
    anatomy = session.ask(find_question("anatomy")).json()["result"]
    assert isinstance(anatomy, dict)
    return {
        "family": config.family,
        "architecture": anatomy["architecture"],
        "sides": SIDES[config.family],
        "n_layers": config.n_layers,
        "n_encoder_layers": config.encoder_layers if config.family == "encoder-decoder" else 0,
        "n_heads": config.n_heads,
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "vocab_size": config.vocab_size,
        "max_len": config.max_len,
        "n_experts": config.n_experts,
        "head": config.head,
        "parameters": anatomy["parameters"],
        "languages": [],
        "questions": [each.name for each in all_questions() if all(need.has(config) for need in each.needs)],
        "presets": [_preset(each) for each in presets(config)],
    }


def _preset(preset: Preset) -> dict[str, object]:
    phrases = {"title": preset.title, "about": preset.about, "look": preset.look}
    lacks = None if preset.lacks is None else text_value(preset.lacks)
    told = {name: text_value(each) for name, each in phrases.items()}
    return {"name": preset.name, **told, "changes": preset.changes, "lacks": lacks}


def open_model(session: Session | VectorSession) -> tuple[nn.Module, list[str]]:
    """What computes its answers, its weights read, and the languages that a translator can be asked to translate into;
    none for one of one direction, and other families."""
    if isinstance(session, VectorSession):
        return session.vectors.model, []
    loaded = session.loaded
    return loaded.model, Translator(loaded).languages if loaded.config.family == "encoder-decoder" else []
