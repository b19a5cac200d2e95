"""One recipe class a system, made of the parts that kernels define."""
