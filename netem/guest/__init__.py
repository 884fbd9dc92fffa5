"""A real kernel in QEMU: its image, its life, and what runs in it."""
