"""Why a certificate is not attached to a job, or cannot be read: errors with a stable code and a remedy, as those of `errors.py`."""

from .errors import ShardyardError


class CertificateNotFound(ShardyardError):
    """No certificate was attached to the job."""

    code = "certificate_not_found"


class InvalidCertificate(ShardyardError):
    """The certificate has no signature, or is not what was signed."""

    code = "invalid_certificate"


class CertificateMismatch(ShardyardError):
    """The certificate is of another spec than the job's."""

    code = "certificate_mismatch"
