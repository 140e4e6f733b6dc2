//! Detects hosts that are this server, under an address not known to be its own: a port forwarded back, or a NAT (RFC
//! 5321 6.3).
//!
//! A server gives its name in its greeting and in its reply to EHLO. Our own name means us, as in an MX record (RFC
//! 5321 5.1):
//!
//! | path to the host | a host with our name |
//! |---|---|
//! | the best MX hosts of a domain | is us: the mail is returned (5.4.6), at the first attempt |
//! | another MX host | is us: it is not used, and mail waits for the better ones (4.4.6) |
//! | a route, to a port on which we accept mail | is us: the mail waits (4.4.6), since a route never bounces mail |
//! | a route, to another port | is another server on this machine, such as a content filter |
//! | LMTP, a Unix socket | accepts mail for mailboxes, and may well have our name |
//!
//! A name without a dot, or one like `localhost`, is shared by many servers and proves nothing. Neither does a name in
//! `[delivery] same_name_hosts`: servers of a cluster may share one.

use stentor_core::Settings;
use stentor_mail::reply::Enhanced;
use stentor_queue::site::{Endpoint, Target};
use stentor_sched::HostRole;
use stentor_smtp::client::ClientSession;

/// Routing loop detected (RFC 3463 X.4.6).
pub(super) const BOUNCED: Enhanced = Enhanced::new(5, 4, 6);
pub(super) const DEFERRED: Enhanced = Enhanced::new(4, 4, 6);

/// How a host that is this server is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopAction {
    /// Mail for it is returned.
    ForGood,
    /// The host is not used.
    Here,
}

/// Checks whether the host of this session is this server.
pub(super) fn leads_back(
    settings: &Settings,
    target: &Target,
    smtp: &ClientSession,
    way: HostRole,
) -> Option<LoopAction> {
    let config = &settings.config;
    let listen = &config.listen;
    let listeners = listen.smtp.iter().chain(&listen.smtps).chain(&listen.submission);
    let mut ports = listeners.map(|listener| listener.address.port()).chain([config.delivery.smtp_port]);
    let may_be_us = match &target.addr {
        Endpoint::Tcp(addr) | Endpoint::Tls(addr) => {
            let shares_name = || config.delivery.same_name_hosts.covers(&target.host, addr.ip());
            ports.any(|port| port == addr.port()) && !shares_name()
        }
        Endpoint::Unix(_) => false,
    };
    let is_us = !target.lmtp && may_be_us && is_own(&config.hostname) && smtp.calls_itself(&config.hostname);
    is_us.then_some(if way.is_route || !way.is_best { LoopAction::Here } else { LoopAction::ForGood })
}

/// Whether a name can belong to a single server.
pub(super) fn is_own(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.contains('.') && name != "localhost.localdomain" && !name.ends_with(".localhost")
}

