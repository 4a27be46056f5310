"""Every setting of Longhaul, and the only reader of the environment. A value comes from the process
environment, else from `var/run/longhaul.env` (written by `longhaul up`, so that a second terminal finds the
running servers), else from the default here. It knows nothing of what the settings are used for.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

ROOT = Path(__file__).resolve().parent.parent
VAR_DIR = Path(os.environ.get("LONGHAUL_VAR_DIR", ROOT / "var"))
ENV_FILE = VAR_DIR / "run" / "longhaul.env"


class Settings(BaseSettings):
    """Frozen; times are in seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(
        env_prefix="LONGHAUL_", env_file=ENV_FILE, extra="ignore", frozen=True, populate_by_name=True
    )

    var_dir: Path = VAR_DIR
    catalogue: Path = ROOT / "config" / "catalogue.toml"
    log_level: str = "INFO"

    # Where the two servers are. Empty means: none was given, `longhaul up` embeds one.
    database_url: str = Field("", validation_alias=AliasChoices("DATABASE_URL", "LONGHAUL_DATABASE_URL"))
    redis_url: str = Field("", validation_alias=AliasChoices("REDIS_URL", "LONGHAUL_REDIS_URL"))

    pool_size: int = 10  # database connections of one process

    # Web
    host: str = "127.0.0.1"
    port: int = 8000
    url: str = ""  # how clients reach the web process, where a proxy makes it differ from host and port
    api_key: str = ""  # of the commands that are clients of it
    web_workers: int = 1
    allowed_origins: list[str] = []  # besides our own: browser pages that may open a WebSocket
    max_followers: int = 20_000  # streams that one web process holds at once
    max_wait_seconds: float = 60.0  # longest long-poll
    max_body_bytes: int = 2_000_000
    ping_seconds: float = 20.0  # WebSocket pings and SSE comments
    write_timeout_seconds: float = 10.0  # a follower that takes no byte for this long is dropped
    cancel_wait_seconds: float = 5.0  # how long a cancel request waits for the worker to settle
    max_sync_seconds: float = 600.0  # how long an OpenAI call without background mode waits for its job
    worker_absence_seconds: float = 60.0  # and for a worker, where none serves its model
    key_cache_seconds: float = 5.0  # a revoked key works at most this much longer

    # Jobs
    max_attempts: int = 3  # attempts lost without progress before a job fails
    retention_days: int = 30
    unstored_seconds: float = 600.0  # a job that is not to be stored is kept this long after its end
    ring_after_seconds: float = 5.0  # a job that was placed on a worker and not claimed is placed again
    janitor_interval_seconds: float = 1.0

    # The line. Limits of 0 are none; accounts and keys may have their own.
    dispatch_interval_seconds: float = 0.5  # at the latest; whoever frees or wants a slot wakes the dispatcher
    leader_retry_seconds: float = 1.0  # how often a second dispatcher asks whether the first is gone
    max_preemptions: int = 3  # a batch job that yielded this often yields no more
    ageing_seconds: float = 600.0  # a batch job that waited this long, or is due within it, counts as aged
    aged_share: float = 0.125  # of a model's slots: aged jobs get these before interactive ones
    session_seconds: float = 600.0  # a job that follows another of its session within this keeps its place
    requests_per_minute: int = 30_000
    tokens_per_minute: int = 30_000_000  # interactive
    batch_tokens_per_minute: int = 0
    max_waiting_jobs: int = 100_000  # of one account in one line (a model's tier)
    max_waiting_tokens: int = 200_000_000
    reservation_seconds: float = 3600.0  # tokens reserved for a job that never ends are free again
    offline_requests_per_minute: int = 600  # of one account, on each web process while Redis is away

    # Files
    file_folder: Path | None = None  # that all processes share; without one `files` of var_dir
    file_bucket: str = ""  # of S3, in place of a folder; credentials come from AWS's own environment
    file_prefix: str = ""  # of names in it
    file_endpoint_url: str = ""  # of what speaks like S3
    file_region: str = ""
    max_file_bytes: int = 512 * 1024 * 1024
    max_files: int = 10_000  # of one account; 0 is no limit
    max_file_bytes_kept: int = 50 * 1024**3  # of one account, all its files; 0 is no limit
    blob_grace_seconds: float = 3600.0  # contents of an upload that never ended are kept this long

    # Batches. A line is a request of its endpoint, in a file of JSONL.
    max_batch_lines: int = 50_000
    max_batch_bytes: int = 200 * 1024 * 1024
    max_line_bytes: int = 2_000_000
    max_message_batch_bytes: int = 200 * 1024 * 1024  # of a body of inline requests, as Anthropic's are
    batch_interval_seconds: float = 0.5  # how often running batches are looked at
    batch_progress_seconds: float = 2.0  # least time between two progress events of a batch

    # Webhooks
    webhook_allowed_hosts: list[str] = []  # names, addresses or networks that may be private and plain http
    webhook_ports: list[int] = [443, 8443]
    webhook_timeout_seconds: float = 20.0  # of one attempt, from resolving the name to the last byte
    webhook_endpoint_concurrency: int = 4  # attempts at one endpoint at a time
    webhook_concurrency: int = 200
    webhook_disable_after_seconds: float = 5 * 86_400.0  # of nothing but failures
    webhook_retention_days: int = 30
    max_webhook_endpoints: int = 50  # of one account; 0 is no limit

    # Worker
    model: str = "smollm2"  # which model of the catalogue this worker serves
    slots: int = 0  # 0: what the catalogue says
    lease_seconds: float = 10.0
    heartbeat_seconds: float = 2.0
    segment_interval_seconds: float = 0.5
    live_interval_seconds: float = 0.02  # least time between two publishing rounds, first tokens excepted
    drain_seconds: float = 20.0  # grace for interactive jobs on SIGTERM
    engine_stall_seconds: float = 120.0  # a busy engine that yields nothing for this long is dead

    @property
    def base_url(self) -> str:
        return self.url or f"http://{self.host}:{self.port}"


@cache
def settings() -> Settings:
    """The process's settings, read once."""
    return Settings()


def process_environment(**overrides: str) -> dict[str, str]:
    """The environment for a child process: ours, with `overrides`."""
    return {**os.environ, **overrides}


def default_environment(values: Mapping[str, str]) -> None:
    """Give the environment variables that a library reads itself a value, where they have none."""
    for name, value in values.items():
        os.environ.setdefault(name, value)
