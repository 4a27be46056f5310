"""What can go wrong with webhooks. Each error has a stable `code` and a message that is safe to show."""

from app.jobs.errors import JobError


class UrlRefused(JobError):
    """A URL that nothing is sent to; `param` names where it was given."""

    code = "webhook_url_refused"

    def __init__(self, param: str, message: str) -> None:
        self.param = param
        super().__init__(message)


class SecretMissing(JobError):
    code = "webhook_secret_missing"
    param = "webhook_url"

    def __init__(self) -> None:
        super().__init__(
            "Your account has no secret to sign what is sent to a 'webhook_url'. Make one with "
            "POST /v1/webhooks/secret/rotate."
        )


class EndpointNotFound(JobError):
    code = "webhook_endpoint_not_found"
    param = "endpoint_id"

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"No webhook endpoint with id '{endpoint_id}'.")


class EndpointDisabled(JobError):
    code = "webhook_endpoint_disabled"
    param = "endpoint_id"

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"The webhook endpoint '{endpoint_id}' is disabled; enable it first.")


class TooManyEndpoints(JobError):
    code = "webhook_endpoint_limit"

    def __init__(self, limit: int) -> None:
        super().__init__(f"Your account may have {limit} webhook endpoints; delete some first.")


class EventTypeUnknown(JobError):
    code = "webhook_event_type_unknown"

    def __init__(self, param: str, name: str, known: list[str]) -> None:
        self.param = param
        super().__init__(f"There is no event type '{name}'. There are: {', '.join(known)}.")


class DeliveryNotFound(JobError):
    code = "webhook_delivery_not_found"
    param = "delivery_id"

    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"No webhook delivery with id '{delivery_id}'.")


class MessageNotFound(JobError):
    code = "webhook_event_not_found"
    param = "event_id"

    def __init__(self, message_id: str) -> None:
        super().__init__(f"No webhook event with id '{message_id}'.")
