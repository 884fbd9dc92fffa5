"""Single faults for WireGuard's cookies and timers."""

from tests.netem.conform.faults import Fault
from transports.overlay.cookies import CookieChecker, Macs
from transports.overlay.handshakes import Handshakes
from transports.overlay.limits import Limits
from transports.overlay.session import Session
from transports.overlay.tunnel import Tunnel

WG_FAULTS = [
    Fault("never under load", "wg/M5", Handshakes._admit,
          "not self._load.arrive(now)", "True"),
    Fault("works under load, beside the cookie", "wg/M5", Handshakes._admit,
          "raise _RefusedError(Refusal.COOKIE_SENT)",
          "return arrival._replace(source=source)"),
    Fault("any mac2 that is not zeros", "wg/M5.wrong", CookieChecker.mac2_is_good,
          "return hmac", "return any(view[-MAC_SIZE:]) or hmac"),
    Fault("no mac2 is right", "wg/M5.right", CookieChecker.mac2_is_good,
          "return hmac", "return False and hmac"),
    Fault("a cookie for all ports", "wg/M5.port", CookieChecker._cookie,
          'source.address + source.port.to_bytes(2, "big")', "source.address"),
    Fault("a cookie for a wrong mac1", "wg/M5.mac1", Handshakes._admit,
          "not checker.mac1_is_good(datagram)", "False"),
    Fault("a cookie bound to no message", "wg/M5", CookieChecker.reply,
          "mac1 = bytes(memoryview(message)[-MACS_SIZE:-MAC_SIZE])", "mac1 = bytes(16)"),
    Fault("cookies forgotten", "wg/M6", Macs.add, "self._cookie is not None", "False"),
    Fault("cookies forgotten by a responder", "wg/M6.response", Handshakes._receive_cookie,
          "peer is None and index in state.sessions", "False"),
    Fault("a cookie is answered at once", "wg/M6", Handshakes._receive_cookie,
          "raise _RefusedError(Refusal.COOKIE, peer)",
          "raise _RefusedError(Refusal.COOKIE, peer)\n"
          "    peer.handshake_sent_at = None; self.initiate(peer, now)"),
    Fault("mac2 over mac2 in place of mac1", "wg/M6", Macs.add,
          "memoryview(message)[: end - MAC_SIZE]", "memoryview(message)"),
    Fault("cookies used for ever", "wg/M6.stale", Macs.add,
          "now - self._cookie_at < self._limits.cookie_use_time", "True"),
    Fault("never gives up", "wg/T2", Limits.max_retries.fget,
          "self.rekey_attempt_time // self.rekey_timeout", "1000"),
    Fault("gives up after a minute", "wg/T2", Limits.max_retries.fget,
          "self.rekey_attempt_time // self.rekey_timeout", "12"),
    Fault("no new keys for age", "wg/T4", Tunnel._seal_staged,
          "now >= session.rekey_at", "False"),
    Fault("new keys after a minute", "wg/T4", Session.__init__,
          "now + limits.rekey_after_time", "now + limits.rekey_after_time // 2"),
    Fault("the responder renews as well", "wg/T4.responder", Session.__init__,
          "now + limits.rekey_after_time if is_initiator else NEVER",
          "now + limits.rekey_after_time"),
    Fault("old keys send", "wg/T5", Session.can_send, "now < self.reject_at", "True"),
    Fault("old keys receive", "wg/T5.received", Tunnel._receive_data,
          "now >= session.reject_at", "False"),
]  # fmt: skip
