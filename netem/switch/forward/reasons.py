"""Why forwarding drops a frame: the names of its counters, and what others call them.

README.md has the table: SAI's drop reasons, and the counters of the IP MIB and of Linux.
"""

from enum import Enum


class Reason(Enum):
    """Why a frame goes no further; the value is the name of the counter.

    A packet that an SRv6 behaviour refuses is counted as `srv6_` and the reason of
    `transports.srv6.outcome.Reason`.
    """

    RUNT = "runt"  # it ends inside its Ethernet header
    NOT_FOR_US = "not_for_us"  # another MAC, and this switch does not bridge
    VLAN = "vlan"  # the tag is not that of the link
    NOT_IP = "not_ip"  # for our MAC, but neither IP nor a question about neighbours
    MALFORMED = "malformed"  # an IP header that cannot be, or is cut short
    CHECKSUM = "checksum"  # of the IPv4 header
    SOURCE = "source"  # nobody's address, or one that no router passes on
    DESTINATION = "destination"  # the same
    MULTICAST = "multicast"  # groups are not routed here
    TTL = "ttl"  # the hop limit ends here
    NO_ROUTE = "no_route"
    UNKNOWN_SID = "unknown_sid"  # a uSID of a block of ours that nobody owns
    TOO_BIG = "too_big"  # for the next link; packets are not fragmented
    PORT_DOWN = "port_down"  # and there is no other way
    PASSES = "passes"  # too many SIDs of this switch in a row
    NOT_FOR_A_SWITCH = "not_for_a_switch"  # for our address, but nothing that we speak
