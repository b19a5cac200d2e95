"""Resource usage of ended forked workers, whose parent is the fork server."""

maxrss, cpu_s = 0, 0.0


def add(worker_maxrss: int, worker_cpu_s: float) -> None:
    """Add the CPU seconds of an ended worker; keep the largest `ru_maxrss`."""
    global maxrss, cpu_s
    maxrss, cpu_s = max(worker_maxrss, maxrss), cpu_s + worker_cpu_s


def reset_cpu() -> None:
    """Reset the CPU seconds of forked workers, after the fork server has ended.

    `getrusage` in this process then includes these seconds, so they would count twice.
    """
    global cpu_s
    cpu_s = 0.0
