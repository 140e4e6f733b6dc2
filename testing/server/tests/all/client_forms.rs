//! What programs in the field send in spite of the RFCs, and what becomes of the headers that they write: envelopes of
//! trusted clients, blind copies, list fields of posts, our own address as a domain, and a host that is this server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use stentor_harness::{TestLab, message, message_with};

use crate::kit::{SENDER, SENDER_SITE, builder};

fn lab() -> TestLab {
    TestLab::sites(&["one.example", "two.example", "sender.example"])
}

/// The header of the copy that somebody has, unfolded.
pub fn header_for(lab: &TestLab, recipient: &str) -> String {
    header_of(&lab.body_for(recipient))
}

/// The header of a copy, unfolded.
fn header_of(copy: &[u8]) -> String {
    let body = String::from_utf8_lossy(copy);
    let header = body.split_once("\r\n\r\n").map_or(&*body, |(header, _)| header);
    header.replace("\r\n ", " ").replace("\r\n\t", " ")
}

/// Values of the fields of this name.
pub fn fields<'h>(header: &'h str, name: &str) -> Vec<&'h str> {
    let field = |line: &'h str| line.split_once(':').filter(|(own, _)| own.trim_end().eq_ignore_ascii_case(name));
    header.split("\r\n").filter_map(field).map(|(_, value)| value.trim()).collect()
}

#[test]
fn sloppy_envelopes_are_taken_of_trusted_clients_alone() {
    let lab = lab();
    let server = builder(&lab)
        .set("addresses.origin", "\"home.test\"")
        .set("domains.local", "[\"home.test\"]")
        .alias("root@home.test", &["ann@one.example"])
        .start();
    for (mail, rcpt) in [
        ("FROM:me@sender.example", "TO:bob@one.example"),
        ("FROM: me@sender.example SIZE=100", "TO: bob@one.example"),
        ("FROM:<me@sender.example.>", "TO:<bob@one.example.>"),
        ("FROM:<@a.example:me@sender.example>", "TO:<@a.example,@b.example:bob@one.example>"),
        ("FROM:<root>", "TO:<Root>"),
        ("FROM:root", "TO:root"),
        ("FROM:<\"a b\"@sender.example.>", "TO:\"a b\"@one.example"),
        ("FROM:<>", "TO:a..b@one.example"),
    ] {
        let mut trusted = server.connect().greeted();
        trusted.cmd(&format!("MAIL {mail}")).expect(250);
        trusted.cmd(&format!("RCPT {rcpt}")).expect(250);
        trusted.quit();
    }
    let mut stranger = server.connect_from("127.0.0.2").greeted();
    stranger.cmd("MAIL FROM:me@sender.example").expect(501);
    stranger.cmd("MAIL FROM:<root>").expect(501);
    stranger.cmd("MAIL FROM:<me@sender.example.>").expect(501);
    stranger.cmd("MAIL FROM:<@a.example:me@sender.example>").expect_text("550 5.7.1");
    stranger.cmd("MAIL FROM:<a..b@sender.example>").expect(250);
    stranger.cmd("RCPT TO:root@home.test").expect(501);
    stranger.cmd("RCPT TO:<root>").expect(501);
    stranger.cmd("RCPT TO:<@a.example:root@home.test>").expect_text("550 5.7.1");
    stranger.cmd("RCPT TO:<root@home.test>").expect(250);
    stranger.quit();
}

#[test]
fn dots_anywhere_in_a_local_part_are_sent_in_quotes() {
    let lab = lab();
    let server = builder(&lab).list("news", &["user..name@one.example", "\"user..name\"@one.example"]).start();
    let to = ["a..b@two.example", "\"c.\"@two.example", ".d@two.example"];
    server.smtp().send(SENDER, &to, &message("dots@test", "x")).expect(250);
    lab.wait_clean("dots@test", &["\"a..b\"@two.example", "\"c.\"@two.example", "\".d\"@two.example"]);
    server.smtp().send(SENDER, &["news@lists.test"], &message("list@test", "x")).expect(250);
    lab.wait_clean("list@test", &["\"user..name\"@one.example"]);
}

