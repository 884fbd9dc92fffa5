"""A lab's life: up, run, down, and who started what."""
