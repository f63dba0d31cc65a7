"""A site answers parcels: it checks what is asked, loads its private state, works, and packs the answer."""

import dataclasses
from pathlib import Path

from steelyard.client.containment import run_contained
from steelyard.client.interruptions import signals_noted
from steelyard.errors import InputError, SteelyardError
from steelyard.flower.building import Load, build_site, load_invited_spec
from steelyard.flower.deployment import Invitation, read_invitation
from steelyard.flower.messages import PROTOCOL, Envelope, answer_parcel, envelope_of, read_request
from steelyard.flower.site_states import SiteStates
from steelyard.flower.wire import Parcel, WireError
from steelyard.sites import Answer, Profile
from steelyard.specs import gate
from steelyard.types import Failure

STATES = "states"


class Answering:
    """One site, built once."""

    def __init__(
        self, invitation: Path | Invitation, home: Path, data: str | Load | None, trust: bool = False
    ) -> None:
        found = invitation if isinstance(invitation, Invitation) else read_invitation(invitation)
        load = gate.load("data", data) if isinstance(data, str) else data
        self.invitation, self.states = found, SiteStates(home / STATES)
        self.site = build_site(found, load_invited_spec(found, home, trust), load, self.states)
        self.site.profile()  # a model that does not fit the data is refused now, at the site

    def answer(self, parcel: Parcel) -> Parcel:
        """The answer to a question; whatever goes wrong is a failure that the server records."""
        try:
            envelope = envelope_of(parcel.header)
        except WireError as error:
            return Parcel({"protocol": PROTOCOL, "reason": str(error)})
        try:
            found = self._work(envelope, parcel)
        except (SteelyardError, OSError) as error:
            found = Failure(envelope.client, "answering", str(error))
        return answer_parcel(envelope, found)

    def _work(self, envelope: Envelope, parcel: Parcel) -> Answer | Failure | Profile:
        mine = self.invitation
        if envelope.client != mine.site:
            raise InputError(f"this is the site {mine.site}, not {envelope.client}.")
        if envelope.spec != mine.hash:
            raise InputError(f"the site {mine.site} was invited to another spec; give it a new invitation.")
        if not envelope.round:
            with signals_noted():
                return run_contained(mine.site, "reading", self.site.profile)
        request, states = read_request(parcel)
        private = bool(self.site.working.start)
        self.states.open(envelope.run, **dataclasses.asdict(states), needed=private, round=envelope.round)
        return self.site.answer(request)
