"""How a message is kept: as the bytes of its JSON, so that nobody can change it and its size is known."""

import msgspec

from tertulia.core.model import ContextMessage

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(ContextMessage).decode
