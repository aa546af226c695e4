"""SIGINT and SIGTERM as a question the loop asks between batches."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType

Handler = Callable[[int, FrameType | None], object] | int | None


class Interrupts:
    """Within this context the first SIGINT or SIGTERM only sets `received`; a second one ends the process at once.

    Only the main thread of a process may enter it (Python delivers signals there).
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        for known in (signal.SIGINT, signal.SIGTERM):
            signal.signal(known, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.received is not None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, as shells count; 0 without a signal."""
        return 0 if self.received is None else 128 + self.received
