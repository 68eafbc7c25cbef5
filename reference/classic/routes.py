"""Routes: made one interval ahead, used, set aside, collected. docs/classic.md section 5."""

from typing import NamedTuple

from .packet import Path


class Route(NamedTuple):
    salt: int
    expires: float
    outgoing: Path
    incoming: Path


class Table:
    """The routes of one session key. `made` and `collected` are called with a route."""

    def __init__(self, local, remote, key, interval, lifetime, first=0):
        self.local, self.remote = local, remote
        self.key, self.interval, self.lifetime, self.first = key, interval, lifetime, first
        self.live = []  # the newest first
        self.aside = []

    def rehash(self, now, made, collected):
        self.expire(now, collected)
        salt = int(now) // self.interval
        if self.live and self.live[0].salt > salt + 2:
            self.set_all_aside()
        missing = self.live[0].salt + 1 if self.live else 0
        for salt_to_make in range(max(missing, salt, self.first), salt + 2):
            route = self.route(salt_to_make, now)
            self.live.insert(0, route)
            if route.incoming in [old.incoming for old in self.aside]:
                self.aside = [old for old in self.aside if old.incoming != route.incoming]
            else:
                made(route)

    def expire(self, now, collected):
        for route in self.aside:
            collected(route)
        self.aside = [route for route in self.live if route.expires <= now]
        self.live = [route for route in self.live if route.expires > now]

    def set_all_aside(self):
        self.aside += self.live
        self.live = []

    def route(self, salt, now):
        local, remote = self.local.hashed(self.key, salt), self.remote.hashed(self.key, salt)
        return Route(salt, now + self.lifetime, Path(local, remote), Path(remote, local))

    def in_use(self):
        """The second newest route."""
        return self.live[1] if len(self.live) > 1 else None

    def newest(self):
        return self.live[0] if self.live else None

    def find(self, source, destination):
        for route in self.live:
            if (route.incoming.source.address, route.incoming.destination.address) == (source, destination):
                return route
        return None

    def next_boundary(self, now):
        return (int(now) // self.interval + 1) * self.interval
