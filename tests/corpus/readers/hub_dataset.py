"""The dataset that the tests of hub readers read: a regular file, an LFS file and an empty one."""

DATASET = "maker/pages"
CARD = b"# Pages\n"
LARGE = bytes(range(256)) * 20_000  # 5,120,000 bytes
NOWHERE = "0123456789abcdef0123456789abcdef01234567"
