"""Deviations that are known of an endpoint, so that a failure can say so and not surprise.

Of Soft-RoCE: probed on Linux 6.1.192, `drivers/infiniband/sw/rxe`, some by this very suite. A
deviation stays a failure.
"""

_KNOWN: dict[str, dict[str, str]] = {
    "rxe": {
        "roce/R14": "one sequence NAK for what comes behind an RNR NAK",
        "roce/R29": "after a partial replay the whole READ cannot be replayed any more",
        "roce/R46": "the size of FIRST and MIDDLE packets of a SEND is not checked",
        "roce/R47.send": "the size of an ONLY packet of a SEND is not checked",
        "roce/R48": "a LAST without payload is accepted",
        "roce/R51": "a SEND that is too long is answered by NAK 0x63",
        "roce/R54": "a SEND that cannot invalidate is acknowledged, then all is dead",
        "roce/R57": "more READs than agreed are not refused, old ones are overwritten",
        "roce/Q11.seven": "retry_cnt 7 is endless",
        "roce/Q19": "the ACK timer may fire while the RNR timer runs",
        "roce/Q23": "an unknown NAK code is fatal, as 0x63",
        "roce/Q30": "an ACK of a PSN that was never sent is taken as cumulative",
        "roce/Q36": "credits are ignored",
        "roce/N1": "CE makes no CNP",
        "roce/N2": "there are no CNPs",
        "roce/N4": "a CNP is ignored",
        "roce/N5": "there is no rate that a CNP could change",
        "roce/N6": "there is no rate that could come back",
        "roce/N7": "there is no rate that could rise",
        "roce/Q32": "a response that does not fit is told by another status",
        "roce/R49.0": "a WRITE of bytes whose RETH says none brings the kernel down",
        "roce/R50": "the range is looked at before the length: NAK 0x62",
        "roce/R66": "6.1 has no FLUSH: silent",
        "roce/R67": "6.1 has no ATOMIC WRITE: silent",
        "roce/S5.recv": "a receive that is posted in ERR is not flushed",
        "roce/U2": "the message behind a hole is discarded as well",
        "roce/W22.-36": "a UDP length too short for a BTH brings the kernel down",
    }
}


def deviation(target: str, case: str) -> str:
    """Return what is known of a case, or of its clause; an empty text where nothing is."""
    known = _KNOWN.get(target, {})
    return known.get(case) or known.get(case.partition(".")[0], "")
