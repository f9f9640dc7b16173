"""`notification-bus check` on real brokers: the proxy and the wire are found by themselves."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from notification_bus.testing import CHECKS
from tests.brokers import KINDS, Kind, Provider, certificates
from tests.cli.checking import check, outcomes, results

PASSWORD = "hunter2"
VERSIONS = {"redis": r"(Redis|Valkey) \d", "nats": r"nats-server \d", "postgres": r"PostgreSQL \d"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_check_is_run_and_passes(kind: Kind, brokers: Provider) -> None:
    """Strictly: nothing is untestable, for want of a hook."""
    done = check(brokers.get(kind).url, "--strict", "--json")
    found = results(done)
    assert found["red"] == [], [r for r in found["results"] if r["id"] in found["red"]]
    assert done.returncode == 0
    assert outcomes(done) == {entry.id: "passed" for entry in CHECKS.values()}
    assert found["header"]["faults"] == "delay, stall, blackhole, cut, refuse, deaf"
    assert found["header"]["hooks"] == "link, wire, child, build"
    assert re.match(VERSIONS[kind], found["header"]["broker"])
    assert found["notes"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_password_is_used_and_never_shown(kind: Kind, brokers: Provider) -> None:
    with brokers.dedicated(kind, password=PASSWORD) as server:
        assert PASSWORD in server.url
        done = check(server.url, "--only", "deliver.echo", "--only", "deliver.cross_process", "--only", "wire")
        assert done.returncode == 0, done.stdout
        assert PASSWORD not in done.stdout + done.stderr
        wrong = check(server.url.replace(PASSWORD, "geheimnis"))
        assert wrong.returncode == 2
        assert "user" in wrong.stderr
        assert "geheimnis" not in wrong.stdout + wrong.stderr


def test_the_channel_in_a_url_is_told_to_be_of_no_use(brokers: Provider) -> None:
    url = f"{brokers.get('redis').url}?channel=board&buffer=20"
    done = check(url, "--only", "deliver.echo", "--json")
    assert done.returncode == 0, done.stderr
    assert results(done)["notes"] == ["the channel in the URL is not used: the checks have channels of their own"]
    assert "buffer=20" in results(done)["header"]["capabilities"]


def test_a_broker_that_no_proxy_leads_to_is_checked_without_faults(brokers: Provider, tmp_path: Path) -> None:
    """TLS with the server's name verified: at the proxy's address it is another name."""
    tls = certificates(tmp_path, "localhost")
    with brokers.dedicated("nats", tls=tls) as server:
        url = f"tls://localhost:{server.port}?tls_ca_file={quote(str(tls.ca))}"
        done = check(url, "--json", "--only", "deliver.echo", "--only", "reconnect.survives_cut_both_ways")
    assert done.returncode == 0, done.stderr
    (note,) = results(done)["notes"]
    assert note.startswith("no faults: the broker does not answer through a proxy at 127.0.0.1")
    assert outcomes(done) == {"deliver.echo": "passed", "reconnect.survives_cut_both_ways": "untestable"}


def test_a_list_of_servers_is_checked_without_faults(brokers: Provider) -> None:
    server = brokers.get("nats")
    done = check(
        f"nats://{server.host}:{server.port},{server.host}:{server.port}", "--json", "--only", "gap.after_reconnect"
    )
    assert done.returncode == 0, done.stderr
    assert results(done)["notes"] == ["no faults: the URL names several hosts, and a proxy leads to one"]
    assert outcomes(done) == {"gap.after_reconnect": "untestable"}
