"""Where a run stands, and when it is to stop, save and validate."""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When to stop, save and validate. Exactly one of steps, tokens and minutes is given."""

    steps: int | None = None
    tokens: int | None = None  # counted labels
    minutes: float | None = None  # of training, summed over resumes; the schedule then follows the clock
    save_every: int = 1000
    save_every_seconds: float | None = None
    validate_every: int | None = None
    patience: int | None = None  # validations without a better loss before stopping
    keep: int = 2
    max_bad_steps: int = 10

    def total(self, step: int, tokens: int, seconds: float) -> float:
        """Updates in the whole run, estimated where it is limited by tokens or minutes."""
        if self.steps is not None:
            return self.steps
        if step == 0:
            return math.inf
        if self.tokens is not None:
            return step * self.tokens / max(tokens, 1)
        assert self.minutes is not None
        return step * self.minutes * 60 / max(seconds, 1e-9)

    def reached(self, step: int, tokens: int, seconds: float) -> bool:
        if self.steps is not None:
            return step >= self.steps
        if self.tokens is not None:
            return tokens >= self.tokens
        assert self.minutes is not None
        return seconds >= self.minutes * 60


@dataclass
class Position:
    """Where a run stands; saved with every checkpoint."""

    step: int = 0  # windows taken, whether they were applied or skipped
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    bad_in_a_row: int = 0
    validated: int = 0  # the step of the last finished validation
    best_step: int | None = None
    best_loss: float | None = None
    stale: int = 0  # validations since the best one
    history: list[dict[str, object]] = field(default_factory=list)
