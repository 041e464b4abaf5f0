"""What an operator can see of this process, for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

ACCEPTED = Counter("tertulia_messages_accepted_total", "Messages accepted")
REFUSED = Counter("tertulia_requests_refused_total", "Requests refused by a limit", ["code"])
ENDED = Counter("tertulia_turns_ended_total", "Turns ended", ["status"])
RECLAIMED = Counter("tertulia_wakeups_reclaimed_total", "Wake-ups taken over from a dead worker")
LOST_WAKEUPS = Counter("tertulia_wakeups_lost_total", "Wake-ups that were lost and made again")
OUTBOX_RESENT = Counter("tertulia_terminals_resent_total", "Ends of turns that the sweeper had to publish")
FENCED = Counter("tertulia_writes_fenced_total", "Writes refused because the lease was lost")
RUNNING = Gauge("tertulia_turns_running", "Turns running in this process")
BACKLOG = Gauge("tertulia_turns_open", "Turns of the whole system that have not ended", ["status"])
SOCKETS = Gauge("tertulia_sockets", "Open WebSockets")
IN_QUEUE = Histogram(
    "tertulia_turn_queue_seconds", "From acceptance to the start of the turn", buckets=_SECONDS
)
FIRST_TOKEN = Histogram(
    "tertulia_turn_first_token_seconds", "From the start to the first words", buckets=_SECONDS
)
TURN = Histogram("tertulia_turn_seconds", "From the start of a turn to its end", buckets=_SECONDS)
