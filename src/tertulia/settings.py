"""The one place for settings: `TERTULIA_*` in the environment, or `tertulia.toml`."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tertulia.core.agents import AgentProfile, is_agent_id
from tertulia.core.model import OpenTurns

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")
_ADDRESS = re.compile(r"https?://[^/\s]+\S*")


class SettingsError(Exception):
    """A setting is wrong; the message names it and says what would be right."""


def default_data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tertulia"


class Settings(BaseSettings):
    """Everything an operator may decide, with defaults that work on a laptop."""

    model_config = SettingsConfigDict(
        env_prefix="TERTULIA_", extra="forbid", populate_by_name=True, allow_inf_nan=False
    )

    # Where things are
    data_dir: Path = Field(default_factory=default_data_dir)
    host: str = "127.0.0.1"
    port: int = Field(8710, ge=0, le=65535)
    worker_port: int | None = Field(None, ge=0, le=65535)
    database_url: SecretStr | None = None
    migration_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    database_pool: int = Field(16, ge=2, le=200)

    # Who may come in
    secret: SecretStr | None = None
    claim_user: str = "user_id"
    claim_tenant: str = "tenant_id"
    claim_role: str = "role"
    audience: str | None = None
    issuer: str | None = None
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()

    # Who answers
    model: str | None = None
    model_base_url: str | None = None
    google_api_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("GOOGLE_API_KEY", "google_api_key")
    )
    agent_id: str = "assistant"
    agent_name: str = "Assistant"
    agents_file: Path | None = None
    agent_prompt: str = "You are a helpful assistant. Answer in the language of the person you talk with."
    model_timeout: float = Field(60.0, gt=0, description="seconds without a sign of life from the model")
    turn_timeout: float = Field(300.0, gt=0, description="seconds for a whole turn")
    turn_attempts: int = Field(3, ge=1, le=20)
    agent_steps: int = Field(8, ge=1, le=100)
    answer_chars: int = Field(200_000, ge=1000)
    timezone: str = "UTC"

    # What the model is shown
    context_store: Literal["memory", "redis"] = "memory"
    context_window: int = Field(20, ge=1, le=1000)
    context_tokens: int = Field(100_000, ge=1)
    context_ttl: float = Field(3600.0, gt=0)
    context_conversations: int = Field(1000, ge=1)

    # Limits
    message_chars: int = Field(10_000, ge=1)
    body_bytes: int = Field(1_048_576, ge=1024)
    queued_per_conversation: int = Field(20, ge=1)
    open_turns_per_user: int = Field(100, ge=0, description="0: as many as they like")
    open_turns_per_tenant: int = Field(2000, ge=0, description="0: as many as they like")
    running_turns_per_tenant: int = Field(200, ge=1)
    user_requests_per_minute: int = Field(600, ge=1)
    tenant_requests_per_minute: int = Field(6000, ge=1)
    sockets_per_user: int = Field(20, ge=1)
    subscriptions_per_socket: int = Field(100, ge=1)
    socket_buffer: int = Field(1000, ge=10)
    socket_send_timeout: float = Field(10.0, gt=0)
    event_log_length: int = Field(10_000, ge=100)
    event_log_bytes: int = Field(8_000_000, ge=100_000)

    # Workers
    worker_slots: int = Field(64, ge=1)
    lease_seconds: float = Field(15.0, ge=0.5)
    sweep_seconds: float = Field(2.0, ge=0.1)
    drain_seconds: float = Field(20.0, ge=0)
    delete_seconds: float = Field(
        10.0, ge=0, description="how long a deleted conversation can be brought back"
    )

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"

    @field_validator("allowed_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            tuple(part.strip() for part in value.split(",") if part.strip())
            if isinstance(value, str)
            else value
        )

    @field_validator("allowed_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(origin != "*" and not _ORIGIN.fullmatch(origin) for origin in value):
            raise ValueError("has origins such as https://chat.example.org, separated by commas, or *")
        return value

    @field_validator("secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value and any(len(part) < 32 for part in _parts(value)):
            raise ValueError(
                "needs at least 32 characters (separate two secrets with a comma while rotating)"
            )
        return value

    @field_validator("claim_user", "claim_tenant", "claim_role")
    @classmethod
    def _claim(cls, value: str) -> str:
        if not value or value in ("exp", "nbf", "iat", "aud", "iss"):
            raise ValueError("is the name of a claim of its own, such as user_id or sub")
        return value

    @field_validator("model_base_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not _ADDRESS.fullmatch(value):
            raise ValueError("is an address such as http://localhost:11434/v1")
        return value

    @field_validator("model")
    @classmethod
    def _provider_and_name(cls, value: str | None) -> str | None:
        provider, _, name = (value or "demo:").partition(":")
        if not provider or not (name or value in (None, "demo:")):
            raise ValueError("is written provider:model, such as google_genai:gemini-2.5-flash or demo:")
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError("is the name of a time zone, such as UTC or Asia/Shanghai") from error
        return value

    @field_validator("agent_id")
    @classmethod
    def _usable_id(cls, value: str) -> str:
        if not is_agent_id(value):
            raise ValueError("has 1 to 64 letters, digits, `_`, `-` or `.`, and is not a UUID")
        return value

    @model_validator(mode="after")
    def _what_belongs_together(self) -> "Settings":
        if self.database_url and not self.secret:
            raise ValueError(
                "TERTULIA_SECRET must be set when TERTULIA_DATABASE_URL is: all machines share one"
            )
        if len({self.claim_user, self.claim_tenant, self.claim_role}) < 3:
            raise ValueError("TERTULIA_CLAIM_USER, _TENANT and _ROLE must be three different claims")
        return self

    @property
    def model_name(self) -> str:
        """The model that answers: as set, else Gemini when there is a key, else the built-in demo."""
        return self.model or ("google_genai:gemini-2.5-flash" if self.google_api_key else "demo:")

    @property
    def open_turns(self) -> OpenTurns:
        return OpenTurns(self.queued_per_conversation, self.open_turns_per_user)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The signing secrets; the first signs, all verify."""
        return _parts(self.secret) if self.secret else ()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, settings_file())


