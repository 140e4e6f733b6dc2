//! Requests to a running server over its control socket: `mailq`, `hoststat`, `-q`, `-bv`. The group of the folder is
//! given up first. Users who may not use the socket get the number of messages that the server publishes in the
//! folder.
//!
//! The queue is listed in Postfix's format, which scripts and monitors parse. Replies:
//! docs/operate/control-protocol.md.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use stentor_mail::address::Address;
use stentor_mail::dsn::format_date;
use stentor_sendmail::addresses::{self, qualified};
use stentor_sendmail::exit::{EX_NOPERM, EX_NOUSER, EX_TEMPFAIL, EX_UNAVAILABLE, ExitError};
use stentor_sendmail::options::{Call, Mode, Only};

use super::folder::Published;
use super::message::shown;
use super::user::CallingUser;

const WAIT: Duration = Duration::from_secs(30);
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const ROWS_MAX: u32 = 1_000;
const KIB: u64 = 1024;

/// Sends the request and prints the answer.
pub fn ask(call: &Call, published: &Published, caller: &CallingUser) -> Result<(), ExitError> {
    let mut out = io::stdout().lock();
    let asked = match call.mode {
        Mode::Queue => list(published, &mut out),
        Mode::Count => count(published, &mut out),
        Mode::Hosts => hosts(published, &mut out),
        Mode::Flush => flush(call.only.as_ref(), published),
        _ => verify(call, published, caller, &mut out),
    };
    match (asked, published.waiting) {
        (Err(failure), Some((messages, at))) if failure.code == EX_NOPERM && is_list(call.mode) => {
            let plural = if messages == 1 { "message" } else { "messages" };
            print(&mut out, &format!("{messages} {plural} in the queue ({}); root may list them\n", date(at)))
        }
        (Err(failure), _) if failure.code == EX_UNAVAILABLE && is_list(call.mode) => {
            Err(with_folder(failure, published))
        }
        (asked, _) => asked,
    }
}

/// Adds the number of submissions that a server will accept when it starts, if the caller may know it.
fn with_folder(failure: ExitError, published: &Published) -> ExitError {
    let text = match published.submissions().filter(|waiting| *waiting > 0) {
        Some(waiting) => format!("{}; {waiting} in the submission folder", failure.text),
        None => failure.text,
    };
    ExitError { text, ..failure }
}

fn is_list(mode: Mode) -> bool {
    matches!(mode, Mode::Queue | Mode::Count)
}

fn print(out: &mut impl Write, text: &str) -> Result<(), ExitError> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| ExitError::later(format!("standard output: {error}"))),
    }
}

/// Sends a request; `line` is called with the data and kind of each line of the reply.
fn request(
    published: &Published,
    request: &Value,
    line: &mut dyn FnMut(&str, &Value) -> Result<(), ExitError>,
) -> Result<(), ExitError> {
    let down =
        |why: &dyn std::fmt::Display| ExitError::new(EX_UNAVAILABLE, format!("the server does not answer: {why}"));
    let path = published.control.as_ref().ok_or_else(|| down(&"no server has used this folder yet"))?;
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ExitError::new(EX_NOPERM, format!("{path}: only root and the server's user have access"))
        }
        _ => down(&format!("{path}: {error}")),
    })?;
    let timed = stream.set_read_timeout(Some(WAIT)).and_then(|()| stream.set_write_timeout(Some(WAIT)));
    timed.and_then(|()| (&stream).write_all(format!("{request}\n").as_bytes())).map_err(|error| down(&error))?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut text = String::new();
        stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut text).map_err(|error| down(&error))?;
        let reply: Value = serde_json::from_str(&text).map_err(|_| down(&"malformed reply"))?;
        let (kind, data) = (reply["reply"].as_str().unwrap_or_default(), &reply["data"]);
        if kind == "error" {
            let is_forbidden = data["code"] == "forbidden";
            let code = if is_forbidden { EX_NOPERM } else { EX_UNAVAILABLE };
            return Err(ExitError::new(code, shown(data["text"].as_str().unwrap_or("the request was refused"))));
        }
        line(kind, data)?;
        if reply["more"] != true {
            return Ok(());
        }
    }
}

