"""Changes of the residual stream and of what is written into it: blocks, norms, neurons, experts, dropout."""

# Shapes: B batch, T tokens, D width, F feed-forward width, X experts, A chosen experts.

import hashlib
from typing import ClassVar, Literal

import torch
from torch import Tensor

from cutaway.config import checked, key
from cutaway.errors import CutawayError, nearest
from cutaway.inspection.changes.change import (
    ANY_SIDE,
    LAYER,
    ONLY,
    POSITION,
    SIDE,
    BlockChange,
    Building,
    Change,
    Example,
    Sides,
    as_it_is,
    without,
)
from cutaway.inspection.runs import stacks
from cutaway.inspection.wiring import SIDES, All, Place, Side, Sublayer, stack_result
from cutaway.nn.mlp import MLP
from cutaway.nn.moe import MoE
from cutaway.nn.norm import PostNorm, SandwichNorm
from cutaway.tap import Edit
from cutaway.words import listed, say


@checked
class Skip(BlockChange):
    """A change by which a sublayer of a block, or the whole block, passes its input on as it came."""

    part: ClassVar[str] = "*"

    set: Literal["skip"] = key(ONLY, default="skip")

    def edit_at(self, building: Building, place: Place) -> None:
        part = "cross" if place.side == "cross" else self.part
        skipped = [each for each in place.sublayers if part in (each.part, "*")]
        building.pass_on(place.before(skipped[0]), f"{place.path}.{skipped[-1].after}")


@checked
class SkipLayer(Skip):
    op = "layer"
    title = say("layer skipped")
    about = say("A block passes its input on as it came.")
    example = Example({"side": "decoder", "layer": 1})


@checked
class SkipAttention(Skip):
    op = "attention"
    title = say("attention skipped")
    about = say("A block's attention, its norm included, passes its input on as it came.")
    example = Example({"side": "cross", "layer": 2})
    allowed = SIDES
    part = "attention"


@checked
class SkipFeedForward(Skip):
    op = "ffn"
    title = say("feed-forward network skipped")
    about = say(
        "A block's feed-forward network (or its experts), its norm included, passes its input on as it came."
    )
    example = Example({"side": "encoder", "layer": 0})
    part = "ffn"


@checked
class NoNorm(BlockChange):
    """Post-norm: the norm of the sum, x + sublayer(x). Sandwich: both norms of the sublayer."""

    op = "norm"
    title = say("norm off")
    about = say("A norm gives back what it was given, without scale and shift.")
    example = Example({"side": "decoder", "part": "ffn", "layer": 3})
    turn = 0  # it makes what is dropped, skipped or patched

    layer: All | int = key(LAYER, default="*")
    part: Literal["attention", "cross", "ffn", "final", "*"] = key(
        say('the sublayer that the norm belongs to; final: the stack\'s last norm; "*" all'), default="*"
    )
    set: Literal["off"] = key(ONLY, default="off")

    def _norms(self, building: Building, place: Place) -> list[Sublayer | None]:
        """The norms of a block that are meant; None stands for the stack's final norm."""
        found = [each for each in place.sublayers if self.part in (each.part, "*")]
        ends = place.layer == len(place.stack.layers) - 1 and building.config.has_final_norm
        final = ends and self.layer == "*" and self.part in ("final", "*")
        return [*found, None] if final else [*found]

    def check(self, building: Building) -> None:
        if any(self._norms(building, place) for place in self.places(building)):
            return
        reason = say("this model has none there")
        if self.layer != "*":
            reason = say("it is the stack's, leave `layer` out")
        raise CutawayError("part is {part!r}, but {reason}", part=self.part, reason=reason)

    def edit_at(self, building: Building, place: Place) -> None:
        for sublayer in self._norms(building, place):
            if sublayer is None:
                building.pass_on(f"{place.path}.resid_post", stack_result(place.side))
            else:
                self._without(building, place, sublayer)

    def _without(self, building: Building, place: Place, sublayer: Sublayer) -> None:
        norm, before = place.residual(sublayer), place.before(sublayer)
        if not isinstance(norm, PostNorm):
            building.pass_on(before, f"{place.path}.{sublayer.residual}.normed")
        if isinstance(norm, PostNorm | SandwichNorm):
            entering, out = building.keep(before), building.keep(f"{place.path}.{sublayer.module}.out")
            building.add(f"{place.path}.{sublayer.after}", lambda _: entering() + out())


