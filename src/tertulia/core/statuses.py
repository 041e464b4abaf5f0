"""The one table from an error's class to an HTTP status; events that carry an error carry the same number."""

from tertulia.core import errors

_STATUS: dict[type[errors.TertuliaError], int] = {
    errors.InvalidRequest: 400,
    errors.BodyTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooManyRequests: 429,
    errors.Unavailable: 503,
    errors.GenerationTimeout: 504,
    errors.GenerationAborted: 499,
    errors.TurnError: 502,
    errors.TertuliaError: 500,
}


def error_of(code: str, message: str | None) -> errors.TertuliaError:
    """The error that was stored under this code."""
    kinds = [errors.TertuliaError]
    for kind in kinds:
        if kind.code == code:
            return kind(message)
        kinds += kind.__subclasses__()
    return errors.AgentError(message)


def http_status(error: errors.TertuliaError) -> int:
    """The status of the nearest class that has one."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
