"""`make bench`: measure, print a table, write `.bench/results.json`. ARGS="a d" measures only these.

Ends with 1 where a limit was missed.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from bench.cases import CASES
from bench.rows import Row
from bench.stage import Stage
from tertulia.embedded import Embedded
from tertulia.store.migrate import migrate


async def measure(wanted: list[str]) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tb-") as name:
        async with Embedded(Path(name) / "data") as services:
            await migrate(services.migration_url, "tertulia")
            stage = Stage(services, Path(name))
            for case in wanted:
                for found in await CASES[case](stage):
                    rows.append(found)
                    print(line(found), flush=True)
    return rows


def line(found: Row) -> str:
    sign = "≥" if found["least"] else "≤"
    limit = f"{sign} {found['limit']:g}" if found["limit"] is not None else ""
    verdict = {None: "", True: "holds", False: "MISSED"}[found["holds"]]
    value = f"{found['value']:,.2f}" if abs(found["value"]) < 100 else f"{found['value']:,.0f}"
    return f"({found['case']}) {found['what']:<52} {value:>10} {found['unit']:<4} {limit:<8} {verdict}"


def main() -> None:
    wanted = [name for name in sys.argv[1:] if name in CASES] or list(CASES)
    began = time.time()
    rows = asyncio.run(measure(wanted))
    out = Path(".bench")
    out.mkdir(exist_ok=True)
    (out / "results.json").write_text(json.dumps({"seconds": time.time() - began, "rows": rows}, indent=1))
    sys.exit(any(found["holds"] is False for found in rows))


if __name__ == "__main__":
    main()
