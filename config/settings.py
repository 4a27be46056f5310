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
    key_cache_seconds: float = 5.0  # a revoked key works at most this much longer

    # Jobs
    max_attempts: int = 3  # attempts lost without progress before a job fails
    retention_days: int = 30
    ring_after_seconds: float = 5.0  # a queued job that nobody claimed is rung again this often
    janitor_interval_seconds: float = 1.0

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
