"""From a recipe to a finished model: what `cutaway train` does."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch

from cutaway.checkpoint import folder as checkpoint
from cutaway.config import ModelConfig, parse
from cutaway.errors import CutawayError
from cutaway.models.build import PRESETS, Model, build, preset
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.average import Average
from cutaway.train.data import Prepared, decoder_start
from cutaway.train.data_pairs import prepare_pairs
from cutaway.train.data_texts import prepare_texts
from cutaway.train.device import give_back_memory, pick_device, pick_precision
from cutaway.train.evaluate import Validator
from cutaway.train.loop import Trainer
from cutaway.train.objective import Objective, masked, next_token
from cutaway.train.optimizer import Optimizer
from cutaway.train.position import Limits, Position
from cutaway.train.progress import Progress
from cutaway.train.recipe import Recipe, fingerprint
from cutaway.train.signals import Interrupts
from cutaway.train.state import RunFolder
from cutaway.words import Text, say

Tell = Callable[[Text], None]


def train(recipe: Recipe, interrupted: Interrupts | None = None) -> Position:
    """Train what `recipe` says and export it to `<run folder>/model`, a plain Hugging Face folder.

    A run folder that holds a checkpoint of the same recipe is resumed from the newest whole one. `interrupted`
    is entered while steps are taken: with a signal received the state is saved and nothing is exported. Raises
    CutawayError for a user's mistakes and for a run whose losses are no numbers.
    """
    if recipe.run.threads is not None:
        torch.set_num_threads(recipe.run.threads)
    device = pick_device(recipe.run.device)
    if not Path(recipe.data.folder).is_dir():
        raise CutawayError(
            "data.folder is {folder!r}, which is no folder here ({cwd}); give data.folder=PATH",
            folder=recipe.data.folder,
            cwd=Path.cwd(),
        )
    with RunFolder(recipe.folder) as folder:
        tensorboard = folder.path / "tensorboard" if recipe.train.tensorboard else None
        progress = Progress(folder.path / "log.jsonl", tensorboard=tensorboard)
        newest = folder.newest(progress.tell)
        if recipe.train.objective == "seq2seq":
            prepared = prepare_pairs(recipe, folder.path, progress.tell)
        else:
            prepared = prepare_texts(recipe, folder.path, _context(recipe), progress.tell)
        give_back_memory()
        torch.manual_seed(recipe.run.seed)
        config = model_config(recipe, prepared.tokenizer)
        model = build(config).to(device)
        if recipe.train.init is not None and newest is None:
            warm_start(model, Path(recipe.train.init), progress.tell)
        trainer = _trainer(recipe, model, prepared, folder, progress, device)
        if newest is not None:
            trainer.resume(newest)
            step = trainer.position.step
            progress.tell(say("resumed from {newest} (step {step})", newest=newest, step=step))
        count = sum(p.numel() for p in model.parameters())
        progress.tell(
            say(
                "{count:,} parameters, {precision} products on {device}",
                count=count,
                precision=trainer.precision,
                device=device,
            )
        )
        with interrupted or nullcontext():
            if interrupted is not None:
                trainer.interrupted = interrupted
            position = trainer.run()
        if trainer.interrupted():
            kept = say("before step 1")
            if position.step:
                kept = say("step {step} is saved, the same command goes on", step=position.step)
            progress.tell(say("stopped by a signal; {kept}", kept=kept))
        elif position.step > 0:
            step = position.best_step or position.step
            source = folder.export(step)
            progress.tell(say("{source}: the model of step {step}", source=source, step=step))
        return position


def model_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    """The model's config: the recipe's [model], with vocabulary and special ids from the tokenizer."""
    given = dict(recipe.model)
    found: dict[str, object] = {"vocab_size": tokenizer.vocab_size, "pad_id": tokenizer.role("pad")}
    if recipe.train.objective == "masked":
        found |= {"mask_id": tokenizer.require("mask")}
    elif not recipe.data.one_text:  # where it is, no text ever starts or ends
        found |= {"bos_id": tokenizer.role("bos"), "eos_id": tokenizer.role("eos")}
    if recipe.train.objective == "seq2seq":
        found["decoder_start_id"] = decoder_start(tokenizer)
    name = given.pop("preset", None)
    values = {**found, **given}
    config = preset(str(name), values) if name is not None else parse(ModelConfig, values, "model")
    family = {"seq2seq": "encoder-decoder", "causal": "decoder-only", "masked": "encoder-only"}
    if config.family != family[recipe.train.objective]:
        raise CutawayError(
            "train.objective {objective!r} trains the {family} family, but the model is {family2}",
            objective=recipe.train.objective,
            family=family[recipe.train.objective],
            family2=config.family,
        )
    longest = max(recipe.data.max_source, recipe.data.max_target)
    if recipe.train.objective == "seq2seq" and longest > config.max_len:
        raise CutawayError(
            "data.max_source or max_target is {longest}, beyond model.max_len ({max_len} positions)",
            longest=longest,
            max_len=config.max_len,
        )
    return config


def _context(recipe: Recipe) -> int:
    """Tokens a row of text holds: data.context, or the model's limit."""
    if recipe.data.context is not None:
        return recipe.data.context
    name = recipe.model.get("preset")
    given = recipe.model.get("max_len", PRESETS.get(str(name), {}).get("max_len", 512))
    return int(str(given))