/// Formats a time as `Mon Nov 23 06:35:02`, in UTC.
fn date(ms: u64) -> String {
    let text = format_date(ms);
    let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    match words[..] {
        [day, number, month, _, time, ..] => format!("{day} {month} {number:>2} {time}"),
        _ => text,
    }
}

fn list(published: &Published, out: &mut impl Write) -> Result<(), ExitError> {
    let (mut messages, mut octets, mut last) = (0_u64, 0_u64, String::new());
    request(published, &json!({"v": 1, "verb": "export", "all": true}), &mut |kind, data| {
        if kind != "envelope" {
            return Ok(());
        }
        // Writing to a String cannot fail.
        let mut text = String::new();
        let id = data["id"].as_str().unwrap_or_default();
        if id != last {
            if messages == 0 {
                text.push_str("-Queue ID-  --Size-- ----Arrival Time---- -Sender/Recipient-------\n");
            }
            id.clone_into(&mut last);
            messages += 1;
            let size = data["size"].as_u64().unwrap_or_default();
            octets += size;
            text.push_str(&entry(data, id, size));
        }
        for recipient in data["recipients"].as_array().into_iter().flatten() {
            let reply = recipient["last_reply"].as_str().filter(|reply| !reply.is_empty());
            if let Some(why) = reply.or_else(|| recipient["words"].as_str().filter(|words| !words.is_empty())) {
                let _ = writeln!(text, "{:>76}", format!("({})", shown(why)));
            }
            let _ = writeln!(text, "{:41}{}", "", shown(recipient["address"].as_str().unwrap_or_default()));
        }
        if data["continued"] != true || id != last {
            text.push('\n');
        }
        print(out, &text)
    })?;
    let in_folder = in_folder(published)?;
    if messages == 0 {
        return print(out, &format!("Mail queue is empty\n{in_folder}"));
    }
    let plural = if messages == 1 { "Request" } else { "Requests" };
    print(out, &format!("-- {} Kbytes in {messages} {plural}.\n", octets.div_ceil(KIB)))?;
    print(out, &in_folder)
}

/// A line about submissions that the server has not collected yet; empty if there are none.
fn in_folder(published: &Published) -> Result<String, ExitError> {
    let mut text = String::new();
    request(published, &json!({"v": 1, "verb": "status"}), &mut |_, data| {
        let (waiting, deferred) = (data["submissions"].as_u64(), data["submissions_deferred"].as_u64());
        if let Some(waiting) = waiting.filter(|waiting| *waiting > 0) {
            let since = data["submissions_oldest"].as_u64().map(|at| format!(" since {}", date(at)));
            let (since, deferred) = (since.unwrap_or_default(), deferred.unwrap_or_default());
            text = format!("-- {waiting} in the submission folder{since}, {deferred} of them refused for now\n");
        }
        Ok(())
    })?;
    Ok(text)
}

/// The first line of a message: its ID with Postfix's marker, size, arrival and sender.
fn entry(data: &Value, id: &str, size: u64) -> String {
    let recipients = data["recipients"].as_array();
    let is_active = recipients.into_iter().flatten().any(|recipient| recipient["state"] == "in_flight");
    let sign = match (data["held"] == true, is_active) {
        (true, _) => "!",
        (false, true) => "*",
        (false, false) => " ",
    };
    let sender = data["sender"].as_str().filter(|sender| !sender.is_empty()).unwrap_or("MAILER-DAEMON");
    let at = date(data["accepted"].as_u64().unwrap_or_default());
    format!("{id}{sign} {size:>7} {at:>19}  {}\n", shown(sender))
}

fn count(published: &Published, out: &mut impl Write) -> Result<(), ExitError> {
    let mut messages = 0;
    request(published, &json!({"v": 1, "verb": "queue", "sites_max": 1}), &mut |kind, data| {
        if kind == "queue" {
            messages = data["messages"].as_u64().unwrap_or_default();
        }
        Ok(())
    })?;
    print(out, &format!("{messages}\n"))
}

