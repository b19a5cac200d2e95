"""Start of the program `corpusmill`, also as `python -m pipeline_assets`.

Ctrl-C ends the program without a traceback: while the commands are imported and at exit, by the signal itself.
"""

import signal
import sys
import threading


def main() -> None:
    """Import the commands, then run the one that was typed."""
    is_main_thread = threading.current_thread() is threading.main_thread()
    if interrupts := is_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipeline_assets import cli

    try:
        if interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if interrupts:  # at exit, multiprocessing waits for its processes, and would show where
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
