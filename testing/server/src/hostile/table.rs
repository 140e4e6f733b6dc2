//! The hostile receivers, and the required outcome of mail to each.

use super::End::{Again, Dealt, Next, NextOrReturned, Returned, Taken, Unsure, UnsureKept, Waits};
use super::{End, Mail, ProtocolScope, Receiver};

/// Collects the table; a row that may be followed by the end of the connection becomes two receivers.
#[derive(Default)]
struct Table {
    rows: Vec<Receiver>,
    stage: &'static str,
    keys: &'static str,
    is_verified: bool,
    mail: Option<Mail>,
    over: Option<ProtocolScope>,
    /// Rules that come before each row's own.
    before: &'static [&'static str],
}

/// What happens to a connection at any stage, for [`Table::faults`].
const FAULTS: [(&str, &str, &str); 7] = [
    ("fin", "close", "closes"),
    ("rst", "reset", "resets"),
    ("half", "half-close", "ends its half of the connection and waits"),
    ("hang", "hang", "is silent"),
    ("drip", "drip; ok", "answers an octet a second"),
    ("flood-line", "flood line", "sends a line of 10 MB"),
    ("flood-lines", "flood lines", "sends lines of a reply without end"),
];

impl Table {
    fn at(&mut self, stage: &'static str) {
        *self = Table { rows: std::mem::take(&mut self.rows), stage, ..Table::default() };
    }

