"""`present`: an agent gives its answer structured data, for a client to show and for later turns to refer to."""

import re
from typing import Any, cast

import msgspec

from tertulia.core.turns import Turn
from tertulia.tools.port import Outcome

_LARGEST = 65_536
_KIND = re.compile(r"[\w.-]{1,100}")


class Present:
    """Adds structured data to the answer. The set of types is open; `type` is the tag."""

    name = "present"
    description = (
        "Attach structured data to your answer, such as a numbered list of results, so that the person sees it and"
        " can refer to it later ('the second one'). Types in use: repo_list, repo_detail, comparison, clarification."
    )
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "type": {"type": "string", "description": "what kind of data it is"},
            "data": {"type": "object", "description": "the data; put lists under 'items'"},
        },
        "required": ["type", "data"],
    }
    repeatable = True

    async def run(self, turn: Turn, call_id: str, arguments: dict[str, Any]) -> Outcome:
        kind, data = arguments.get("type"), arguments.get("data")
        if not isinstance(kind, str) or not _KIND.fullmatch(kind) or not isinstance(data, dict):
            return Outcome(
                "present needs a type, of letters, digits, `_`, `.` or `-`, and a data object.", is_error=True
            )
        structured = {**cast(dict[str, Any], data), "type": kind}
        if len(msgspec.json.encode(structured)) > _LARGEST:
            return Outcome("That is too much data to present; give less.", is_error=True)
        return Outcome("Presented.", structured_data=structured)
