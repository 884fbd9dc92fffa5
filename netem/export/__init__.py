"""Labs in other forms: a compose file, a containerlab topology, and what runs in containers."""