@checked
class SetDropout(Change):
    """What every sublayer writes, and the vectors that enter the first block (Vaswani et al. 2017, §5.4).

    Which values are 0 depends on `seed`, the place in the model and the token's position alone, so that a forward
    pass, cached decoding and all hypotheses of a beam meet the same ones; training draws others.
    """

    op = "dropout"
    title = say("dropout on")
    about = say(
        "Dropout is on as in training: each value is 0 with a probability, else divided by 1 minus it."
    )
    example = Example({"seed": 1, "rate": 0.1})
    turn = 1  # before what is skipped or patched

    side: Sides | None = key(ANY_SIDE, default=None)
    seed: int = key(say("a whole number; each drops other values"), ge=0)
    rate: float | None = key(say("the probability; the model's own unless given"), default=None, gt=0, lt=1)

    def _rate(self, building: Building) -> float:
        return building.config.dropout if self.rate is None else self.rate

    def check(self, building: Building) -> None:
        building.sides(self.side or "*", self.allowed)
        if not self._rate(building):
            raise CutawayError(
                "this model's config has no dropout (dropout is 0), so it gives no rate: add `rate`, such as 0.1"
            )

    def edit(self, building: Building) -> None:
        for place in building.places(self.side or "*", "*", self.allowed):
            if place.layer == 0:
                entering = f"{place.path}.resid_pre"
                building.add(entering, self._dropped(building, place, entering))
            for sublayer in place.sublayers:
                out = f"{place.path}.{sublayer.module}.out"
                dropped = self._dropped(building, place, out)
                if not isinstance(place.residual(sublayer), SandwichNorm):
                    building.add(out, dropped)
                    continue
                # what is dropped is what the second norm has made of `out`: the step that the stream takes
                before = building.keep(place.before(sublayer))
                building.add(
                    f"{place.path}.{sublayer.after}",
                    lambda x, before=before, dropped=dropped: before() + dropped(x - before()),
                )

    def _dropped(self, building: Building, place: Place, tap: str) -> Edit:
        """An edit of x (B, T, D) at the positions of the present call; the tap's name is in its draws."""
        digest = hashlib.blake2b(f"{self.seed}:{tap}".encode(), digest_size=4).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest))
        clock, rate, width = building.clocks[place.side], self._rate(building), building.config.d_model
        drawn: list[Tensor] = []  # of each position from 0: (D,)

        def edited(x: Tensor) -> Tensor:
            while len(drawn) < clock.end:
                drawn.append(torch.rand(width, generator=generator) >= rate)
            kept = torch.stack(drawn[clock.start : clock.end]).to(x.device)
            return torch.where(kept, x / (1 - rate), 0.0)

        return edited


@checked
class SetNeuron(BlockChange):
    op = "neuron"
    title = say("neuron set")
    about = say("A feed-forward neuron, after activation and gate, is set to a value or multiplied.")
    example = Example({"side": "decoder", "layer": 3, "n": 72, "value": 30})

    n: int = key(say("the neuron, from 0"), ge=0)
    token: All | int = key(POSITION, default="*", ge=0)
    value: float | None = key(say("what it is set to"), default=None)
    scale: float | None = key(say("in the place of `value`: what it is multiplied by"), default=None)

    def __post_init__(self) -> None:
        if (self.value is None) == (self.scale is None):
            raise CutawayError("expected either value or scale")

    def check(self, building: Building) -> None:
        for place in self.places(building):
            building.check_position("token", self.token, place.side)
            network = place.block.mlp
            if not isinstance(network, MLP):
                raise CutawayError(
                    "layer {layer} is a mixture of experts, whose neurons are not met at every token; change its "
                    'experts with {{"op": "expert", …}}',
                    layer=place.layer,
                )
            if self.n >= network.up.out_features:
                raise CutawayError(
                    "n is {n}, expected 0 to {last}", n=self.n, last=network.up.out_features - 1
                )

    def edit_at(self, building: Building, place: Place) -> None:
        building.add_at(f"{place.path}.mlp.hidden", place.side, self.token, self._set)

    def _set(self, hidden: Tensor) -> Tensor:
        """(B, T, F)."""
        changed = hidden.clone()
        if self.value is not None:
            changed[..., self.n] = self.value
        elif self.scale is not None:
            changed[..., self.n] *= self.scale
        return changed