    /// `rules` are played one for each stage; those without a stage are at the table's own.
    fn row(&mut self, id: &str, does: &str, rules: &[&str], end: End) -> &mut Receiver {
        let own = rules.iter().map(|rule| match rule.split_once(": ") {
            Some((head, _)) if !head.contains(' ') || head.contains(" (") => (*rule).to_owned(),
            _ => format!("{}: {rule}", self.stage),
        });
        self.rows.push(Receiver {
            id: format!("{}-{id}", self.stage),
            stage: self.stage,
            does: does.to_owned(),
            keys: self.keys,
            is_verified: self.is_verified,
            script: self.before.iter().map(|rule| (*rule).to_owned()).chain(own).collect(),
            mail: self.mail.unwrap_or(Mail::Plain),
            over: self.over.unwrap_or(ProtocolScope::Both),
            end,
            some: None,
            lmtp: None,
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// A reply, after which the host waits for more, or closes. Behind its 421 it is silent, as it has said that it
    /// goes.
    fn reply(&mut self, id: &str, reply: &str, end: End, closed: End) {
        let silent = if reply.starts_with("421") { "; hang" } else { "" };
        self.row(id, &format!("`{reply}`"), &[&format!("say {reply}{silent}")], end);
        let id = format!("{id}-fin");
        self.row(&id, &format!("`{reply}`, closes"), &[&format!("say {reply}; close")], closed);
    }

    /// The same for `some@` alone; `end` of the others.
    fn reply_to_some(&mut self, id: &str, reply: &str, end: End, some: End, closed: (End, End)) {
        let to_some = format!("{} (<some@): say {reply}", self.stage);
        let does = format!("`{reply}` to one recipient of two");
        let silent = if reply.starts_with("421") { "; hang" } else { "" };
        self.row(&format!("some-{id}"), &does, &[&format!("{to_some}{silent}")], end).some = Some(some);
        let row =
            self.row(&format!("some-{id}-fin"), &format!("{does}, closes"), &[&format!("{to_some}; close")], closed.0);
        row.some = Some(closed.1);
    }

    fn faults(&mut self, end: End) {
        for (id, steps, does) in FAULTS {
            self.row(id, does, &[steps], end);
        }
    }
}

/// See the module's text.
pub fn receivers() -> Vec<Receiver> {
    let mut table = Table::default();
    opening(&mut table);
    starttls(&mut table);
    envelope(&mut table);
    data(&mut table);
    content(&mut table);
    closing(&mut table);
    lies(&mut table);
    out_of_step(&mut table);
    lmtp(&mut table);
    deal(&mut table);
    table.rows
}

fn opening(t: &mut Table) {
    t.at("connect");
    t.keys = "connect = 'refuse'";
    t.row("refused", "refuses the TCP connection", &[], Next);
    t.keys = "connect = 'never_accept'";
    t.row("silent", "never answers the SYN", &[], Next);
    t.keys = "connect = 'reset'";
    t.row("reset", "accepts and resets", &[], Next);

    t.at("greeting");
    t.reply("421", "421 4.3.2 busy", Next, Next);
    t.reply("450", "450 4.3.0 later", Next, Next);
    t.reply("554", "554 5.7.1 go away", Next, Next);
    t.reply("521", "521 5.3.2 no mail here", NextOrReturned, NextOrReturned);
    t.reply("354", "354 go on", Next, Next);
    t.reply("garbage", "hello", Next, Next);
    t.reply("250", "250 in place of 220", Taken, Next);
    t.row("mixed", "two lines with different codes", &[r"say 220-a\r\n554 b"], Next);
    t.row("nul", "NUL and escape sequences in the text", &[r"say 220 a\0b\x1b[31m"], Taken);
    t.row("bare-lf", "a line ended by LF alone", &[r"raw 220 hello\n"], Taken);
    t.faults(Next);

    t.at("ehlo");
    t.reply("421", "421 4.3.2 busy", Next, Next);
    t.reply("450", "450 4.3.0 later", Next, Next);
    t.reply("354", "354 go on", Next, Next);
    t.reply("garbage", "hello", Next, Next);
    // RFC 5321 3.2: HELO is tried. LMTP has none.
    t.row("550", "`550 5.5.1 what` (HELO is known)", &["say 550 5.5.1 what"], Taken).lmtp = Some(Next);
    t.row("550-fin", "`550 5.5.1 what`, closes", &["say 550 5.5.1 what; close"], Next);
    t.row("both-550", "`550` to EHLO and to HELO", &["say 550 5.5.1 what", "helo: say 550 5.5.1 what"], Next);
    t.row("mixed", "two lines with different codes", &[r"say 250-a\r\n550 b"], Next);
    t.faults(Next);
}

/// What TLS ends in, at a host that offers STARTTLS and answers it by 220, by the keys of the lab.
const TLS: [(&str, &str, &str); 13] = [
    ("inject", "tls = 'inject', no_chunking = true", "sends replies in clear behind its 220 (CVE-2021-38371)"),
    ("plain", "tls = 'plain', no_chunking = true", "answers the handshake by text"),
    ("octets", "tls = 'garbage', no_chunking = true", "answers the handshake by octets that are no TLS"),
    ("eof", "tls = 'eof', no_chunking = true", "closes in the handshake"),
    ("reset", "tls = 'reset', no_chunking = true", "resets in the handshake"),
    ("silent", "tls = 'silent', no_chunking = true", "is silent in the handshake"),
    ("version", "tls = 'old_version', no_chunking = true", "has old versions of TLS alone"),
    ("cipher", "tls = 'no_cipher', no_chunking = true", "has no cipher in common"),
    ("after", "tls = 'close_after', no_chunking = true", "closes behind the handshake"),
    ("self", "tls = 'self_signed'", "has a certificate signed by itself"),
    ("expired", "tls = 'expired'", "has a certificate that has expired"),
    ("early", "tls = 'not_yet_valid'", "has a certificate that is not valid yet"),
    ("name", "tls = 'wrong_name'", "has a certificate for another name"),
];

fn starttls(t: &mut Table) {
    for is_verified in [false, true] {
        // Where nothing is demanded mail goes in clear, in the same attempt; else the host is one that has failed.
        let end = if is_verified { Next } else { Taken };
        t.at(if is_verified { "starttls-verified" } else { "starttls" });
        (t.over, t.is_verified) = (Some(ProtocolScope::Smtp), is_verified);
        t.keys = "tls = 'good', no_chunking = true";
        for (id, reply) in [
            ("454", "454 4.7.0 TLS not available"),
            ("502", "502 5.5.1 not implemented"),
            ("250", "250 in place of 220"),
            ("354", "354 go on"),
            ("garbage", "hello"),
        ] {
            t.row(id, &format!("`{reply}`"), &[&format!("starttls: say {reply}")], end);
        }
        // Busy is busy, at whatever command.
        t.row("421", "`421 4.3.2 busy`, closes", &["starttls: say 421 4.3.2 busy; close"], Next);
        // Of a host that takes its time mail goes to another meanwhile.
        let late = if is_verified { Next } else { Again };
        // The session goes on in clear, and is lost there; the next one does not ask for TLS.
        t.row("454-fin", "`454 4.7.0 TLS not available`, closes", &["starttls: say 454 4.7.0 no; close"], late);
        for (id, steps, does) in FAULTS {
            let is_late = matches!(id, "half" | "hang" | "drip");
            t.row(id, does, &[&format!("starttls: {steps}")], if is_late { late } else { end });
        }
        for (kind, keys, does) in TLS {
            t.keys = keys;
            t.row(&format!("tls-{kind}"), does, &[], if kind == "silent" { late } else { end });
        }
    }
}

fn envelope(t: &mut Table) {
    // Without CHUNKING nothing of the content is out before the replies; with it all is, see BDAT.
    t.at("mail");
    t.keys = "no_chunking = true";
    t.reply("421", "421 4.3.2 closing", Next, Next);
    t.reply("451", "451 4.3.0 later", Next, Next);
    t.reply("452", "452 4.3.1 no room", Next, Next);
    t.reply("550", "550 5.7.1 not from you", Returned, Returned);
    t.reply("354", "354 go on", Next, Next);
    t.reply("garbage", "hello", Next, Next);
    t.row("mixed", "two lines with different codes", &[r"say 250-a\r\n550 b"], Next);
    t.faults(Next);

    t.at("rcpt");
    t.keys = "no_chunking = true";
    t.mail = Some(Mail::One);
    t.reply("421", "421 4.3.2 closing", Next, Next);
    t.reply("450", "450 4.7.1 greylisted", Waits, Waits);
    t.reply("452", "452 4.2.2 mailbox full", Waits, Waits);
    t.reply("550", "550 5.1.1 unknown", Returned, Returned);
    t.reply("354", "354 go on", Next, Next);
    t.reply("garbage", "hello", Next, Next);
    t.row("mixed", "two lines with different codes", &[r"say 250-a\r\n550 b"], Next);
    t.faults(Next);
    t.mail = None;
    t.reply_to_some("421", "421 4.3.2 closing", Next, Next, (Next, Next));
    t.reply_to_some("450", "450 4.7.1 greylisted", Taken, Waits, (Again, Waits));
    t.reply_to_some("452", "452 4.2.2 mailbox full", Taken, Waits, (Again, Waits));
    t.reply_to_some("550", "550 5.1.1 unknown", Taken, Returned, (Again, Returned));
    t.reply_to_some("garbage", "hello", Next, Next, (Next, Next));
}

fn data(t: &mut Table) {
    t.at("data");
    t.keys = "no_chunking = true";
    t.reply("421", "421 4.3.2 closing", Next, Next);
    t.reply("451", "451 4.3.0 later", Waits, Waits);
    t.reply("554", "554 5.7.1 no", Returned, Returned);
    t.reply("250", "250 in place of 354", Next, Next);
    t.reply("garbage", "hello", Next, Next);
    t.row("mixed", "two lines with different codes", &[r"say 354-a\r\n250 b"], Next);
    t.faults(Next);

    // The content is on its way with the command: what is lost here is lost behind the end of the data.
    t.at("bdat");
    t.mail = Some(Mail::One);
    t.reply("421", "421 4.3.2 closing", Next, Next);
    t.reply("451", "451 4.3.0 later", Waits, Waits);
    t.reply("554", "554 5.7.1 no", Returned, Returned);
    t.reply("354", "354 go on", Unsure, Unsure);
    t.reply("garbage", "hello", Unsure, Unsure);
    t.row("mixed", "two lines with different codes", &[r"say 250-a\r\n550 b"], Unsure);
    // Offered and not known: sent again with DATA.
    for (id, reply) in
        [("500", "500 5.5.1 unknown command"), ("502", "502 5.5.1 not implemented"), ("503", "503 5.5.1 what")]
    {
        t.reply(id, reply, Taken, Taken);
    }
    t.row("spill", "`500`, and takes the content for commands", &["spill; say 500 5.5.1 unknown command"], Taken);
    t.faults(Unsure);
    if let Some(drip) = t.rows.iter_mut().find(|row| row.id == "bdat-drip") {
        drip.end = UnsureKept;
    }
    t.row("mail-fin", "closes at MAIL, behind which BDAT and the content came", &["mail: close"], Unsure);
    t.row("rcpt-hang", "is silent at RCPT, behind which they came", &["rcpt: hang"], Unsure);
}

fn content(t: &mut Table) {
    t.at("body");
    t.keys = "no_chunking = true, body_bytes = 10";
    t.mail = Some(Mail::Large);
    let replies =
        [("421", "421 4.3.2 closing", Next), ("451", "451 4.3.0 later", Waits), ("554", "554 5.7.1 no", Returned)];
    for (id, reply, end) in replies {
        t.row(id, &format!("`{reply}`, reads on"), &[&format!("say {reply}"), "dot: raw"], end);
        t.row(&format!("{id}-fin"), &format!("`{reply}`, closes"), &[&format!("say {reply}; close")], end);
    }
    t.row("hang", "reads on and is silent", &["hang"], Unsure);

    // LMTP's replies to several recipients are further down.
    t.at("dot");
    t.mail = Some(Mail::One);
    t.reply("421", "421 4.3.2 closing", Next, Next);
    t.reply("451", "451 4.3.0 later", Waits, Waits);
    t.reply("554", "554 5.7.1 spam", Returned, Returned);
    t.reply("354", "354 go on", Unsure, Unsure);
    t.reply("garbage", "hello", Unsure, Unsure);
    t.row("mixed", "two lines with different codes", &[r"say 250-a\r\n550 b"], Unsure);
    for (id, steps, does) in FAULTS {
        let end = if id == "drip" { UnsureKept } else { Unsure };
        t.row(id, does, &[steps], end);
    }
    t.row("kept-fin", "keeps the message and closes without a reply", &["mute; close"], UnsureKept);
    t.row("kept-rst", "keeps the message and resets", &["mute; reset"], UnsureKept);
    t.row("kept-hang", "keeps the message and is silent", &["mute; hang"], UnsureKept);
    t.row("250-fin", "takes the message and closes", &["ok; close"], Taken);
    t.row("250-garbage", "takes the message and talks on", &["ok; say hello"], Taken);
}

fn closing(t: &mut Table) {
    t.at("rset");
    t.keys = "no_chunking = true";
    t.before = &["rcpt (<some@): say 550 5.1.1 unknown"];
    t.mail = Some(Mail::FirstRefused);
    let codes = [
        ("421", "421 4.3.2 closing"),
        ("451", "451 4.3.0 later"),
        ("554", "554 5.7.1 no"),
        ("354", "354 go on"),
        ("garbage", "hello"),
    ];
    for (id, reply) in codes {
        t.reply(id, reply, Again, Again);
    }
    t.faults(Again);
    // Its first octet a second would be that of the replies before.
    t.rows.retain(|row| row.id != "rset-drip");
    for row in t.rows.iter_mut().filter(|row| row.stage == "rset") {
        row.some = Some(Returned);
    }

    // Nothing is at stake any more.
    t.at("quit");
    for (id, reply) in codes {
        t.reply(id, reply, Taken, Taken);
    }
    t.faults(Taken);
}

fn lies(t: &mut Table) {
    t.at("lie");
    t.row("size-0", "offers SIZE 0", &[r"ehlo: mute; say 250-x\r\n250-PIPELINING\r\n250 SIZE 0"], Taken);
    // No host means that: it is not believed.
    t.row("size-10", "offers SIZE 10", &[r"ehlo: mute; say 250-x\r\n250-PIPELINING\r\n250 SIZE 10"], Taken);
    let limits = r"ehlo: mute; say 250-x\r\n250-PIPELINING\r\n250 LIMITS MAILMAX=0 RCPTMAX=0 RCPTDOMAINMAX=0";
    t.row("limits-0", "offers LIMITS of 0", &[limits], Taken);
    let limits = r"ehlo: mute; say 250-x\r\n250-PIPELINING\r\n250 LIMITS MAILMAX=x RCPTMAX=-1 =";
    t.row("limits-garbage", "offers LIMITS that are no numbers", &[limits], Taken);
    t.row(
        "pipelining",
        "offers PIPELINING and drops what follows MAIL",
        &["rcpt: raw", "bdat: raw", "data: raw"],
        Unsure,
    );
    t.row("status", "`450 5.1.1` at RCPT: the code decides", &["rcpt: say 450 5.1.1 unknown"], Waits);

    t.row(
        "size-refused",
        "offers SIZE and refuses its parameter",
        &["mail (SIZE=): say 555 5.5.4 SIZE unknown"],
        Taken,
    );

    t.at("lie");
    t.mail = Some(Mail::EightBit);
    let refused = "mail (BODY=): say 555 5.5.4 BODY unknown";
    t.row("8bitmime-refused", "offers 8BITMIME and refuses BODY, for 8-bit mail", &[refused], Taken);
    t.keys = "no_8bitmime = true";
    t.row("8bitmime-missing", "no 8BITMIME, for 8-bit mail", &[], Taken);

    t.at("lie");
    t.mail = Some(Mail::Utf8);
    t.keys = "no_smtputf8 = true";
    t.row("smtputf8-missing", "no SMTPUTF8, for such an address", &[], Returned);
    t.keys = "";
    let refused = "mail (SMTPUTF8): say 555 5.6.7 SMTPUTF8 not here";
    t.row("smtputf8-withdrawn", "offers SMTPUTF8 and refuses it", &[refused], Returned);

    t.at("lie");
    t.mail = Some(Mail::Dsn);
    let refused = "mail (RET=): say 555 5.5.4 RET unknown";
    t.row("dsn-refused-mail", "offers DSN and refuses RET and ENVID", &[refused], Taken);
    let refused = "rcpt (NOTIFY=): say 555 5.5.4 NOTIFY unknown";
    t.row("dsn-refused-rcpt", "offers DSN and refuses NOTIFY", &[refused], Taken);
    t.keys = "no_dsn = true";
    t.row("dsn-missing", "no DSN, for mail that asks for it", &[], Taken);
}

fn out_of_step(t: &mut Table) {
    t.at("step");
    t.row("greeted-twice", "greets twice", &["greeting: ok; say 220 again"], Next);
    t.row("early", "replies to commands before they come", &["greeting: ok; say 250 a; say 250 b; say 250 c"], Next);
    t.row("ehlo-missing", "no reply to EHLO", &["ehlo: mute"], Next);
    t.mail = Some(Mail::One);
    t.row("mail-missing", "no reply to MAIL", &["mail: mute"], UnsureKept);
    t.row("rcpt-missing", "no reply to RCPT", &["rcpt: mute"], UnsureKept);
    t.mail = None;
    t.keys = "no_chunking = true";
    t.row("mail-missing-data", "no reply to MAIL, without CHUNKING", &["mail: mute"], Next);
    t.row("data-missing", "no reply to DATA", &["data: mute"], Next);
    t.row("mail-twice", "two replies to MAIL", &["mail: ok; say 250 2.1.0 again"], Next);
    t.row("rcpt-twice", "two replies to each RCPT", &["rcpt: ok; say 250 2.1.5 again"], Next);
}

fn lmtp(t: &mut Table) {
    t.at("lmtp");
    t.over = Some(ProtocolScope::Lmtp);
    let some = |t: &mut Table, id: &str, does: &str, steps: &str, ends: (End, End)| {
        t.row(id, does, &[&format!("dot (some@): {steps}")], ends.0).some = Some(ends.1);
    };
    some(t, "some-451", "`451` behind the data for one recipient of two", "say 451 4.3.0 later", (Taken, Waits));
    some(t, "some-452", "`452 4.2.2` for one of two", "say 452 4.2.2 full", (Taken, Waits));
    some(t, "some-550", "`550` for one of two", "say 550 5.1.1 unknown", (Taken, Returned));
    some(t, "one-more", "a reply too many", "ok; say 250 2.1.5 and more", (Taken, Taken));
}

/// Each connection delivers to one recipient, and so gives back what its end has cost.
fn deal(t: &mut Table) {
    for (over, id, keys) in [
        (ProtocolScope::Smtp, "", "recipients_per_transaction_max = 1"),
        (ProtocolScope::Smtp, "chunkless-", "recipients_per_transaction_max = 1, no_chunking = true"),
        (ProtocolScope::Lmtp, "lmtp-", ""),
        (ProtocolScope::Lmtp, "lmtp-chunkless-", "no_chunking = true"),
    ] {
        t.at("deal");
        (t.mail, t.over, t.keys) = (Some(Mail::Many), Some(over), keys);
        let without = if id.contains("chunkless") { " without CHUNKING" } else { "" };
        // Over LMTP the content goes to all of them each time. A lost connection is suspect.
        let of_421 = if over == ProtocolScope::Lmtp { Dealt } else { Taken };
        for (end_id, does, steps, end) in [
            ("421", "`421`, closes", "say 421 4.3.2 closing; close", of_421),
            ("fin", "closes", "close", Dealt),
            ("rst", "resets", "reset", Dealt),
        ] {
            let does = match over {
                ProtocolScope::Lmtp => format!("delivers to the first recipient{without}, then {does}"),
                _ => format!("takes one recipient in a transaction{without} and delivers, then {does}"),
            };
            t.row(&format!("{id}{end_id}"), &does, &[&format!("dot: ok; {steps}")], end);
        }
    }
}
