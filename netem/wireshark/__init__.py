"""The dissector for Wireshark, as a Lua script, and where a user's Wireshark looks for it."""
