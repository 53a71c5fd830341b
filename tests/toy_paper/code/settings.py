"""What a configuration sets of the toy paper: the message."""

from pydantic import Field

from gradsync.configuration.settings import PaperSettings


class Own(PaperSettings):
    """One message."""

    message_bytes: int = Field(default=1000, ge=1)
