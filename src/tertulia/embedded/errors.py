"""What can go wrong with the embedded services; the message is one sentence for a person."""


class EmbeddedError(Exception):
    """The embedded services cannot do what was asked; the message says why and what helps."""


class DataDirectoryInUse(EmbeddedError):
    """Another live server has this data directory."""
