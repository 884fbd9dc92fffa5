"""What a capture says: the ladder of packets between two ends."""
