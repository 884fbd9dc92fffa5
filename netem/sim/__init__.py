"""The same lab in virtual time: no sockets, no clock, no event loop."""