#[test]
fn blind_copies_and_return_paths_are_in_no_copy() {
    let lab = lab();
    let server = builder(&lab).list("news", &["ann@one.example"]).set("domains.relay", "[\"two.example\"]").start();
    let blind = "BCC : secret@one.example,\r\n\t hidden@one.example\r\nReturn-Path: <old@x.example>\r\nresent-bcc: secret@x\r\n";
    let long = "x".repeat(70) + "\r\n";
    for (from, to, reader, id) in [
        ("127.0.0.1", "bob@one.example", "bob@one.example", "trusted@test"),
        ("127.0.0.2", "joe@two.example", "joe@two.example", "stranger@test"),
        ("127.0.0.1", "news@lists.test", "ann@one.example", "post@test"),
    ] {
        // One that is held in memory, and one that is stored in pieces.
        for (size, lines) in [("small", 1), ("large", 10_000)] {
            let id = format!("{size}-{id}");
            let reader = if size == "small" { reader.to_owned() } else { format!("l{reader}") };
            let to = if to == "news@lists.test" { to.to_owned() } else { reader.clone() };
            let wire = message_with(&id, &format!("Subject: x\r\n{blind}X-Last: y\r\n"), &long.repeat(lines));
            let reader = if to == "news@lists.test" { "ann@one.example".to_owned() } else { reader };
            server.connect_from(from).greeted().send(SENDER, &[&to], &wire).expect(250);
            lab.wait("the copy", |book| book.copies_to(&reader).iter().any(|copy| *copy.message_id == *id));
            let copies = lab.recorder().copies_to(&reader);
            let copy = copies.iter().find(|copy| *copy.message_id == *id).expect("waited for");
            let header = header_of(copy.body.as_ref().expect("the lab keeps bodies"));
            for field in ["Bcc", "Resent-Bcc", "Return-Path"] {
                assert!(fields(&header, field).is_empty(), "{id}: {header}");
            }
            assert!(!header.contains("secret") && !header.contains("hidden"), "{id}: {header}");
            assert_eq!(fields(&header, "X-Last"), ["y"], "{id}");
        }
    }
}

#[test]
fn what_trusted_clients_leave_out_is_added() {
    let lab = lab();
    let server = builder(&lab).set("domains.relay", "[\"one.example\"]").start();
    let bare = b"From: me@sender.example\r\nSubject: alarm\r\n\r\nx\r\n";
    server.smtp().send(SENDER, &["ann@one.example"], bare).expect(250);
    server.connect_from("127.0.0.2").greeted().send(SENDER, &["bob@one.example"], bare).expect(250);
    lab.wait_copies(2);
    let header = header_for(&lab, "ann@one.example");
    assert_eq!((fields(&header, "Date").len(), fields(&header, "Message-ID").len()), (1, 1), "{header}");
    let header = header_for(&lab, "bob@one.example");
    assert_eq!((fields(&header, "Date").len(), fields(&header, "Message-ID").len()), (0, 0), "{header}");
    let off = builder(&lab).set("listen.add_missing_headers", "false").start();
    off.smtp().send(SENDER, &["joe@one.example"], bare).expect(250);
    lab.wait_copies(3);
    assert!(fields(&header_for(&lab, "joe@one.example"), "Date").is_empty());
}

#[test]
fn a_post_has_each_list_field_once_and_others_have_it_as_it_came() {
    let lab = lab();
    let server = builder(&lab).list("news", &["ann@one.example"]).start();
    let parent = "List-Id: Parent\r\n <parent.lists.example>\r\nLIST-POST: <mailto:p@lists.example>\r\nPrecedence: bulk\r\n\
                  precedence: junk\r\nList-Archive: <https://a.example/>\r\nList-Archive: <https://b.example/>\r\n\
                  List-Unsubscribe: <mailto:l@lists.example>\r\n";
    let wire = message_with("nested@test", &format!("Subject: x\r\n{parent}"), "text\r\n");
    server.smtp().send(SENDER, &["news@lists.test", "bob@two.example"], &wire).expect(250);
    lab.wait_copies(2);
    let post = header_for(&lab, "ann@one.example");
    assert_eq!(fields(&post, "List-Id"), ["<news.lists.test>"], "{post}");
    assert_eq!(fields(&post, "List-Post"), ["<mailto:news@lists.test>"]);
    assert_eq!(fields(&post, "Precedence"), ["list"]);
    assert_eq!(fields(&post, "List-Archive"), ["<https://a.example/>"]);
    assert_eq!(fields(&post, "List-Unsubscribe"), ["<mailto:l@lists.example>"]);
    assert_eq!(fields(&post, "X-Original-List-Id"), ["Parent <parent.lists.example>"]);
    let other = header_for(&lab, "bob@two.example");
    assert_eq!(fields(&other, "List-Id"), ["Parent <parent.lists.example>"], "{other}");
    assert_eq!(fields(&other, "Precedence"), ["bulk", "junk"]);
    let mut archives = fields(&other, "List-Archive");
    archives.sort_unstable();
    assert_eq!(archives, ["<https://a.example/>", "<https://b.example/>"]);
    // By the other list's id it knows a post that comes back.
    let back = message_with("back@test", "Subject: x\r\nX-Original-List-Id: <news.lists.test>\r\n", "text\r\n");
    server.smtp().send(SENDER, &["news@lists.test"], &back).expect(554);
}