def settings_file() -> Path:
    """Where settings are read from, if it is there."""
    return Path(os.environ.get("TERTULIA_SETTINGS_FILE", "tertulia.toml"))


def _parts(secret: SecretStr) -> tuple[str, ...]:
    return tuple(part.strip() for part in secret.get_secret_value().split(","))


def default_agent(settings: Settings) -> AgentProfile:
    """Who answers what is not addressed to anybody else."""
    return AgentProfile(settings.agent_id, settings.agent_name, "hub", prompt=settings.agent_prompt)


def load(**given: object) -> Settings:
    """Settings from the environment and the file, `given` winning; a wrong one is named in one sentence."""
    _refuse_unknown()
    if "TERTULIA_SETTINGS_FILE" in os.environ and not settings_file().is_file():
        raise SettingsError(f"TERTULIA_SETTINGS_FILE: there is no file {settings_file()}")
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # pyright: ignore[reportArgumentType]
    except ValidationError as error:
        raise SettingsError("; ".join(_sentence(dict(problem)) for problem in error.errors())) from error
    except (ValueError, OSError) as error:
        raise SettingsError(f"{settings_file()} cannot be read as TOML: {error}") from error


def _sentence(problem: dict[str, Any]) -> str:
    name = "_".join(map(str, problem["loc"])).upper()
    text = str(problem["msg"]).removeprefix("Value error, ")
    return f"TERTULIA_{name}: {text}" if name and name != "GOOGLE_API_KEY" else text


def _refuse_unknown() -> None:
    """A misspelt variable would be ignored in silence otherwise."""
    known = {f"TERTULIA_{name.upper()}" for name in Settings.model_fields} | {
        "TERTULIA_SETTINGS_FILE",
        "TERTULIA_FAILPOINTS",
    }
    unknown = sorted(name for name in os.environ if name.startswith("TERTULIA_") and name not in known)
    if unknown:
        raise SettingsError(f"{', '.join(unknown)}: there is no such setting")
