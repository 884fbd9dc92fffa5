"""Communication management: connections made and ended over queue pair 1."""
