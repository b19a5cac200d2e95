"""Progress bars on a terminal."""

import atexit
import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar

from pipeline_assets.spine.visible import to_one_line

if TYPE_CHECKING:
    import rich.progress

_BAR_WIDTH = 20
_REDRAW_S = 0.1
_STEP_PREFIX = ContextVar("step", default="")


class Bar:
    """Progress bar; the terminal shows all bars until `end_bars` is called."""

    display: "ClassVar[rich.progress.Progress | None]" = None

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.fields[text]}", markup=False),
        )
        if Bar.display is None:
            # Callers draw, not a thread, since workers may be forks of this process. Results are printed on stdout.
            Bar.display = Progress(*columns, console=Console(stderr=True), auto_refresh=False, redirect_stdout=False)
            Bar.display.start()
            atexit.register(end_bars)
        self._bars = Bar.display
        self._task = self._bars.add_task(to_one_line(f"{_STEP_PREFIX.get()}{title}"), text="")
        self._drawn = -_REDRAW_S

    @property
    def is_shown(self) -> bool:
        """True if the bar is still shown; other code may have called `end_bars`."""
        return self._bars is Bar.display

    def draw(self, done: int, total: int, text: str) -> None:
        self._bars.update(self._task, completed=done, total=total, text=to_one_line(text))
        now = time.monotonic()
        if now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._bars.refresh()
        if self._bars.finished:
            end_bars()


def end_bars() -> None:
    """Stop drawing the bars and release the terminal, if bars are shown."""
    if Bar.display is not None:
        bars, Bar.display = Bar.display, None
        bars.stop()


@contextlib.contextmanager
def label_bars(step: int, step_count: int) -> Iterator[None]:
    """Prefix the bars' titles, as in `step 2 of 5:`; end the bars after the block."""
    token = _STEP_PREFIX.set(f"step {step} of {step_count}: ")
    try:
        yield
    finally:
        _STEP_PREFIX.reset(token)
        end_bars()
