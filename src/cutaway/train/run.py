"""From a recipe to a finished model: what `cutaway train` does."""

from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from cutaway.checkpoint import folder as checkpoint
from cutaway.config import PIECES, ModelConfig, to_dict
from cutaway.decode.search import GREEDY
from cutaway.decode.translator import Translator
from cutaway.errors import CutawayError
from cutaway.models.build import Model, build, skeleton
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.data import Prepared, prepare
from cutaway.train.loop import Trainer, not_finite
from cutaway.train.machine import Interrupts, give_back_memory, memory, pick_device, pick_precision
from cutaway.train.objective import Objective, balanced, masked, next_token
from cutaway.train.optimizer import Average, Optimizer
from cutaway.train.progress import Progress, Tell
from cutaway.train.recipe import Recipe, refuse_changes
from cutaway.train.state import Position, RunFolder, past_recipe
from cutaway.train.validation import Validator
from cutaway.train.vocabulary import decoder_start, known_tokenizer
from cutaway.words import say


def train(recipe: Recipe, interrupted: Interrupts | None = None) -> Position:
    """Train what `recipe` says and export it to `<run folder>/model`, a plain Hugging Face folder.

    A run folder that holds a checkpoint of the same recipe is resumed from the newest whole one. `interrupted`
    is entered while steps are taken: with a signal received the state is saved and nothing is exported. Raises
    CutawayError for a user's mistakes and for a run whose losses are no numbers.
    """
    if recipe.run.threads is not None:
        torch.set_num_threads(recipe.run.threads)
    device = pick_device(recipe.run.device)
    for name, path in (("data.folder", recipe.data.folder), ("train.init", recipe.train.init)):
        if path is not None and not Path(path).is_dir():
            raise CutawayError(
                "{name} is {path!r}, which is no folder here ({here}); give {name}=PATH",
                name=name,
                path=path,
                here=Path.cwd(),
            )
    if (there := memory(device)) is not None:
        check_memory(recipe, there)
    with RunFolder(recipe.folder) as folder:
        tensorboard = folder.path / "tensorboard" if recipe.train.tensorboard else None
        progress = Progress(folder.path / "log.jsonl", tensorboard=tensorboard)
        had = folder.steps()
        newest = folder.newest(progress.tell)
        if newest is not None:
            refuse_changes(past_recipe(newest), recipe, folder.path)
        tokenizer = known_tokenizer(recipe.tokenizer, newest)
        if tokenizer is not None:
            model_config(recipe, tokenizer)
        init = None if newest is not None or recipe.train.init is None else Path(recipe.train.init)
        if init is not None:
            weights_of(init, skeleton(recipe.model))
        prepared = prepare(recipe, folder.path, tokenizer, progress.tell)
        give_back_memory()
        torch.manual_seed(recipe.run.seed)
        config = model_config(recipe, prepared.tokenizer)
        model = build(config).to(device)
        if init is not None:
            warm_start(model, init, progress.tell)
        trainer = _trainer(recipe, model, prepared, folder, progress, device)
        if newest is not None:
            trainer.resume(newest)
            progress.tell("resumed from {path} (step {step})", path=newest, step=trainer.position.step)
            at = trainer.position
            limit = recipe.train.limit
            if recipe.train.reached(at.step, at.tokens, at.seconds):
                progress.tell(
                    "{limit} is used up: nothing is left to train; a greater one goes on",
                    limit=limit,
                )
        elif progress.rewind(0) or had:
            progress.tell("{path}: no checkpoint there is whole, so training starts over", path=folder.path)
        progress.tell(
            "{count:,} parameters, {precision} products on {device}",
            count=sum(p.numel() for p in model.parameters()),
            precision=trainer.precision,
            device=device,
        )
        with interrupted or nullcontext():
            if interrupted is not None:
                trainer.interrupted = interrupted
            position = trainer.run()
        if trainer.interrupted():
            if step := position.step:
                progress.tell(
                    "stopped by a signal; step {step} is saved, the same command goes on", step=step
                )
            else:
                progress.tell("stopped by a signal before step 1")
        elif position.step > 0:
            export(folder, position, progress.tell)
        return position


def export(folder: RunFolder, position: Position, tell: Tell) -> None:
    """Copy the best model that is whole to `model/`. Raises CutawayError where there is none."""
    best = folder.best(position.losses, tell)
    if best is None:
        raise CutawayError("{path}: no checkpoint there is whole, so no model is exported", path=folder.path)
    wanted = folder.at(position.best_step or position.step)
    if best != wanted:
        tell(
            "{wanted}, the best checkpoint, is gone or damaged; {best} is the best of the others",
            wanted=wanted,
            best=best,
        )
    step = int(best.name.removeprefix("step-"))
    tell("{path}: the model of step {step}", path=folder.export(best), step=step)


