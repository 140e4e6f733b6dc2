//! Generates docs/design/hostile-receivers.md from the table.

use super::{End, Mail, Over, Receiver, receivers};

const HEAD: &str = "# Hostile receivers

What Stentor does when a receiving host misbehaves. Each row is a case of the suite that `testing/server/tests/all/hostile.rs`
runs over SMTP and LMTP, with one host and with a healthy one behind it; this page is made of its table (`cargo run -p
stentor-server-tests --bin stentor-hostile -- page`), and a test holds them together.

Of several messages not all reach the host: once it has failed the others go to the next one, or wait for it; those that were
behind the first one on a lost connection wait too.

Whatever the host does, one message costs at most 4 connections to it in the first 10 s and 2 in any later 10 s (a refused TCP
connection is tried again after 1, 2, 4, 8, 16, 30 s; one that takes a recipient in each connection gets one for each;
one that delivered within the hour before gets up to 16 more in the first half minute, scheduler.md), 16 KiB of log and 50 ms of CPU. `make bench ONLY=robust.hostile` measures
this, with 50 messages as well and with a healthy site beside.

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

/// The page.
pub fn page() -> String {
    let all = receivers();
    let mut text = HEAD.to_owned();
    text.push_str(&format!("{} receivers:\n", all.len()));
    let mut stage = "";
    for receiver in &all {
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
        Over::Both => {}
        Over::Smtp => does.push_str(" (SMTP)"),
        Over::Lmtp => does.push_str(" (LMTP)"),
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
