//! Clients behind a named proxy: the PROXY protocol and XCLIENT.

use std::net::IpAddr;

use stentor_harness::{Server, Smtp, TestLab, message};

/// Outside of the client networks, as all others here but 127.0.0.1.
const PROXY: &str = "127.0.0.9";

fn builder(lab: &TestLab, key: &str) -> stentor_harness::Builder {
    Server::builder()
        .lab(lab)
        .set("client_networks", "[\"127.0.0.1\", \"10.0.0.0/8\"]")
        .set(key, &format!("[\"{PROXY}\"]"))
}

/// A connection over the proxy, from this header on.
fn proxied(server: &Server, header: &[u8]) -> Smtp {
    let mut client = server.connect_from(PROXY);
    client.raw(header);
    client
}

fn v1(client: &str) -> Vec<u8> {
    let family = if client.contains(':') { "TCP6" } else { "TCP4" };
    format!("PROXY {family} {client} {client} 4711 25\r\n").into_bytes()
}

/// Version 2 of a client over IPv4, with a field of the proxy's behind the addresses.
fn v2(command: u8, client: &str) -> Vec<u8> {
    let Ok(IpAddr::V4(client)) = client.parse() else { panic!("no address of IPv4") };
    let more = b"\x02\x00\x02mx";
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend_from_slice(&[0x20 | command, 0x11, 0, 12 + more.len() as u8]);
    for _ in 0..2 {
        header.extend_from_slice(&client.octets());
    }
    header.extend_from_slice(&[0x12, 0x67, 0, 25]);
    header.extend_from_slice(more);
    header
}

/// What a client hears that wants to relay.
fn relaying(client: &mut Smtp) -> u16 {
    client.cmd("MAIL FROM:<me@home.example>").expect(250);
    let code = client.cmd("RCPT TO:<ann@one.example>").code;
    client.cmd("RSET").expect(250);
    code
}

#[test]
fn a_proxy_names_the_client_before_all_else() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab, "listen.proxy_clients").start();
    for (header, code) in [
        (v1("192.0.2.7"), 550),
        (v1("10.1.2.3"), 250),
        (v1("2001:db8::7"), 550),
        (v2(1, "192.0.2.7"), 550),
        (v2(1, "10.1.2.3"), 250),
        // Nobody is named: the proxy itself, which nobody relays for.
        (b"PROXY UNKNOWN\r\n".to_vec(), 550),
        (v2(0, "10.1.2.3"), 550),
    ] {
        assert_eq!(relaying(&mut proxied(&server, &header).greeted()), code, "{}", header.escape_ascii());
    }
    // Other clients are taken at their word's worth.
    assert_eq!(relaying(&mut server.smtp()), 250);
    let mut stranger = server.connect_from("127.0.0.8").greeted();
    stranger.cmd("PROXY TCP4 10.1.2.3 10.1.2.3 1 2").expect(502);
    assert_eq!(relaying(&mut stranger), 550);
}

#[test]
fn the_client_behind_a_proxy_is_seen_everywhere() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab, "listen.proxy_clients").start();
    let wire = message("proxied@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    proxied(&server, &v1("10.1.2.3")).greeted().send("me@home.example", &["ann@one.example"], &wire).expect(250);
    lab.wait_clean("proxied@test", &["ann@one.example"]);
    server.wait_log(&["from=<me@home.example>", "relay=[10.1.2.3]"]);
}

#[test]
fn without_a_header_a_proxys_connection_is_closed() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab, "listen.proxy_clients").start();
    for wrong in [
        &b"EHLO client.example\r\n"[..],
        b"PROXY TCP4 192.0.2.7 192.0.2.9 70000 25\r\n",
        b"PROXY TCP4 nowhere nowhere 1 25\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff12345678",
        b"PROXY TCP4 1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111",
    ] {
        assert_eq!(proxied(&server, wrong).rest(), "", "{}", wrong.escape_ascii());
    }
    let mut half = proxied(&server, b"PROXY TC");
    half.shutdown_write();
    assert_eq!(half.rest(), "");
    let shown = String::from_utf8(server.operator(&["doctor"]).stdout).expect("UTF-8");
    assert!(shown.contains("limit proxy_header hit ") && shown.contains(" ago by 127."), "{shown}");
    assert!(shown.contains("enable send-proxy on this proxy, or remove it from [listen] proxy_clients"), "{shown}");
    assert!(!shown.contains("raise [listen] proxy_clients"), "{shown}");
    server.wait_log(&["limit=\"proxy_header\"", "by=127."]);
    assert_eq!(relaying(&mut proxied(&server, &v1("10.1.2.3")).greeted()), 250);
}

