"""A batch as the API says it, for tests of the commands."""

from typing import Any

BATCH_ID = "batch_" + "0" * 32


def batch(
    status: str = "in_progress", total: int = 10, completed: int = 0, failed: int = 0, **fields: Any
) -> Any:
    ended = {f"{name}_at": None for name in ("completed", "failed", "expired", "cancelled")}
    return {
        "id": BATCH_ID,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "model": "smollm2",
        "errors": None,
        "input_file_id": "file_in",
        "output_file_id": None,
        "error_file_id": None,
        "completion_window": "24h",
        "status": status,
        "created_at": 1_767_225_600,
        "in_progress_at": None,
        "finalizing_at": None,
        "cancelling_at": None,
        "expires_at": 1_767_312_000,
        **ended,
        "request_counts": {"total": total, "completed": completed, "failed": failed},
        "usage": {"input_tokens": 1_200, "output_tokens": 34_000},
        "metadata": {},
        "dry_run": False,
        "retry_of": None,
        "price_factor": 0.5,
        "running": 0,
        "cost": "0.0123",
        "currency": "USD",
        "estimate": None,
        **fields,
    }


def fault(line: int | None, message: str, **fields: Any) -> dict[str, Any]:
    return {
        "code": "invalid_value",
        "line": line,
        "column": None,
        "custom_id": None,
        "message": message,
        "param": None,
        **fields,
    }


def errors(*data: dict[str, Any], total: int | None = None) -> dict[str, Any]:
    return {"object": "list", "data": [*data], "total": total or len(data)}
