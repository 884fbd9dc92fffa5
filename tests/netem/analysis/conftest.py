"""Captures of frames made by hand."""

from collections import namedtuple

import pytest

from wire import pcapng

EPOCH = 10**18
Record = namedtuple("Record", "at port frame comment packet")


@pytest.fixture
def capture(tmp_path):
    """Write a capture of (microseconds, port, frame[, comment[, packet number]])."""

    def write(*rows):
        records = [Record(*row, *("", None)[len(row) - 3 :]) for row in rows]
        ports = sorted({record.port for record in records})
        path = tmp_path / "lab.pcapng"
        with path.open("wb") as file:
            file.write(pcapng.section_header())
            for port in ports:
                file.write(pcapng.interface_block(port))
            for record in records:
                file.write(
                    pcapng.enhanced_packet(
                        ports.index(record.port),
                        EPOCH + int(record.at * 1000),
                        record.frame,
                        comment=record.comment,
                        outbound=True,
                        packet_id=record.packet,
                    )
                )
        return path

    return write
