"""Modal apps: images, volumes and GPUs around kernels."""
