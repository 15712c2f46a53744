"""What users are told: expected, got (file, frame), what to do."""


class PushframeError(Exception):
    """Any mistake a user can mend. The command line prints it on one line and exits with 2."""


class UsageError(PushframeError):
    """An option, an argument or a configuration value that does not fit."""


class FileError(PushframeError):
    """A file that cannot be found, read, understood or written."""


class BurstError(PushframeError):
    """A burst that could be read but cannot be used: its contents contradict the model."""


class MissingPackageError(PushframeError):
    """An optional package is needed for what was asked."""


class TrainingError(PushframeError):
    """A training run that cannot go on: its loss is no number or explodes, or memory is short."""