#[test]
fn subscribers_who_differ_in_case_alone_get_one_copy() {
    let lab = lab();
    let subscribers = ["Ann@one.example", "ann@one.example", "ANN@ONE.example", "bob@one.example", "Bob@one.example"];
    let server = builder(&lab).list("news", &subscribers).start();
    server.smtp().send(SENDER, &["news@lists.test"], &message("case@test", "x")).expect(250);
    lab.wait_clean("case@test", &["Ann@one.example", "bob@one.example"]);
    let said = server.operator_text(&["check"]);
    assert!(said.contains("ann@one.example differs from Ann@one.example in line 1"), "{said}");
}

#[test]
fn our_own_address_stands_for_our_name() {
    let lab = lab();
    let server = builder(&lab).set("domains.postmaster", "\"boss@one.example\"").start();
    for from in ["127.0.0.1", "127.0.0.2"] {
        let mut client = server.connect_from(from).greeted();
        client.cmd("MAIL FROM:<me@sender.example>").expect(250);
        for to in
            ["postmaster@[127.0.0.1]", "PostMaster@[127.0.0.1]", "postmaster@[IPv6:::ffff:127.0.0.1]", "postmaster"]
        {
            client.cmd(&format!("RCPT TO:<{to}>")).expect(250);
        }
        client.cmd("RCPT TO:<nobody@[127.0.0.1]>").expect_text("550 5.1.1");
        client.quit();
    }
    let mut stranger = server.connect_from("127.0.0.2").greeted();
    stranger.cmd("MAIL FROM:<me@sender.example>").expect(250);
    stranger.cmd("RCPT TO:<postmaster@[192.0.2.77]>").expect_text("550 5.7.1");
    server.smtp().send(SENDER, &["postmaster@[127.0.0.1]"], &message("boss@test", "x")).expect(250);
    lab.wait_clean("boss@test", &["boss@one.example"]);
}

/// Leads what connects here to another address, as a NAT does.
fn forward(from: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(from).expect("the address is free");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(to) else { continue };
            let both = [(client.try_clone(), server.try_clone()), (server.try_clone(), client.try_clone())];
            for (reader, writer) in both {
                let (Ok(mut reader), Ok(mut writer)) = (reader, writer) else { continue };
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(octets @ 1..) = reader.read(&mut buffer) {
                        if writer.write_all(&buffer[..octets]).is_err() {
                            break;
                        }
                    }
                    let _ = writer.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

#[test]
fn a_host_of_our_name_is_this_server() {
    let lab = TestLab::start(&format!(
        "{SENDER_SITE}[[record]]\nname = 'customer.example'\ntype = 'MX'\nvalue = '10 nat.customer.example'\n\
         [[record]]\nname = 'nat.customer.example'\ntype = 'A'\nvalue = '127.9.11.1'\n"
    ));
    let server = builder(&lab).set("domains.relay", "[\"customer.example\"]").start();
    forward(SocketAddr::from(([127, 9, 11, 1], lab.smtp_port())), server.address());
    server.smtp().send(SENDER, &["ann@customer.example"], &message("loop@test", "x")).expect(250);
    lab.wait("the report", |book| !book.copies_to(SENDER).is_empty());
    let report = String::from_utf8_lossy(&lab.body_for(SENDER)).into_owned();
    assert!(report.contains("Status: 5.4.6") && report.contains("loops back to this server"), "{report}");
    // The log may be behind the report.
    server.log().wait_nth(&["nrcpts=", "relay=[127.0.0.1]"], 1);
    assert_eq!(server.log().matching(&["nrcpts=", "relay=[127.0.0.1]"]).len(), 1, "it came once");
}
