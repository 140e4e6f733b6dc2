//! Generic addresses (docs/operate/addresses.md): what other hosts see instead of what is stored.

use stentor_harness::{Builder, Server, wait_until};

use crate::kit::{closed_address, data, drained};
use crate::scribe::Scribe;
use crate::virtual_users::{replace, with};

const HEADER: &str = "From: \"Ann, (ann@corp.internal)\" <ann@corp.internal> (x)\r\nSubject: ann@corp.internal\r\n\
                      To: staff: bob@full.example, =?utf-8?q?A=40b?= <any @ corp.internal>;,\r\n\tcid@plain.example\r\n";
const SEEN: &str = "From: \"Ann, (ann@corp.internal)\" <ann.lee@isp.example> (x)\r\nSubject: ann@corp.internal\r\n\
                    To: staff: bob@other.example, =?utf-8?q?A=40b?= <any @ isp.example>;,\r\n\tcid@plain.example\r\n";
const GENERIC: &str =
    "ann@corp.internal ann.lee@isp.example\n@corp.internal @isp.example\nbob@full.example bob@other.example\n";

/// Nothing but addresses is to change.
fn bare() -> Builder {
    crate::kit::bare().set("listen.add_missing_headers", "false")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap()
}

/// `text` behind our own Received field.
#[track_caller]
fn assert_content(content: &[u8], expected: &str) {
    let content = text(content);
    let (received, rest) = content.split_at(content.find("From: ").unwrap());
    assert!(received.starts_with("Received: from "), "{received}");
    assert_eq!(rest, expected);
}

