"""What is known of a model from its config and files, as JSON has it."""

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.translator import Translator
from cutaway.inspection.answers import Session
from cutaway.inspection.question import all_questions, find_question

SIDES = {
    "encoder-decoder": ["encoder", "decoder"],
    "decoder-only": ["decoder"],
    "encoder-only": ["encoder"],
}


def facts(session: Session) -> dict[str, object]:
    """Its sizes, and the questions that can be asked of it. No weights are read."""
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
    }


def languages(loaded: Loaded) -> list[str]:
    """What a translator can be asked to translate into; empty for one of one direction, and other families."""
    return Translator(loaded).languages if loaded.config.family == "encoder-decoder" else []
