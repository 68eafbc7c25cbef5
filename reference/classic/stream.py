"""One stream: two hosts, the routes of its session key, and the exchange of keys. docs/classic.md sections 2 and 9.

Knows no socket and no clock: it is given time and packets, and hands what is to be sent to `transmit`.
"""

import secrets
from typing import NamedTuple

from . import derive
from .packet import Dropped, Offer, decapsulate, encapsulate
from .routes import Table

IDLE, OFFERED, AGREED, ACCEPTED, CONFIRMED = "idle", "offered", "agreed", "accepted", "confirmed"
FARTHEST_CHANGE = 32 * 86400


class Settings(NamedTuple):
    local: derive.Host
    remote: derive.Host
    key: bytes
    cipher: int
    rotation: derive.Rotation
    lifetime: int
    exchange_interval: int  # 0: never
    exchange_window: int


class Undecided(NamedTuple):
    """The second table, while it is not decided which key the peer uses."""

    table: Table
    first: int  # m of section 9.2
    sends: bool


class Stream:
    def __init__(self, settings, now, transmit, made, collected, store_key):
        self.settings = settings
        self.transmit, self.made, self.collected, self.store_key = transmit, made, collected, store_key
        self.present = self.table(settings.key)
        self.undecided = None
        self.former = []
        self.next_round = now
        self.last_answer = None
        self.last_time = now
        self.restart(now)

    def table(self, key, first=0):
        settings = self.settings
        interval = settings.rotation.interval(key)
        return Table(settings.local, settings.remote, key, interval, settings.lifetime, first)

    # Time

    def deadline(self):
        if self.undecided or self.next_step() is None:
            return self.next_round
        return min(self.next_round, self.next_step())

    def handle_timeout(self, now):
        if self.next_round <= now or now < self.last_time:
            self.round(now)
        self.last_time = now
        if not self.undecided:
            self.step(now)

    def round(self, now):
        self.begin_change(now)
        self.present.rehash(now, self.made, self.collected)
        self.next_round = self.present.next_boundary(now)
        if self.undecided:
            self.undecided.table.rehash(now, self.made, self.collected)
            self.next_round = min(self.next_round, self.undecided.table.next_boundary(now))
        for table in self.former:
            table.expire(now, self.collected)
        self.former = [table for table in self.former if table.live or table.aside]
        if self.undecided and now >= self.undecided.first:
            for table, flag in ((self.undecided.table, 0), (self.present, 1)):
                if table.in_use():
                    self.transmit(encapsulate(table.in_use().outgoing, table.key, 0, flag))

    def begin_change(self, now):
        if self.undecided or self.state not in (AGREED, ACCEPTED, CONFIRMED):
            return
        boundary = -(-self.offer.change // self.present.interval) * self.present.interval
        if now < boundary:
            return
        interval = self.settings.rotation.interval(self.offer.key)
        first = derive.first_salt_after(boundary, interval)
        table = self.table(self.offer.key, first)
        self.undecided = Undecided(table, first * interval, self.state != ACCEPTED)

    # The exchange

    def restart(self, now):
        self.state, self.offer, self.since, self.eighths = IDLE, None, now, 4
        interval, window = self.settings.exchange_interval, self.settings.exchange_window
        self.wait = interval - window + secrets.randbelow(2 * window + 1)

    def next_step(self):
        if self.state == OFFERED or self.state == IDLE and self.settings.exchange_interval:
            return self.since + self.wait * self.eighths / 8
        return None

    def step(self, now):
        if self.next_step() is None or now < self.next_step():
            return
        change = int(self.since) + self.wait
        if self.eighths >= 8 or int(now) >= change:
            self.restart(now)
            return
        while self.eighths < 8 and self.since + self.wait * self.eighths / 8 <= now:
            self.eighths += 1
        if self.state == IDLE:
            self.state, self.offer = OFFERED, Offer(change, secrets.token_bytes(64))
        self.send_now(offer=self.offer)

    def receive_offer(self, offer, now):
        if self.state in (OFFERED, AGREED) and offer == self.offer:
            self.state = AGREED
            self.send_now()
            return
        if self.state in (ACCEPTED, CONFIRMED) and offer == self.offer:
            self.send_now(offer=offer)
            return
        if not int(now) < offer.change <= now + FARTHEST_CHANGE or offer.key == self.present.key:
            raise Dropped("offer_refused")
        if self.state in (OFFERED, AGREED):
            own = (self.offer.change, self.settings.local.address)
            if own < (offer.change, self.settings.remote.address):
                if self.state == OFFERED:
                    self.send_now(offer=self.offer)
                raise Dropped("offer_collision")
        self.state, self.offer = ACCEPTED, offer
        self.send_now(offer=offer)

    # Out

    def send(self, inner):
        """The outer packet for an inner one that fits; None before the first round."""
        return self.write(inner=inner)

    def send_now(self, offer=None):
        outer = self.write(offer=offer)
        if outer:
            self.transmit(outer)

    def write(self, inner=None, offer=None):
        table, flag = self.present, int(self.state in (OFFERED, ACCEPTED))
        if self.undecided:
            flag = 1
            if self.undecided.sends and self.undecided.table.in_use():
                table, flag = self.undecided.table, 0
        route = table.in_use() or table.newest()
        if route is None:
            return None
        return encapsulate(route.outgoing, table.key, self.settings.cipher, flag, inner, offer)

    # In

    def receive(self, outer, now):
        """The inner packet of a whole outer one, None if it has none."""
        source, destination = outer[8:24], outer[24:40]
        new = [self.undecided.table] if self.undecided else []
        for table in new + [self.present] + self.former:
            route = table.find(source, destination)
            if route:
                break
        else:
            raise Dropped("expired_route")
        hosts = (self.settings.remote.address, self.settings.local.address)
        opened = decapsulate(route.incoming, table.key, self.settings.cipher, outer, *hosts)
        self.decide(table, route, opened, now)
        if self.undecided:
            return opened.inner
        if opened.offer and table not in self.former:
            self.receive_offer(opened.offer, now)
            return opened.inner
        if self.state == ACCEPTED and not opened.flag:
            self.state = CONFIRMED
        pause_over = self.last_answer is None or abs(now - self.last_answer) >= 1
        if self.state == IDLE and opened.flag and not opened.offer and pause_over:
            self.last_answer = now
            self.send_now()
        return opened.inner

    def decide(self, table, route, opened, now):
        if not self.undecided:
            return
        new, first = self.undecided.table, self.undecided.first
        if table is new:
            self.former.append(self.present)
            self.present, self.undecided = new, None
            self.store_key(new.key)
            self.restart(now)
        elif table is self.present:
            late = route.salt * table.interval >= first
            other = opened.offer is not None and opened.offer.key != new.key
            if late and not opened.flag or (late or now < first) and other:
                new.set_all_aside()
                self.former.append(new)
                self.undecided = None
                self.restart(now)
