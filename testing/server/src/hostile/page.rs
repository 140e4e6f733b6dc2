//! Generates docs/design/hostile-receivers.md and hostile-content.md from the table.

use super::{End, Mail, ProtocolScope, Receiver, receivers};

/// Stages on the first page; those on the second begin with DATA.
const SESSION: [&str; 7] = ["connect", "greeting", "ehlo", "starttls", "starttls-verified", "mail", "rcpt"];

const SESSION_HEAD: &str = "# Hostile receivers

What happens to mail when a receiving host misbehaves, case by case: find what the host does in a table, and read off where the
mail goes. This page has everything before the content; [hostile-content.md](hostile-content.md) has the rest. To watch
cases, give a part of their name, here the host that is silent at RCPT (it takes minutes):

    cargo run -p stentor-server-tests --bin stentor-hostile -- only rcpt-hang

`testing/server/tests/all/hostile.rs` runs each row over SMTP and LMTP, with one host and with a healthy second one. Both pages are
generated from its table (`stentor-hostile page FILE`), and a test compares them.

A failed host gets no further messages until it may be tried again: they go to the next host or wait. Messages pipelined behind
the first one on a lost connection wait, too.

The cost of one message is bounded, whatever the host does:

| what | at most |
|---|---|
| connections to the host | 4 in the first 10 s, 2 in any later 10 s |
| the same, if it refuses TCP connections | one after 1, 2, 4, 8, 16, 30 s |
| the same, if it takes one recipient in each connection | one for each recipient |
| the same, if it delivered within the hour before | 16 more in the first half minute ([scheduler.md](scheduler.md)) |
| log | 16 KiB |
| processor time | 50 ms |

`make bench ONLY=robust.hostile` measures this, also with 50 messages and with a healthy site beside the hostile one.

";

const CONTENT_HEAD: &str = "# Hostile receivers: from DATA on

What happens to mail when a host misbehaves at DATA or later, or breaks the rules of its extensions. [hostile-receivers.md](hostile-receivers.md)
has the earlier stages. To watch the host that is silent at DATA:

    cargo run -p stentor-server-tests --bin stentor-hostile -- only data-hang

";

fn words(end: End) -> (&'static str, &'static str) {
    match end {
        End::Taken => ("delivered", "delivered"),
        End::Again => ("delivered over another connection", "delivered, there or at the next host"),
        End::Next => ("waits for the host", "delivered at the next host"),
        End::NextOrReturned => ("returned", "delivered at the next host"),
        End::Waits => ("waits", "waits"),
        End::Returned => ("returned", "returned"),
        End::Unsure => ("waits; may be delivered twice", "waits; may be delivered twice"),
        End::UnsureKept => ("waits, and is delivered twice", "waits, and is delivered twice"),
        End::Dealt => ("delivered to some, the others wait", "delivered to some, the others wait"),
    }
}

/// The pages: each one's name in docs/design, and its text.
pub fn pages() -> [(&'static str, String); 2] {
    let all = receivers();
    let (session, content) = all.split_at(all.partition_point(|receiver| SESSION.contains(&receiver.stage)));
    [("hostile-receivers.md", page(SESSION_HEAD, session)), ("hostile-content.md", page(CONTENT_HEAD, content))]
}

fn page(head: &str, receivers: &[Receiver]) -> String {
    let mut text = head.to_owned();
    text.push_str(&format!("{} receivers:\n", receivers.len()));
    let mut stage = "";
    for receiver in receivers {
        if receiver.stage != stage {
            stage = receiver.stage;
            text.push_str(&format!(
                "\n## {}\n\n| the host | one host | a healthy one behind it |\n|---|---|---|\n",
                title(stage)
            ));
        }
        text.push_str(&row(receiver));
    }
    text
}

fn row(receiver: &Receiver) -> String {
    let (one, two) = words(receiver.end);
    let mut does = receiver.does.clone();
    match receiver.over {
        ProtocolScope::Both => {}
        ProtocolScope::Smtp => does.push_str(" (SMTP)"),
        ProtocolScope::Lmtp => does.push_str(" (LMTP)"),
    }
    let (mut one, mut two) = (one.to_owned(), two.to_owned());
    if let Some(some) = receiver.some.filter(|some| *some != receiver.end && receiver.mail != Mail::FirstRefused) {
        let (some_one, some_two) = words(some);
        one.push_str(&format!("; that one: {some_one}"));
        two.push_str(&format!("; that one: {some_two}"));
    }
    if let Some(lmtp) = receiver.lmtp {
        let (lmtp_one, lmtp_two) = words(lmtp);
        one.push_str(&format!("; LMTP: {lmtp_one}"));
        two.push_str(&format!("; LMTP: {lmtp_two}"));
    }
    format!("| {does} | {one} | {two} |\n")
}

fn title(stage: &str) -> &str {
    match stage {
        "connect" => "Connecting",
        "greeting" => "Greeting",
        "ehlo" => "EHLO, LHLO",
        "starttls" => "STARTTLS, where nothing is demanded",
        "starttls-verified" => "STARTTLS, where the host's name must be proven",
        "mail" => "MAIL",
        "rcpt" => "RCPT",
        "data" => "DATA, before the content",
        "bdat" => "BDAT, its content included",
        "body" => "In the middle of the content",
        "dot" => "After the end of the data",
        "rset" => "RSET, behind a message whose recipients were refused",
        "quit" => "QUIT, behind a delivery",
        "lie" => "Extensions that are not what they seem",
        "step" => "Replies out of step",
        "lmtp" => "LMTP's replies for each recipient",
        "deal" => "Attempts bought with deliveries: a message to 20 recipients",
        other => other,
    }
}