fn hosts(published: &Published, out: &mut impl Write) -> Result<(), ExitError> {
    print(out, "-------------- Hostname --------------- Waiting ---------Results---------\n")?;
    request(published, &json!({"v": 1, "verb": "hosts", "rows_max": ROWS_MAX}), &mut |kind, data| {
        if kind != "host_rows" {
            return Ok(());
        }
        let mut text = String::new();
        for row in data.as_array().into_iter().flatten() {
            let (site, reply) = (&row["site"], &row["last_reply"]);
            let waiting = row["waiting"].as_u64().unwrap_or_default();
            let shown = |value: &Value| shown(value.as_str().unwrap_or_default());
            let _ = writeln!(text, "{:39} {waiting:>7} {}", shown(site), shown(reply));
        }
        print(out, &text)
    })
}

fn flush(only: Option<&Only>, published: &Published) -> Result<(), ExitError> {
    let asked = match only {
        Some(Only::Site(site)) => json!({"v": 1, "verb": "flush", "site": site}),
        Some(Only::Id(id)) => json!({"v": 1, "verb": "requeue", "id": id}),
        Some(Only::Sender(sender)) => json!({"v": 1, "verb": "requeue", "sender": sender}),
        Some(Only::Recipient(recipient)) => json!({"v": 1, "verb": "requeue", "recipient": recipient}),
        None => json!({"v": 1, "verb": "flush"}),
    };
    request(published, &asked, &mut |_, _| Ok(()))
}

/// Prints the final recipients for each address in sendmail's format; the server determines them.
fn verify(call: &Call, published: &Published, caller: &CallingUser, out: &mut impl Write) -> Result<(), ExitError> {
    let own = || caller.user.address(&published.origin);
    let from = call.sender.as_deref().map_or_else(own, |from| qualified(from, &published.origin));
    let (mut bad, mut later) = (0, 0);
    for found in call.recipients.iter().flat_map(|list| addresses::parse(list.as_bytes())) {
        let text = qualified(&found.text, &published.origin);
        let address = match Address::parse(text.as_bytes(), true) {
            Ok(address) => address,
            Err(why) => {
                bad += 1;
                print(out, &format!("{}... {why}\n", shown(&text)))?;
                continue;
            }
        };
        let asked = json!({"v": 1, "verb": "verify", "address": address.as_str(), "from": from});
        let mut text = String::new();
        let answered = request(published, &asked, &mut |_, data| {
            for row in data["rows"].as_array().into_iter().flatten() {
                if row["refused"].is_string() {
                    *(if row["is_temporary"] == true { &mut later } else { &mut bad }) += 1;
                }
                text.push_str(&verified(row));
            }
            if let Some(more) = data["more"].as_u64().filter(|more| *more > 0) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "... and {more} more");
            }
            Ok(())
        });
        // The caller may retry.
        answered.map_err(|failure| match failure.code {
            EX_UNAVAILABLE => ExitError { code: EX_TEMPFAIL, ..failure },
            _ => failure,
        })?;
        print(out, &text)?;
    }
    match (bad, later) {
        (0, 0) => Ok(()),
        (0, _) => Err(ExitError::later(format!("{later} of them could not be verified; try again later"))),
        _ => Err(ExitError::new(EX_NOUSER, format!("{bad} of them are undeliverable"))),
    }
}

/// One final recipient.
fn verified(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    let address = shown(text("address"));
    if let Some(why) = row["refused"].as_str() {
        return format!("{address}... {}\n", shown(why));
    }
    let host = if text("host").is_empty() { String::new() } else { format!(", host {}", shown(text("host"))) };
    format!("{address}... deliverable: mailer {}{host}, user {}\n", shown(text("mailer")), shown(text("user")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_of_commands_stay_and_controls_are_escaped() {
        assert_eq!(shown("|\"IFS=' '\\x"), "|\"IFS=' '\\x");
        assert_eq!(shown("a\u{1b}[0m\u{202e}b"), "a\\u{1b}[0m\\u{202e}b");
    }

    #[test]
    fn a_message_is_listed_as_postfix_lists_it() {
        let data = json!({"sender": "", "accepted": 1_795_415_702_000_u64, "held": true, "recipients": []});
        assert_eq!(entry(&data, "0ABC", 77), "0ABC!      77 Mon Nov 23 06:35:02  MAILER-DAEMON\n");
    }
}