def check_memory(recipe: Recipe, there: int) -> None:
    """Raises CutawayError for a model whose training takes more than `there` bytes, whatever its vocabulary and its
    batches: the model is built without its weights."""
    config, copies = (
        recipe.model,
        {"none": 0, "ema": 1, "mean": recipe.train.average_count}[recipe.train.average],
    )
    rows = config.max_len + config.position_offset if config.position == "sinusoidal" else 0
    table, count = 4 * rows * config.d_model, 0
    if table < there:
        parameters = skeleton(config).parameters()
        count = sum(p.numel() for p in parameters if config.vocab_size not in p.shape)
    # weights, gradients, at least one average of the optimiser, in fp32
    needed = table + 4 * count * (3 + copies)
    if needed > there:
        raise CutawayError(
            "[model] has {count:,} parameters beside those of the vocabulary, and training takes at least {needed:,} "
            "bytes of memory; there are {there:,}. Make model.d_model, n_layers, d_ff or max_len smaller",
            count=count,
            needed=needed,
            there=there,
        )


def model_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    """The model's config: the recipe's [model], with vocabulary and special ids from the tokenizer. Raises CutawayError
    for a control token that training needs and the tokenizer lacks, and for what does not agree with [model]."""
    windows = recipe.train.objective == "causal" and recipe.data.one_text
    for role in () if windows else ("pad", "mask") if recipe.train.objective == "masked" else ("pad", "eos"):
        tokenizer.require(role)
    found: dict[str, int | None] = {"vocab_size": tokenizer.vocab_size, "pad_id": tokenizer.role("pad")}
    if recipe.train.objective == "masked":
        found["mask_id"] = tokenizer.require("mask")
    # where all is one text, none ever starts or ends
    elif not recipe.data.one_text:
        found |= {"bos_id": tokenizer.role("bos"), "eos_id": tokenizer.role("eos")}
    if recipe.train.objective == "seq2seq":
        found["decoder_start_id"] = decoder_start(tokenizer)
    return recipe.model.filled(found)


def warm_start(model: Model, path: Path, tell: Tell) -> None:
    """Take every weight of `model` from the checkpoint folder at `path`."""
    theirs = weights_of(path, model)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(theirs[name])
    tell("weights from {path}", path=path)


def weights_of(path: Path, model: Model) -> dict[str, Tensor]:
    """The weights that the checkpoint folder at `path` has for `model`, whose vocabulary's size may still be open.

    Raises CutawayError for a shape that differs and for weights that are not finite."""
    theirs: dict[str, Tensor] = dict(checkpoint.load(path).model.named_parameters())
    for name, p in model.named_parameters():
        there = theirs[name].shape if name in theirs else None
        if (
            there is None
            or len(there) != p.dim()
            or any(here not in (size, PIECES) for here, size in zip(p.shape, there, strict=True))
        ):
            raise CutawayError(
                "train.init {path}: {name} is {there} there, {here} here; make the recipe's the same",
                path=path,
                name=name,
                there=say("missing") if there is None else _sizes(there),
                here=_sizes(p.shape),
            )
    if name := not_finite(theirs):
        raise CutawayError(
            "train.init {path}: {name} holds numbers that are not finite; start from other weights",
            path=path,
            name=name,
        )
    return theirs


def _sizes(shape: torch.Size) -> str:
    return f"({', '.join('?' if size == PIECES else str(size) for size in shape)})"


def make_objective(
    recipe: Recipe, config: ModelConfig, tokenizer: Tokenizer, model: Model, smoothing: float
) -> Objective:
    hidden = torch.compile(model.hidden) if recipe.train.compile else None
    if recipe.train.objective == "masked":
        assert config.mask_id is not None
        special = tuple(tokenizer.roles.values())
        return masked(config.mask_id, config.vocab_size, special, smoothing, recipe.train.masking, hidden)
    return next_token(smoothing, hidden)


def _trainer(
    recipe: Recipe,
    model: Model,
    prepared: Prepared,
    folder: RunFolder,
    progress: Progress,
    device: torch.device,
) -> Trainer:
    part, tokenizer, config = recipe.train, prepared.tokenizer, model.config

    def translate(model: Model, texts: list[str], to: str) -> list[str]:
        translator = Translator(checkpoint.Loaded(model, config, tokenizer, {}, folder.path))
        language = to if to in translator.languages else None
        found = translator.translate(texts, to=language, search=GREEDY, truncate=True)
        return [each.best.text for each in found]

    validator = None
    if prepared.validation:
        validator = Validator(
            batches=prepared.validation,
            objective=make_objective(recipe, config, tokenizer, model, 0.0),
            n_bytes=prepared.n_bytes,
            directions=prepared.directions,
            samples=recipe.data.validation.samples,
            translate=translate if prepared.directions else None,
        )
    return Trainer(
        model,
        prepared.batches,
        balanced(make_objective(recipe, config, tokenizer, model, part.smoothing), model),
        part,
        Optimizer(
            model,
            part.optimizer,
            lr=part.lr,
            betas=(part.betas[0], part.betas[1]),
            eps=part.eps,
            weight_decay=part.weight_decay,
            momentum=part.momentum,
        ),
        Average(
            model, part.average, decay=part.average_decay, count=part.average_count, every=part.average_every
        ),
        folder,
        write_model=lambda path, model: checkpoint.save(path, model, tokenizer),
        validate=validator,
        progress=progress,
        precision=pick_precision(part.precision, device),
        seed=recipe.run.seed,
        fingerprint=to_dict(recipe),
    )
