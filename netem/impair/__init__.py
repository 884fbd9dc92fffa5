"""What a link does to frames: a pure, seeded model in netem's words, and faults by meaning."""
