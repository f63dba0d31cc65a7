"""Messages about rounds for Python's `logging`; nothing is made if they would not be shown."""

import logging

from steelyard.server.reasons import one_line
from steelyard.server.rows import USED
from steelyard.types import Round

MAX_REJECTED = 20  # clients that are named in a round

log = logging.getLogger("steelyard.server")


def log_round(round: Round) -> None:
    """One line about the round, and one for each client whose reply was not used. Texts are untrusted."""
    if not log.isEnabledFor(logging.INFO):
        return
    metrics = round.metrics
    scores = [f"{name} {metrics[name]:.4f}" for name in ("accuracy", "mse", "loss") if name in metrics]
    counts = f"{metrics.get('used', 0):.0f} used, {metrics.get('rejected', 0):.0f} rejected"
    log.info("round %d: %s", round.number, ", ".join([counts, *scores]))
    unused = [row for row in round.clients if row.get("status") not in (USED, "idle")]
    for row in unused[:MAX_REJECTED]:
        client, reason = one_line(str(row["client"])), one_line(str(row.get("status")))
        log.info("round %d: the reply of %s was not used: %s", round.number, client, reason)
    if len(unused) > MAX_REJECTED:
        log.info("round %d: and those of %d other clients", round.number, len(unused) - MAX_REJECTED)
