"""Bytes: pure codecs for every header that fabriclab speaks.

Every codec has the same two verbs, after the standard library's own:

``unpack_from(buf, offset=0)``
    Return the value found in `buf` at `offset`. Nothing is copied but the header's own fields;
    a payload is handed out as a view. Any bytes at all give a value or a
    `wire.codec.DecodeError` that says which field and why.
``pack_into(buf, offset=0)``
    Write exactly the header, nothing outside it. The caller owns the buffer and makes it large
    enough. A field that does not fit is the caller's mistake and raises plain `ValueError`.

All offer `size`. Reserved bits are sent as zero and ignored on receipt unless a module says
otherwise. Nothing here does I/O, reads a clock or keeps state.
"""
