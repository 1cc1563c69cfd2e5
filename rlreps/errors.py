"""Errors that a user's input can cause; the command line prints them on one line."""


class InputError(ValueError):
    """Input that cannot be used: the message says what was expected and what came."""


class TrainingDivergedError(RuntimeError):
    """A loss or a parameter became NaN or infinite; the last good checkpoint is untouched."""


class ProcessDiedError(RuntimeError):
    """A process that the others of its run wait for has died; says which and how to go on."""
