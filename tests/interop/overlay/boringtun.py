"""boringtun, which PyPI has inside mitmproxy's package, as a server that answers us.

Ours -- 127.0.0.1 -- lo -- boringtun -- a stack in user space -- echo of UDP datagrams

python boringtun.py PRIVATE PUBLIC     says its port, and ends with its standard input
"""

import asyncio
import sys

import mitmproxy_wireguard


async def serve(private_key, peer_public_key):
    def echo(data, source, destination):
        server.send_datagram(data, destination, source)  # unpadded, as boringtun does

    async def refuse(stream):
        stream.close()

    server = await mitmproxy_wireguard.start_server(
        "127.0.0.1", 0, private_key, [peer_public_key], refuse, echo
    )
    sys.stdout.write(f"{server.getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