#[test]
fn other_hosts_see_generic_addresses_and_nothing_else_changes() {
    let all = ["PIPELINING", "CHUNKING", "SIZE 10000000", "8BITMIME", "SMTPUTF8", "DSN"];
    let (full, plain) = (Scribe::start(&all, &[]), Scribe::start(&["SIZE 10000000"], &[]));
    let store = Scribe::start(&["PIPELINING", "8BITMIME"], &[]);
    let builder = bare()
        .route("full.example", &[&full.host()])
        .route("plain.example", &[&plain.host()])
        .route("store.example", &[&format!("lmtp:{}", store.host())]);
    let server = with(
        builder,
        &[("generic", GENERIC)],
        "[tables.outside]\nsource = \"hash:{}/generic\"\nas = \"generic\"\n[addresses]\ngeneric = \"outside\"\n",
    );
    // One that is held in memory, and one that is read from the journal as it is sent.
    for (n, lines) in [1, 12_000].into_iter().enumerate() {
        let type_field = "Content-Type: text/plain; charset=utf-8\r\n";
        let body = format!("\r\nTo: ann@corp.internal\r\n{}", "Gr\u{fc}\u{df}e\r\n".repeat(lines));
        let wire = format!("{HEADER}{type_field}{body}");
        let to = ["bob@full.example", "dan@full.example", "cid@plain.example", "eve@store.example"];
        server.smtp().send("ann@corp.internal", &to, wire.as_bytes()).expect(250);
        assert_eq!(drained(&server).delivered as usize, 4 * (n + 1));

        // Stored once, and sent to each in its form, with its size.
        let content = &full.contents()[n];
        assert_content(content, &format!("{SEEN}{type_field}{body}"));
        let size = content.len();
        assert_eq!(full.heard("MAIL")[n], format!("MAIL FROM:<ann.lee@isp.example> SIZE={size} BODY=8BITMIME"));
        let mut rcpts = full.heard("RCPT").split_off(2 * n);
        rcpts.sort();
        assert_eq!(rcpts, ["RCPT TO:<bob@other.example>", "RCPT TO:<dan@full.example>"]);
        assert_eq!(full.heard("BDAT")[n], format!("BDAT {size} LAST"));

        let content = &plain.contents()[n];
        let seen = text(content);
        assert!(seen.contains(SEEN) && seen.contains("Gr=C3=BC=C3=9Fe\r\n") && seen.is_ascii(), "{seen}");
        let size = content.len();
        assert_eq!(plain.heard("MAIL")[n], format!("MAIL FROM:<ann.lee@isp.example> SIZE={size}"));
        assert_eq!(plain.heard("RCPT")[n], "RCPT TO:<cid@plain.example>");

        // Not by LMTP.
        assert_content(&store.contents()[n], &format!("{HEADER}{type_field}{body}"));
        assert_eq!(store.heard("MAIL")[n], "MAIL FROM:<ann@corp.internal> BODY=8BITMIME");
    }
    // What is logged and kept has the address that was named.
    server.wait_log(&["<bob@full.example>", "from=<ann@corp.internal>", "stat=Sent"]);

    let explained = |to: &str| {
        let output = server.operator(&["explain", "--from", "ann@corp.internal", "--to", to]);
        String::from_utf8(output.stdout).unwrap()
    };
    let why = explained("bob@full.example");
    for part in [
        "generic:1 generic outside: ann@corp.internal: ann.lee@isp.example\n",
        "generic:3 generic outside: bob@full.example: bob@other.example\n",
        "   rewritten for other hosts: from <ann.lee@isp.example> to <bob@other.example>\n",
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    assert!(!explained("eve@store.example").contains("generic"));

    // A replaced table is in force for open sessions, too; the null sender stays.
    replace(&server, "generic", "dan@full.example new@other.example\n");
    wait_until("the next version is in force", || {
        server.smtp().send("", &["dan@full.example"], HEADER.as_bytes()).expect(250);
        drained(&server);
        full.heard("RCPT").iter().any(|line| line == "RCPT TO:<new@other.example>")
    });
    assert!(full.heard("MAIL").last().unwrap().starts_with("MAIL FROM:<> "));
    assert_content(full.contents().last().unwrap(), HEADER);
}

#[test]
fn a_genericstable_is_for_senders_of_our_domains() {
    let host = Scribe::start(&["PIPELINING"], &[]);
    let server = with(
        bare().route("full.example", &[&host.host()]),
        &[("generic", "ann\tann.lee@isp.example\nbob+*\tbob-%1@isp.example\nx@full.example\tnever@isp.example\n")],
        "[domains]\nlocal = [\"local.example\"]\n\
         [tables.outside]\nsource = \"makemap:{}/generic\"\nas = \"genericstable\"\n\
         [addresses]\ngeneric = \"outside\"\ngeneric_domains = [\"corp.internal\"]\n",
    );
    let wire = "From: ann@elsewhere.example, ann@corp.internal\r\nReply-To: bob+news@local.example\r\nTo: ann@corp.internal\r\n\r\nx\r\n";
    server.smtp().send("bob+x@corp.internal", &["x@full.example"], wire.as_bytes()).expect(250);
    drained(&server);
    assert_eq!(host.heard("MAIL"), ["MAIL FROM:<bob-x@isp.example>"]);
    assert_eq!(host.heard("RCPT"), ["RCPT TO:<x@full.example>"]);
    let seen = "From: ann@elsewhere.example, ann.lee@isp.example\r\nReply-To: bob-news@isp.example\r\nTo: ann@corp.internal\r\n\r\nx\r\n";
    assert_content(&host.contents()[0], seen);
}

/// The causes for which mail waits, with their counts.
fn causes(server: &Server) -> String {
    data(server.operator_json(&["queue"]).remove(0))["causes"].to_string()
}

#[test]
fn what_cannot_be_looked_up_waits_and_loses_nothing() {
    let host = Scribe::start(&["PIPELINING"], &[]);
    let address = closed_address();
    let server = with(
        bare().fast_retry().route("full.example", &[&host.host()]),
        &[("generic", "dave@full.example |/bin/false\n")],
        &format!(
            "[tables.outside]\nsource = \"hash:{{}}/generic\"\nas = \"generic\"\n\
             [tables.remote]\nsource = \"socketmap:inet:{address}:out\"\nas = \"generic\"\n\
             [addresses]\ngeneric = [\"outside\", \"remote\"]\n"
        ),
    );
    server.smtp().send("ann@corp.internal", &["dave@full.example", "cid@full.example"], HEADER.as_bytes()).expect(250);
    wait_until("its cause", || causes(&server).contains("\"table\""));
    assert!(host.heard("MAIL").is_empty(), "{:?}", host.lines());
    server.wait_log(&["dsn=4.3.0", "stat=Deferred: Table lookup failed, try again later"]);
    crate::rules::socketmap_with(address, |asked| match asked {
        "out ann@corp.internal" => "OK ann.lee@isp.example",
        _ => "NOTFOUND ",
    });
    // One recipient has something unusable: the other gets his copy all the same.
    let rcpt = host.wait("RCPT");
    assert_eq!(rcpt, "RCPT TO:<cid@full.example>");
    assert_eq!(host.heard("MAIL")[0], "MAIL FROM:<ann.lee@isp.example>");
    replace(&server, "generic", "dave@full.example dave@other.example\n");
    wait_until("the other copy", || host.heard("RCPT").iter().any(|line| line == "RCPT TO:<dave@other.example>"));
    let fates = drained(&server);
    assert_eq!((fates.delivered, fates.bounced, host.heard("RCPT").len()), (2, 0, 2), "{:?}", host.lines());
}

/// An address that needs SMTPUTF8 stands in the header alone, where there was none: it goes to hosts that offer it, and
/// is returned by others.
#[test]
fn a_generic_address_beyond_ascii_takes_smtputf8() {
    let full = Scribe::start(&["SIZE 10000000", "8BITMIME", "SMTPUTF8"], &[]);
    let plain = Scribe::start(&["SIZE 10000000", "8BITMIME"], &[]);
    let back = Scribe::start(&["8BITMIME"], &[]);
    let server = with(
        bare()
            .route("full.example", &[&full.host()])
            .route("plain.example", &[&plain.host()])
            .route("home.example", &[&back.host()]),
        &[("generic", "ann@corp.internal j\u{f6}rg@isp.example\n")],
        "[tables.outside]\nsource = \"hash:{}/generic\"\nas = \"generic\"\n[addresses]\ngeneric = \"outside\"\n",
    );
    let wire = "From: ann@corp.internal\r\nSubject: x\r\n\r\nx\r\n";
    server.smtp().send("me@home.example", &["bob@full.example"], wire.as_bytes()).expect(250);
    drained(&server);
    assert_content(&full.contents()[0], "From: j\u{f6}rg@isp.example\r\nSubject: x\r\n\r\nx\r\n");
    let size = full.contents()[0].len();
    let mail = format!("MAIL FROM:<me@home.example> SIZE={size} BODY=8BITMIME SMTPUTF8");
    assert_eq!(full.heard("MAIL"), [mail]);
    server.smtp().send("me@home.example", &["bob@plain.example"], wire.as_bytes()).expect(250);
    back.wait("RCPT");
    let fates = drained(&server);
    assert_eq!((fates.bounced, plain.contents().len()), (1, 0), "{:?}", plain.lines());
    let report = text(&back.contents()[0]);
    assert!(report.contains("5.6.7") && report.contains("SMTPUTF8"), "{report}");
}
