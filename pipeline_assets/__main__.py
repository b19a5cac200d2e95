"""Start of the program `corpusmill`, also as `python -m pipeline_assets`."""

import signal
import sys

from pipeline_assets.commands.interrupts import end_on_ctrl_c


def main() -> None:
    """Run the command in `sys.argv`; Ctrl-C ends it without a traceback."""
    with end_on_ctrl_c():
        from pipeline_assets import cli
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if is_default:  # at exit, multiprocessing waits for its processes, and would show where
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
