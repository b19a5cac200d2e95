"""Modal apps, which run kernels in cloud containers with GPUs."""
