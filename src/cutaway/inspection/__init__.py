"""Questions about a model, answered by its structure or by a Trace over its one forward path.

    from cutaway.inspection import align, compare, explain, lens, patterns, run

Every question can be imported from here; the module behind it is loaded when the name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutaway.inspection.alignment.error_rate import alignment_error, error_by_head, links, read_pharaoh
    from cutaway.inspection.alignment.gold import compare_with_gold
    from cutaway.inspection.alignment.hypotheses import align, cross_weights
    from cutaway.inspection.alignment.source_effect import agreement, source_effect
    from cutaway.inspection.alignment.words import split_words, word_pieces, word_weights
    from cutaway.inspection.arithmetic.explain import Arithmetic, explain
    from cutaway.inspection.attention.head_scores import head_scores
    from cutaway.inspection.attention.patterns import patterns
    from cutaway.inspection.attention.rollout import rollout
    from cutaway.inspection.attention.value_weights import value_weights
    from cutaway.inspection.attribution.direct_logit import attribute_logit
    from cutaway.inspection.attribution.gradients import gradient_x_input
    from cutaway.inspection.attribution.integrated_gradients import integrated_gradients
    from cutaway.inspection.attribution.similarity import attribute_similarity
    from cutaway.inspection.changes.comparison import compare
    from cutaway.inspection.changes.making import edits
    from cutaway.inspection.changes.output import write
    from cutaway.inspection.changes.reading import read_changes, write_change
    from cutaway.inspection.changes.sweep import sweep
    from cutaway.inspection.geometry.analogy import analogy
    from cutaway.inspection.geometry.context_drift import context_drift
    from cutaway.inspection.geometry.projection import pca, project_table
    from cutaway.inspection.geometry.token_map import token_map
    from cutaway.inspection.geometry.vectors import neighbours, table_of
    from cutaway.inspection.neuron_firing import firing
    from cutaway.inspection.questions.anatomy import anatomy
    from cutaway.inspection.questions.experts import experts
    from cutaway.inspection.questions.lens import lens
    from cutaway.inspection.questions.neurons import neurons
    from cutaway.inspection.questions.overview import overview
    from cutaway.inspection.questions.rank import rank
    from cutaway.inspection.questions.svd import svd
    from cutaway.inspection.runs import Run, run
    from cutaway.inspection.spectra import directions, spectrum
    from cutaway.inspection.weight_matrices import parameter_matrix, w_ov, w_qk
    from cutaway.inspection.wiring import tap_names

_HOME = {
    "Arithmetic": "cutaway.inspection.arithmetic.explain",
    "Run": "cutaway.inspection.runs",
    "agreement": "cutaway.inspection.alignment.source_effect",
    "align": "cutaway.inspection.alignment.hypotheses",
    "alignment_error": "cutaway.inspection.alignment.error_rate",
    "analogy": "cutaway.inspection.geometry.analogy",
    "anatomy": "cutaway.inspection.questions.anatomy",
    "attribute_logit": "cutaway.inspection.attribution.direct_logit",
    "attribute_similarity": "cutaway.inspection.attribution.similarity",
    "compare": "cutaway.inspection.changes.comparison",
    "compare_with_gold": "cutaway.inspection.alignment.gold",
    "context_drift": "cutaway.inspection.geometry.context_drift",
    "cross_weights": "cutaway.inspection.alignment.hypotheses",
    "directions": "cutaway.inspection.spectra",
    "edits": "cutaway.inspection.changes.making",
    "error_by_head": "cutaway.inspection.alignment.error_rate",
    "experts": "cutaway.inspection.questions.experts",
    "explain": "cutaway.inspection.arithmetic.explain",
    "firing": "cutaway.inspection.neuron_firing",
    "gradient_x_input": "cutaway.inspection.attribution.gradients",
    "head_scores": "cutaway.inspection.attention.head_scores",
    "integrated_gradients": "cutaway.inspection.attribution.integrated_gradients",
    "lens": "cutaway.inspection.questions.lens",
    "links": "cutaway.inspection.alignment.error_rate",
    "neighbours": "cutaway.inspection.geometry.vectors",
    "neurons": "cutaway.inspection.questions.neurons",
    "overview": "cutaway.inspection.questions.overview",
    "parameter_matrix": "cutaway.inspection.weight_matrices",
    "patterns": "cutaway.inspection.attention.patterns",
    "pca": "cutaway.inspection.geometry.projection",
    "project_table": "cutaway.inspection.geometry.projection",
    "rank": "cutaway.inspection.questions.rank",
    "read_changes": "cutaway.inspection.changes.reading",
    "read_pharaoh": "cutaway.inspection.alignment.error_rate",
    "rollout": "cutaway.inspection.attention.rollout",
    "run": "cutaway.inspection.runs",
    "source_effect": "cutaway.inspection.alignment.source_effect",
    "spectrum": "cutaway.inspection.spectra",
    "split_words": "cutaway.inspection.alignment.words",
    "svd": "cutaway.inspection.questions.svd",
    "sweep": "cutaway.inspection.changes.sweep",
    "table_of": "cutaway.inspection.geometry.vectors",
    "tap_names": "cutaway.inspection.wiring",
    "token_map": "cutaway.inspection.geometry.token_map",
    "value_weights": "cutaway.inspection.attention.value_weights",
    "w_ov": "cutaway.inspection.weight_matrices",
    "w_qk": "cutaway.inspection.weight_matrices",
    "word_pieces": "cutaway.inspection.alignment.words",
    "word_weights": "cutaway.inspection.alignment.words",
    "write": "cutaway.inspection.changes.output",
    "write_change": "cutaway.inspection.changes.reading",
}

__all__ = [
    "Arithmetic",
    "Run",
    "agreement",
    "align",
    "alignment_error",
    "analogy",
    "anatomy",
    "attribute_logit",
    "attribute_similarity",
    "compare",
    "compare_with_gold",
    "context_drift",
    "cross_weights",
    "directions",
    "edits",
    "error_by_head",
    "experts",
    "explain",
    "firing",
    "gradient_x_input",
    "head_scores",
    "integrated_gradients",
    "lens",
    "links",
    "neighbours",
    "neurons",
    "overview",
    "parameter_matrix",
    "patterns",
    "pca",
    "project_table",
    "rank",
    "read_changes",
    "read_pharaoh",
    "rollout",
    "run",
    "source_effect",
    "spectrum",
    "split_words",
    "svd",
    "sweep",
    "table_of",
    "tap_names",
    "token_map",
    "value_weights",
    "w_ov",
    "w_qk",
    "word_pieces",
    "word_weights",
    "write",
    "write_change",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'cutaway.inspection' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
