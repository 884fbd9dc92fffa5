"""The node process: one trio loop that joins machines to sockets."""
