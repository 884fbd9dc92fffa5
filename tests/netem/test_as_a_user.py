"""What wraps the kernel works for an ordinary user as it does for root."""

import os

import pytest


@pytest.mark.slow
@pytest.mark.needs("userns")
@pytest.mark.skipif(os.geteuid() != 0, reason="already an ordinary user")
@pytest.mark.parametrize("folder", ["kernel", "sockets"])
def test_an_ordinary_users_tests_pass(ordinary_user, folder):
    done = ordinary_user.pytest(
        "--require=netns,userns", "-m", "not interop", f"tests/netem/{folder}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
