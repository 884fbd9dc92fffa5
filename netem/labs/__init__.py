"""The built-in labs, one folder each."""