#[test]
fn connections_are_counted_for_the_client_not_for_the_proxy() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab, "listen.proxy_clients").set("listen.connections_per_client_max", "1").start();
    let _first = proxied(&server, &v1("192.0.2.7")).greeted();
    let _other = proxied(&server, &v1("192.0.2.8")).greeted();
    let refused = proxied(&server, &v1("192.0.2.7")).rest();
    assert_eq!(refused, "421 4.7.0 Too many connections from your address\r\n");
}

#[test]
fn xclient_makes_the_session_another_clients() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab, "listen.xclient_clients").start();
    let mut proxy = server.connect_from(PROXY).greeted();
    assert_eq!(relaying(&mut proxy), 550);
    let greeting = proxy.cmd("XCLIENT ADDR=10.1.2.3 NAME=c.example HELO=c.example").expect(220);
    assert!(greeting.lines[0].starts_with("mx.test ESMTP"), "{greeting}");
    let wire = message("xclient@test", "x");
    lab.recorder().expect_message(wire.clone().into());
    proxy.send("me@home.example", &["ann@one.example"], &wire).expect(250);
    lab.wait_clean("xclient@test", &["ann@one.example"]);
    server.wait_log(&["from=<me@home.example>", "relay=[10.1.2.3]"]);

    let mut stranger = server.connect_from(PROXY).greeted();
    stranger.cmd("XCLIENT ADDR=192.0.2.7 HELO=c.example").expect(220);
    assert_eq!(relaying(&mut stranger), 550);
    // These may be the client's own words.
    stranger.cmd("XCLIENT ADDR=127.0.0.1").expect(502);
    assert_eq!(relaying(&mut stranger), 550);
    let mut known = server.connect_from(PROXY).greeted();
    known.cmd("XCLIENT ADDR=192.0.2.7 LOGIN=ann HELO=c.example").expect(220);
    assert_eq!(relaying(&mut known), 250);
}

#[test]
fn xclient_is_for_proxies_and_within_their_clients_limits() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab, "listen.xclient_clients").set("listen.connections_per_client_max", "1").start();
    server.connect_from("127.0.0.8").greeted().cmd("XCLIENT ADDR=10.1.2.3").expect(502);
    server.smtp().cmd("XCLIENT ADDR=10.1.2.3").expect(502);
    let mut first = server.connect_from(PROXY).greeted();
    first.cmd("XCLIENT ADDR=nowhere").expect(501);
    first.cmd("XCLIENT ADDR=192.0.2.7").expect(220);
    let mut second = server.connect_from(PROXY).greeted();
    second.cmd("XCLIENT ADDR=192.0.2.7").expect(421);
    assert_eq!(second.rest(), "");
}

#[test]
fn a_client_that_a_proxy_does_not_name_has_none_of_the_proxys_rights() {
    let lab = TestLab::sites(&["one.example"]);
    // The proxy's address is trusted, may name clients by XCLIENT, too, and a rule relays for it.
    let prepared = builder(&lab, "listen.proxy_clients")
        .set("client_networks", "[\"127.0.0.0/8\"]")
        .set("listen.xclient_clients", &format!("[\"{PROXY}\"]"))
        .prepare();
    prepared.edit_config(|text| {
        format!("{text}\n[[rules]]\nclient = \"{PROXY}\"\nrecipient = \"rule@two.example\"\ndo = \"relay\"\n")
    });
    let server = prepared.run();
    assert_eq!(relaying(&mut proxied(&server, &v1("127.0.0.1")).greeted()), 250);
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), v2(0, "10.1.2.3")] {
        let mut client = proxied(&server, &header).greeted();
        assert_eq!(relaying(&mut client), 550, "{}", header.escape_ascii());
        client.cmd("MAIL FROM:<me@home.example>").expect(250);
        client.cmd("RCPT TO:<rule@two.example>").expect(550);
        client.cmd("XCLIENT ADDR=127.0.0.1").expect(502);
    }
}