def warm_start(model: Model, path: Path, tell: Tell) -> None:
    """Take every weight of `model` from the checkpoint folder at `path`. Raises CutawayError when shapes differ."""
    loaded = checkpoint.load(path)
    theirs = dict(loaded.model.named_parameters())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name not in theirs or theirs[name].shape != p.shape:
                found = tuple(theirs[name].shape) if name in theirs else "nothing"
                raise CutawayError(
                    "train.init {path}: {name} is {found} there, here {tuple}",
                    path=path,
                    name=name,
                    found=found,
                    tuple=tuple(p.shape),
                )
            p.copy_(theirs[name])
    tell(say("weights from {path}", path=path))


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

    def write_model(path: Path, model: Model) -> None:
        checkpoint.save(path, model, tokenizer)

    def translate(model: Model, texts: list[str], to: str) -> list[str]:
        from cutaway.decode.translate import Translator

        translator = Translator(checkpoint.Loaded(model, config, tokenizer, {}, folder.path))
        language = next((known for known in translator.languages if known == to), None)
        return [each.text for each in translator.translate(texts, to=language, beam=1, truncate=True)]

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
    elif part.validate_every is not None:
        raise CutawayError(
            "train.validate_every is set, but [data.validation] names no examples: set hold_out or sources"
        )
    return Trainer(
        model,
        prepared.batches,
        make_objective(recipe, config, tokenizer, model, part.smoothing),
        Optimizer(
            model,
            part.optimizer,
            lr=part.lr,
            betas=(part.betas[0], part.betas[1]),
            eps=part.eps,
            weight_decay=part.weight_decay,
            momentum=part.momentum,
        ),
        part.rate,
        Average(
            model, part.average, decay=part.average_decay, count=part.average_count, every=part.average_every
        ),
        Limits(
            steps=part.steps,
            tokens=part.tokens,
            minutes=part.minutes,
            save_every=part.save_every,
            save_every_seconds=part.save_every_seconds,
            validate_every=part.validate_every,
            patience=part.patience,
            keep=part.keep,
            max_bad_steps=part.max_bad_steps,
        ),
        folder,
        write_model=write_model,
        validate=validator,
        progress=progress,
        accumulate=part.accumulate,
        clip=part.clip,
        precision=pick_precision(part.precision, device),
        seed=recipe.run.seed,
        fingerprint=fingerprint(recipe),
    )
