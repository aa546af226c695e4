"""Changes at single tokens: neurons, experts, patched residual streams, embeddings, the output."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.changes import residual
from cutaway.inspection.changes.edits import Clock, EditList
from cutaway.inspection.changes.places import STACKS, Place, Places
from cutaway.inspection.changes.schema import (
    PatchResidual,
    SetEmbedding,
    SetExperts,
    SetNeuron,
    SetOutput,
    SetTemperature,
)
from cutaway.inspection.outcome import never_written
from cutaway.inspection.runs import Run
from cutaway.inspection.wiring import Side
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.head import Head
from cutaway.nn.mlp import MLP
from cutaway.nn.moe import MoE
from cutaway.tap import Edit

_LOGITS = "head.logits"


class TokenChanges:
    """Adds the edits of such changes. `where` is what messages call the change."""

    def __init__(self, places: Places, clocks: Mapping[str, Clock], edits: EditList, runs: Mapping[str, Run]):
        self._places, self._clocks, self._edits, self._runs = places, clocks, edits, runs
        self._chosen_experts: list[tuple[Place, SetExperts, str]] = []
        self._wanted: dict[str, dict[str, Tensor]] = {}  # residual streams of each named run, by tap

    def finish(self) -> None:
        self._check_experts()
        for name, values in self._wanted.items():
            _, trace = self._runs[name].forward(list(values))
            values.update({tap: trace[tap] for tap in values})

    def set_neuron(self, change: SetNeuron, where: str) -> None:
        for place in self._places.places(change.side, change.layer, STACKS, where):
            self._places.check_position(_number(change.token), place.side, where, "token")
            network = place.block.mlp
            if not isinstance(network, MLP):
                raise CutawayError(
                    "{where}: layer {layer} is a mixture of experts, whose neurons are not met at every "
                    'token; change its experts with {{"op": "expert", …}}',
                    where=where,
                    layer=place.layer,
                )
            width = network.up.out_features
            if not 0 <= change.n < width:
                raise CutawayError(
                    "{where}: n is {n}, expected 0 to {width}", where=where, n=change.n, width=width - 1
                )
            edit = residual.set_neuron(change.n, change.value, change.scale)
            self._at_token(f"{place.path}.mlp.hidden", place.side, change.token, edit)

    def set_experts(self, change: SetExperts, where: str) -> None:
        model = self._places.model
        n_experts, n_chosen = model.config.n_experts, model.config.n_experts_per_token
        if not n_experts:
            raise CutawayError(
                "{where}: this model has no experts; its feed-forward networks take op ffn or neuron",
                where=where,
            )
        for number in (*change.ban, *change.force):
            if not 0 <= number < n_experts:
                raise CutawayError(
                    "{where}: expert {number} is named, expected 0 to {n_experts}",
                    where=where,
                    number=number,
                    n_experts=n_experts - 1,
                )
        if len(change.force) > n_chosen:
            raise CutawayError(
                "{where}: force names {count} experts, but a token has only {n_chosen}",
                where=where,
                count=len(change.force),
                n_chosen=n_chosen,
            )
        n_changed = 0
        for place in self._places.places(change.side, change.layer, STACKS, where):
            if not isinstance(place.block.mlp, MoE):
                if change.layer == "*":
                    continue
                raise CutawayError(
                    "{where}: layer {layer} has no experts, but a plain network",
                    where=where,
                    layer=place.layer,
                )
            self._places.check_position(_number(change.token), place.side, where, "token")
            tap = "router" if change.ban else "expert_index"
            edit = residual.ban_experts(change.ban) if change.ban else residual.force_experts(change.force)
            self._at_token(f"{place.path}.mlp.{tap}", place.side, change.token, edit)
            self._chosen_experts.append((place, change, where))
            n_changed += 1
        if not n_changed:
            raise CutawayError("{where}: no layer there has experts", where=where)

    def _check_experts(self) -> None:
        """Enough experts must be left for every token, and none both banned and forced."""
        model = self._places.model
        left = model.config.n_experts - model.config.n_experts_per_token
        for place, change, where in self._chosen_experts:
            here = [
                other
                for at, other, _ in self._chosen_experts
                if at == place and (other.token in (change.token, "*") or change.token == "*")
            ]
            banned = {number for other in here for number in other.ban}
            both = banned & {number for other in here for number in other.force}
            if both:
                raise CutawayError(
                    "{where}: expert {both} of layer {layer} is both banned and forced",
                    where=where,
                    both=min(both),
                    layer=place.layer,
                )
            if len(banned) > left:
                raise CutawayError(
                    "{where}: {count} of {n_experts} experts are banned in layer {layer}, but a token "
                    "needs {n_experts_per_token}: ban at most {left}",
                    where=where,
                    count=len(banned),
                    n_experts=model.config.n_experts,
                    layer=place.layer,
                    n_experts_per_token=model.config.n_experts_per_token,
                    left=left,
                )

    def patch(self, change: PatchResidual, where: str) -> None:
        if change.from_run not in self._runs:
            hint = nearest(change.from_run, self._runs)
            raise CutawayError(
                "{where}: from is {from_run!r}{hint}, expected the name of a run; given: {runs}",
                where=where,
                from_run=change.from_run,
                hint=hint,
                runs=", ".join(self._runs) or "none",
            )
        other = Places(self._runs[change.from_run])
        token = change.token if change.from_token is None else change.from_token
        for place in self._places.places(change.side, change.layer, STACKS, where):
            self._places.check_position(change.token, place.side, where, "token")
            next(iter(other.places(place.side, change.layer, STACKS, f"{where}, the other run")))
            if not 0 <= token < other.length(place.side):
                raise CutawayError(
                    "{where}: the other run has no token {token}, expected 0 to {length}",
                    where=where,
                    token=token,
                    length=other.length(place.side) - 1,
                )
            if other.model.config.d_model != self._places.model.config.d_model:
                raise CutawayError(
                    "{where}: the other run's vectors have width {d_model}, expected {d_model2} as in this "
                    "model",
                    where=where,
                    d_model=other.model.config.d_model,
                    d_model2=self._places.model.config.d_model,
                )
            tap = f"{place.path}.resid_post"
            values = self._wanted.setdefault(change.from_run, {})
            values.setdefault(tap, torch.empty(0))
            self._at_token(tap, place.side, change.token, residual.patched(_vector(values, tap, token)))

    def set_embedding(self, change: SetEmbedding, where: str) -> None:
        (side,) = self._places.sides(change.side, STACKS, where)[:1]
        self._places.check_position(change.token, side, where, "token")
        path, embedding = self._places.embedding(side)
        table, scale = embedding.tokens.weight, embedding.scale

        def id_of(token: int | str, name: str) -> int:
            return self._places.id(token, side, where, name)

        if change.id is not None:
            new = id_of(change.id, "id")
            edit = residual.patched(lambda: table[new] * scale)
        else:
            assert change.along is not None, "checked by the schema"
            first, second = (id_of(token, "along") for token in change.along)
            edit = _moved(lambda: (table[second] - table[first]) * (scale * change.amount))
        self._at_token(f"{path}.embed", side, change.token, edit)

    def set_output(self, change: SetOutput, where: str) -> None:
        self._check_head(where)
        side: Side = "encoder" if isinstance(self._places.model, EncoderOnly) else "decoder"
        self._places.check_position(_number(change.at), side, where, "at")
        if change.force is None:
            edit = residual.without([self._places.id(token, side, where, "ban") for token in change.ban])
        else:
            id = self._places.id(change.force, side, where, "force")
            if id in never_written(self._places.run):
                raise CutawayError(
                    "{where}: force is {force!r}, a control token or an id without a piece, which the "
                    "model never writes",
                    where=where,
                    force=change.force,
                )
            edit = residual.only(id)
        self._at_token(_LOGITS, side, change.at, edit)

    def set_temperature(self, change: SetTemperature, where: str) -> None:
        self._check_head(where)
        self._edits.add(_LOGITS, lambda logits: logits / change.value)

    def _check_head(self, where: str) -> None:
        if not isinstance(self._places.model.head, Head):
            raise CutawayError(
                "{where}: this model has no output head: it gives vectors and not words, so it has no "
                "logits to change",
                where=where,
            )

    def _at_token(self, tap: str, side: Side, token: int | str, edit: Edit) -> None:
        self._edits.add(tap, residual.at_token(self._clocks[side], token, edit))


def _number(token: int | str) -> int | None:
    return token if isinstance(token, int) else None


def _vector(values: Mapping[str, Tensor], tap: str, token: int) -> Callable[[], Tensor]:
    return lambda: values[tap][0, token]


def _moved(step: Callable[[], Tensor]) -> Edit:
    return lambda x: x + step().to(x)
