"""Functions that run on Modal: images, volumes and GPUs around kernels."""
