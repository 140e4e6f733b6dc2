//! Tests of users and of hosts' TLS, in both directions and on the terminal.

use stentor_records::civil::Zone;

use super::observe::{HostRow, Hosts};
use super::protocol::{Assembler, Request, to_lines};
use super::render;
use super::reply::ControlReply;
use super::site_view::{CertificateView, HostView, PathView, SiteView, TlsView, WeakTlsView};
use super::users_view::{Share, UserRow, UsersView};

const NOW: u64 = 1_790_000_000_000;

#[test]
fn users_come_in_lines_with_what_they_have_used() {
    let row = |n: usize| UserRow {
        user: format!("u{n}@example.org\u{1b}[2J"),
        locked: n == 1,
        messages_hour: Share { used: 12, max: Some(12) },
        ..UserRow::default()
    };
    let users = |rows: usize| UsersView {
        hostname: "mx.example.org".to_owned(),
        source: "users".to_owned(),
        users_total: rows as u64,
        rows: (0..rows).map(row).collect(),
        ..UsersView::default()
    };
    let reply = ControlReply::Users(Box::new(users(450)));
    let lines = to_lines(reply.clone());
    assert_eq!(lines.len(), 4);
    let mut assembler = Assembler::default();
    assert_eq!(lines.iter().filter_map(|line| assembler.push(line.trim_end()).unwrap()).last(), Some(reply));
    let text = render::reply(&ControlReply::Users(Box::new(users(2))), &Zone::utc());
    assert!(text.starts_with("mx.example.org: 2 users\n") && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains("messages/hour 12 of 12, messages/day 0, ") && text.contains(", locked\n"), "{text}");
    assert!(row(0).messages_hour.is_used_up() && !row(0).messages_day.is_used_up());
    assert_eq!(Request::parse(Request::Users.to_line().as_bytes()), Ok(Request::Users));
}

#[test]
fn a_host_is_shown_with_its_tls_and_a_site_with_the_weakest() {
    let weak =
        WeakTlsView { session: "clear:timeout".to_owned(), at: NOW - 86_400_000, host: "mx.a.example".to_owned() };
    let certificate = CertificateView {
        names: vec!["mx.a.example\u{1b}[2J".to_owned()],
        issuer: "A CA".to_owned(),
        ends: "2027-01-31".to_owned(),
        sha256: "5f".repeat(32),
        key_sha256: "1c".repeat(32),
    };
    let tls = TlsView {
        session: "TLSv1.3:C:verified".to_owned(),
        at: NOW - 60_000,
        proven: "proven for mx.a.example by a CA".to_owned(),
        certificate: Some(certificate),
        weakest: Some(weak.clone()),
    };
    let host = HostView { host: "mx.a.example".to_owned(), tls: Some(tls), ..HostView::default() };
    let path = PathView { hosts: vec![host.clone()], ..PathView::default() };
    let site = SiteView { now: NOW, weakest_tls: Some(weak.clone()), paths: vec![path], ..SiteView::default() };
    let row = HostRow { weakest_tls: Some(weak), hosts: vec![host], ..HostRow::default() };
    let hosts = Hosts { now: NOW, rows: vec![row], ..Hosts::default() };
    for reply in [ControlReply::Site(Box::new(site)), ControlReply::Hosts(Box::new(hosts))] {
        let text = render::reply(&reply, &Zone::utc());
        for wanted in [
            // The age is as wide as the view has space for.
            "weakest TLS  of 30 days: clear:timeout, 1d",
            " ago at mx.a.example\n",
            "TLS TLSv1.3:C:verified, 1m ago; proven for mx.a.example by a CA\n",
            " by A CA until 2027-01-31\n",
            &format!("SHA-256 {}\n", "5f".repeat(32)),
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