/// Describes the loop for reports and the log.
pub(super) fn text(target: &Target, hostname: &str) -> String {
    format!(
        "mail loops back to this server: {target} greets as {hostname}, this server's own hostname; if it is another \
         server, add it to [delivery] same_name_hosts"
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use stentor_smtp::client::ClientConfig;

    use super::*;

    fn settings(hostname: &str) -> Settings {
        settings_with(hostname, "")
    }

    fn settings_with(hostname: &str, delivery: &str) -> Settings {
        let text = format!(
            "hostname = {hostname:?}\n[listen]\nsmtp = [\"127.0.0.1:25\"]\n[delivery]\nsmtp_port = 25\n{delivery}"
        );
        let config = stentor_config::check_text(std::path::Path::new("stentor.toml"), &text);
        Settings::new(config.unwrap_or_else(|found| panic!("{found:?}")), None)
    }

    fn target(addr: Endpoint, lmtp: bool) -> Target {
        Target { preference: 10, host: "mx.customer.test".into(), addr, lmtp, posture: None }
    }

    fn session(octets: &str) -> ClientSession {
        let mut smtp = ClientSession::new(ClientConfig::default().into(), 0);
        smtp.receive(octets.as_bytes(), 0).unwrap();
        smtp
    }

    const MX: HostRole = HostRole { is_route: false, is_best: true };
    const BACKUP: HostRole = HostRole { is_route: false, is_best: false };
    const ROUTE: HostRole = HostRole { is_route: true, is_best: true };

    #[test]
    fn our_own_name_is_us_by_greeting_or_ehlo() {
        let settings = settings("mx.our.example");
        let at = |addr: &str| target(Endpoint::by_port(addr.parse::<SocketAddr>().unwrap()), false);
        for (octets, is_us) in [
            ("220 mx.our.example ESMTP\r\n", true),
            ("220 MX.Our.Example. ready\r\n", true),
            ("220-mx.our.example ESMTP\r\n220 more\r\n", true),
            ("220 mx.our.example\r\n", true),
            ("220 ****\r\n250-mx.our.example hello\r\n250 SIZE\r\n", true),
            ("220 x\r\n250 mx.OUR.example\r\n", true),
            ("220 mx2.our.example ESMTP\r\n", false),
            ("220 ESMTP mx.our.example\r\n", false),
            ("220 mx.our.example.evil.test\r\n", false),
            ("220 \r\n250 x\r\n", false),
        ] {
            for addr in ["192.0.2.1:25", "[2001:db8::1]:25"] {
                let found = leads_back(&settings, &at(addr), &session(octets), MX);
                assert_eq!(found, is_us.then_some(LoopAction::ForGood), "{octets:?} at {addr}");
            }
        }
    }

    #[test]
    fn the_way_to_the_host_decides() {
        let settings = settings("mx.our.example");
        let smtp = session("220 mx.our.example ESMTP\r\n");
        let at = |addr: &str| Endpoint::by_port(addr.parse::<SocketAddr>().unwrap());
        for (addr, lmtp, way, wanted) in [
            (at("192.0.2.1:25"), false, MX, Some(LoopAction::ForGood)),
            (at("192.0.2.1:25"), false, BACKUP, Some(LoopAction::Here)),
            (at("192.0.2.1:25"), false, ROUTE, Some(LoopAction::Here)),
            (at("127.0.0.1:10024"), false, ROUTE, None),
            (at("127.0.0.1:25"), true, ROUTE, None),
            (at("127.0.0.1:24"), true, ROUTE, None),
            (Endpoint::Unix("/run/lmtp".into()), true, ROUTE, None),
            (Endpoint::Unix("/run/filter".into()), false, ROUTE, None),
        ] {
            let shown = format!("{addr:?} {lmtp} {way:?}");
            assert_eq!(leads_back(&settings, &target(addr, lmtp), &smtp, way), wanted, "{shown}");
        }
    }

    #[test]
    fn a_host_that_shares_our_name_is_not_us() {
        let smtp = session("220 mx.our.example ESMTP\r\n250-mx.our.example\r\n250 SIZE\r\n");
        let at = |addr: &str| target(Endpoint::by_port(addr.parse::<SocketAddr>().unwrap()), false);
        for (list, addr, is_us) in [
            ("", "192.0.2.1:25", true),
            ("same_name_hosts = [\"mx.customer.test\"]\n", "192.0.2.1:25", false),
            ("same_name_hosts = [\".customer.test\"]\n", "192.0.2.1:25", false),
            ("same_name_hosts = [\"192.0.2.0/28\"]\n", "192.0.2.1:25", false),
            ("same_name_hosts = [\"192.0.2.0/28\"]\n", "192.0.2.100:25", true),
            ("same_name_hosts = [\"other.test\", \"2001:db8::1\"]\n", "192.0.2.1:25", true),
            ("same_name_hosts = [\"other.test\", \"2001:db8::1\"]\n", "[2001:db8::1]:25", false),
        ] {
            let settings = settings_with("mx.our.example", list);
            for way in [MX, BACKUP, ROUTE] {
                assert_eq!(leads_back(&settings, &at(addr), &smtp, way).is_some(), is_us, "{list} {addr} {way:?}");
            }
        }
        assert!(text(&at("192.0.2.1:25"), "mx.our.example").contains("same_name_hosts"));
    }

    #[test]
    fn names_that_many_have_prove_nothing() {
        for (name, is_proof) in [
            ("mx.our.example", true),
            ("mx.our.example.", true),
            ("localhost", false),
            ("15b0717dc4c2", false),
            ("LOCALHOST.localdomain", false),
            ("mail.localhost", false),
            ("mail.", false),
        ] {
            assert_eq!(is_own(name), is_proof, "{name}");
        }
        let settings = settings("mail");
        let addr = Endpoint::by_port(([192, 0, 2, 1], 25));
        assert_eq!(leads_back(&settings, &target(addr, false), &session("220 mail ESMTP\r\n"), MX), None);
    }
}
