"""Why something was dropped: one counter per reason, and silence on the wire."""

from enum import Enum


class Refusal(Enum):
    """What was wrong, in the order in which it is looked at."""

    # Any datagram.
    TYPE = "type"  # unknown, or a reserved byte is not zero
    LENGTH = "length"  # not that of its type
    SOURCE = "source"  # no address or port that could be answered
    # A message of the handshake.
    NO_PRIVATE_KEY = "no_private_key"  # we have none yet
    MAC1 = "mac1"
    COOKIE_SENT = "cookie_sent"  # under load, no valid mac2: answered with a cookie reply
    REPLIES_FULL = "replies_full"  # the same, but nobody fetches what is to be sent
    SOURCE_RATE = "source_rate"  # under load, too many of one address
    BUSY = "busy"  # more handshakes than may be worked on
    # An initiation.
    STATIC = "static"  # its static key does not decrypt: not meant for us, or garbage
    UNKNOWN_PEER = "unknown_peer"
    LOW_ORDER = "low_order"  # a key with which every DH is zero
    TIMESTAMP = "timestamp"  # does not decrypt: not sent by whom it names
    REPLAYED_INITIATION = "replayed_initiation"  # its timestamp is not greater than the last
    INITIATION_FLOOD = "initiation_flood"  # too soon after the last of this peer
    # A response or a cookie reply.
    NO_HANDSHAKE = "no_handshake"  # no initiation of ours waits for it
    RESPONSE = "response"  # does not decrypt; so it is with another preshared key
    COOKIE = "cookie"  # not an answer to what we sent last, or does not decrypt
    # Data.
    RECEIVER_INDEX = "receiver_index"  # no session of ours
    EXPIRED = "expired"  # the session is older than REJECT_AFTER_TIME
    COUNTER_LIMIT = "counter_limit"  # REJECT_AFTER_MESSAGES
    TAG = "tag"  # does not decrypt
    REPLAYED = "replayed"  # seen before, or older than the window
    INNER_VERSION = "inner_version"  # neither IPv4 nor IPv6
    INNER_LENGTH = "inner_length"  # shorter than its header, or than it says
    INNER_SOURCE = "inner_source"  # not an address of this peer
    INNER_ECN = "inner_ecn"  # marked outside, cannot be marked inside (RFC 6040)
    EVENTS_FULL = "events_full"  # nobody fetches what has arrived
    # What we were to send.
    NO_PEER = "no_peer"  # the destination is no peer's
    NO_ENDPOINT = "no_endpoint"  # nobody knows yet where that peer is
    STAGED_FULL = "staged_full"  # the oldest of a full queue
    GAVE_UP = "gave_up"  # nothing was heard of the peer for REKEY_ATTEMPT_TIME
