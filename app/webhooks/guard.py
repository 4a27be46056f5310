"""Where webhooks may be sent: public addresses over https, and what the operator allows besides. The same is
asked when a URL is given and at every attempt, where the address that was checked is the one connected to. It
sends nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NoReturn

import httpx
from ssrfguard import (
    DEFAULT_DENIED,
    AddressTable,
    Block,
    BlockedAddressError,
    BlockedURLError,
    Policy,
    Reach,
    SSRFGuardError,
    Target,
    resolve,
)

from app.webhooks.errors import UrlRefused
from app.webhooks.resolving import Answers, Names
from config.settings import settings

Network = IPv4Network | IPv6Network

# What the library's table leaves open: all of IPv6 that is not global unicast (SIIT's mapped forms among it),
# and an address of a cloud's host that looks public.
DENIED: Final = AddressTable(
    (
        *DEFAULT_DENIED.blocks,
        Block(ip_network("::/0"), "Not global unicast", "RFC4291", Reach.DENIED),
        Block(ip_network("2000::/3"), "Global Unicast", "RFC4291", Reach.PERMITTED),
        Block(ip_network("168.63.129.16/32"), "Cloud host (Azure)", "RFC791", Reach.DENIED),
    )
)
ANY_PORT: Final = frozenset(range(1, 65_536))
ANYWHERE: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))
# `0x7f.1` and its like: the name service reads them as addresses. No name's last label is a number.
_NUMBER: Final = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$")


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL that may be sent to if its host's addresses may; `policy` decides on these."""

    url: str
    target: Target
    policy: Policy

    @property
    def origin(self) -> tuple[str, int]:
        return self.target.host, self.target.port


_names = Names()


def require_allowed(url: str, param: str, names: Names = _names) -> None:
    """Raises `UrlRefused`, naming `param`. A name that has no address just now is let through."""
    destination = find_destination(url, param)
    answers = names.find(*destination.origin)
    if answers:
        require_public(destination, answers, param)


def find_destination(url: str, param: str) -> Destination:
    """All that a URL tells without asking for its host's addresses. Raises `UrlRefused`."""
    try:
        # As the client reads it, since that is what is connected to; and as it was written.
        parsed = httpx.URL(url)
        policy = _policy_for(parsed.raw_host.decode("ascii"))
        policy.check_url(url)
        target = policy.check_url(str(parsed))
    except BlockedURLError as error:
        if isinstance(error.__cause__, BlockedAddressError):
            _refuse_address(param, error)
        raise UrlRefused(param, f"'{param}' is refused: {error.reason}.") from error
    except (httpx.InvalidURL, UnicodeError) as error:
        raise UrlRefused(param, f"'{param}' is not a URL: {error}") from error
    if not target.is_literal_address and _NUMBER.search(target.host):
        raise UrlRefused(param, f"'{param}' is refused: its host is an address in disguise.")
    return Destination(str(parsed), target, policy)


def require_public(destination: Destination, answers: Answers, param: str) -> None:
    """Whether all addresses of its host may be connected to. Raises `UrlRefused`."""
    try:
        resolve(destination.target, policy=destination.policy, resolver=lambda *_: answers)
    except SSRFGuardError as error:
        _refuse_address(param, error)


def _refuse_address(param: str, error: Exception) -> NoReturn:
    # Which address is not said: names of a private network are not to be looked up through us.
    raise UrlRefused(param, f"'{param}' is refused: its host has an address that is not public.") from error


def _policy_for(host: str) -> Policy:
    """What holds for a host: one that the operator names may be anywhere, on any port, over plain http."""
    policies = _policies(tuple(settings().webhook_allowed_hosts), tuple(settings().webhook_ports))
    if policies.named and _is_listed(policies.named, host):
        return policies.named
    return policies.listed if _is_within(host, policies.listed.allowed_networks) else policies.strict


def _is_listed(policy: Policy, host: str) -> bool:
    try:
        policy.check_host(host)
    except BlockedURLError:
        return False
    return True


def _is_within(host: str, networks: Sequence[Network]) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


@dataclass(frozen=True, slots=True)
class Policies:
    strict: Policy
    listed: Policy  # of an address in a network that is allowed
    named: Policy | None


@lru_cache(maxsize=8)
def _policies(allowed: tuple[str, ...], ports: tuple[int, ...]) -> Policies:
    networks = tuple(network for entry in allowed if (network := _network(entry)))
    names = frozenset(entry for entry in allowed if _network(entry) is None)
    plain, any_port = frozenset({"http", "https"}), ANY_PORT
    strict = Policy(frozenset({"https"}), DENIED, networks, frozenset(ports))
    named = Policy(plain, DENIED, ANYWHERE, any_port, names) if names else None
    return Policies(strict, Policy(plain, DENIED, networks, any_port), named)


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None