@checked
class SetExperts(BlockChange):
    """`ban`: the router's scores of these experts become -inf before its softmax, so others take their place and their
    weight. `force`: these are among the token's experts, in the place of the last ones, with the weights that the
    router's softmax gives them."""

    op = "expert"
    title = say("other experts")
    about = say("A token is not given to some experts, or is given to those that are named.")
    example = Example({"layer": 0, "ban": [2]}, model=None)

    token: All | int = key(POSITION, default="*", ge=0)
    ban: tuple[int, ...] = key(say("numbers of experts that others stand in for"), default=(), ge=0)
    force: tuple[int, ...] = key(
        say("in the place of `ban`: experts that work on the token, instead of the last of its own"),
        default=(),
        ge=0,
    )

    def __post_init__(self) -> None:
        if bool(self.ban) == bool(self.force):
            raise CutawayError("expected either ban or force, with the numbers of experts")
        if len({*self.ban, *self.force}) != len(self.ban) + len(self.force):
            raise CutawayError("an expert is named twice; name each once")

    def places(self, building: Building) -> list[Place]:
        """Those with experts, where all layers are meant."""
        there = super().places(building)
        return [place for place in there if self.layer != "*" or isinstance(place.block.mlp, MoE)]

    def check(self, building: Building) -> None:
        n_experts, n_chosen = building.config.n_experts, building.config.n_experts_per_token
        if not n_experts:
            raise CutawayError("this model has no experts; its feed-forward networks take op ffn or neuron")
        for number in (*self.ban, *self.force):
            if number >= n_experts:
                raise CutawayError(
                    "expert {number} is named, expected 0 to {last}", number=number, last=n_experts - 1
                )
        if len(self.force) > n_chosen:
            raise CutawayError(
                "force names {count} experts, but a token has only {n_chosen}; name at most as many",
                count=len(self.force),
                n_chosen=n_chosen,
            )
        if not self.places(building):
            raise CutawayError(
                "no layer there has experts; choose layers that have (cutaway inspect anatomy shows them)"
            )
        for place in self.places(building):
            if not isinstance(place.block.mlp, MoE):
                raise CutawayError(
                    "layer {layer} has no experts, but a plain network; "
                    "choose a layer that has (cutaway inspect anatomy shows them)",
                    layer=place.layer,
                )
            building.check_position("token", self.token, place.side)
            self._check_rest(building, place)

    def _check_rest(self, building: Building, place: Place) -> None:
        """Of all changes, enough experts must be left for every token, and none both banned and forced."""
        n_experts, n_chosen = building.config.n_experts, building.config.n_experts_per_token
        here = [each for each in building.changes if isinstance(each, SetExperts)]
        here = [each for each in here if each.token == self.token or "*" in (each.token, self.token)]
        here = [each for each in here if place in each.places(building)]
        banned = {number for each in here for number in each.ban}
        both = banned & {number for each in here for number in each.force}
        if both:
            number, layer = min(both), place.layer
            raise CutawayError(
                "expert {number} of layer {layer} is both banned and forced; do one of the two",
                number=number,
                layer=layer,
            )
        if len(banned) > n_experts - n_chosen:
            raise CutawayError(
                "{count} of {n_experts} experts are banned in layer {layer}, but a token needs {n_chosen}: ban at "
                "most {left}",
                count=len(banned),
                n_experts=n_experts,
                layer=place.layer,
                n_chosen=n_chosen,
                left=n_experts - n_chosen,
            )

    def edit_at(self, building: Building, place: Place) -> None:
        tap, edit = ("router", self._banned) if self.ban else ("expert_index", self._forced)
        building.add_at(f"{place.path}.mlp.{tap}", place.side, self.token, edit)

    def _banned(self, router: Tensor) -> Tensor:
        """(B, T, X)."""
        return without(router, self.ban)

    def _forced(self, chosen: Tensor) -> Tensor:
        """Numbers (B, T, A): the forced ones first, then the best of the others."""
        first = chosen.new_tensor(list(self.force))
        order = torch.isin(chosen, first).byte().argsort(dim=-1, stable=True)  # those not forced come first
        others = chosen.gather(-1, order)[..., : chosen.shape[-1] - len(first)]
        return torch.cat([first.expand(*chosen.shape[:-1], -1), others], dim=-1)


@checked
class PatchResidual(Change):
    """Activation patching (Meng et al. 2022, §2.1)."""

    op = "resid"
    title = say("residual stream of another text")
    about = say("The residual stream leaving a block at one token becomes that of another text's run there.")
    example = Example(
        {"side": "encoder", "layer": 1, "token": 2, "from": "other"}, text="我爱你。", other="我恨你。"
    )

    side: Side | None = key(SIDE, default=None)
    layer: int = key(say("the block, from 0; -1 is the last"))
    token: int = key(say("the position in the text, from 0"), ge=0)
    from_run: str = key(say("the name of the other run; a command's is other"))
    from_token: int | None = key(
        say("the position in the other text; the same unless given"), default=None, ge=0
    )

    @property
    def source(self) -> str:
        return self.from_run

    @property
    def _other_token(self) -> int:
        return self.token if self.from_token is None else self.from_token

    def check(self, building: Building) -> None:
        if self.from_run not in building.runs:
            raise CutawayError(
                "from is {name!r}{hint}, expected the name of another run; given: {known}",
                name=self.from_run,
                hint=nearest(self.from_run, building.runs),
                known=listed(building.runs) if building.runs else say("none"),
            )
        other, token = building.runs[self.from_run], self._other_token
        for place in building.places(self.side, self.layer, self.allowed):
            building.check_position("token", self.token, place.side)
            there = stacks(other).get(place.side)
            if there is None or place.layer >= len(there.stack.layers):
                raise CutawayError(
                    "the other run's model has no {block}; take a run of the same model", block=place.path
                )
            if token >= len(there.tokens):
                raise CutawayError(
                    "the other run has no token {token}, expected 0 to {last}",
                    token=token,
                    last=len(there.tokens) - 1,
                )
            if other.model.config.d_model != building.config.d_model:
                raise CutawayError(
                    "the other run's vectors have width {theirs}, expected {ours} as in this model",
                    theirs=other.model.config.d_model,
                    ours=building.config.d_model,
                )

    def edit(self, building: Building) -> None:
        (place,) = building.places(self.side, self.layer, self.allowed)
        tap, token = f"{place.path}.resid_post", self._other_token
        stream = building.measured(tap, as_it_is, building.runs[self.from_run])  # (1, T, D)
        building.add_at(tap, place.side, self.token, lambda x: stream()[0, token].to(x).expand_as(x))
