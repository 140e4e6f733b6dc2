//! The Received header field that we add (RFC 5321 section 4.4).

use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use crate::Ms;
use crate::dsn::format_date;

/// Octets of a HELO argument that are copied to the header.
const HELO_BYTES_MAX: usize = 255;
/// Characters of a user's name: with escapes and four octets each a line stays below 998 octets (RFC 5322 section
/// 2.1.1).
const USER_CHARS_MAX: usize = 180;

pub struct Trace<'a> {
    pub helo: &'a str,
    pub client: IpAddr,
    /// Whether the field may reveal where the message came from.
    pub names_client: bool,
    pub hostname: &'a str,
    pub protocol: &'static str,
    /// TLS version and cipher, if the session uses TLS.
    pub tls: Option<(&'a str, &'a str)>,
    /// The user logged in, if that is to be included, in Postfix's form.
    pub user: Option<&'a str>,
    pub id: &'a dyn Display,
    pub now: Ms,
}

/// Returns the `with` protocol of a message (RFC 3848; RFC 6531 section 4.3): S for TLS, A for a login. Neither has a
/// name for a client that uses HELO.
#[expect(clippy::fn_params_excessive_bools, reason = "each is a letter of the word")]
pub const fn protocol(smtputf8: bool, is_esmtp: bool, is_secured: bool, is_authenticated: bool) -> &'static str {
    match (smtputf8, is_secured, is_authenticated) {
        (false, ..) if !is_esmtp => "SMTP",
        (false, false, false) => "ESMTP",
        (false, true, false) => "ESMTPS",
        (false, false, true) => "ESMTPA",
        (false, true, true) => "ESMTPSA",
        (true, false, false) => "UTF8SMTP",
        (true, true, false) => "UTF8SMTPS",
        (true, false, true) => "UTF8SMTPA",
        (true, true, true) => "UTF8SMTPSA",
    }
}

/// Appends the field, folded, ending in CRLF.
pub fn received(trace: &Trace<'_>, out: &mut Vec<u8>) {
    use std::io::Write;
    out.extend_from_slice(b"Received: ");
    if trace.names_client {
        push_client(trace, out);
    }
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        "by {} with {}{}{} id {};\r\n\t{}\r\n",
        trace.hostname,
        trace.protocol,
        Comment(trace.tls),
        User(trace.user.filter(|_| !trace.names_client)),
        trace.id,
        format_date(trace.now)
    );
}

/// Writes where the message came from, up to the fold before `by`.
fn push_client(trace: &Trace<'_>, out: &mut Vec<u8>) {
    use std::io::Write;
    out.extend_from_slice(b"from ");
    // A client's name for itself is data: only characters of a domain or an address literal are copied.
    let is_safe = |c: &u8| c.is_ascii_alphanumeric() || b".-:[]_".contains(c);
    let from = out.len();
    out.extend(trace.helo.bytes().filter(is_safe).take(HELO_BYTES_MAX));
    if out.len() == from {
        out.extend_from_slice(b"unknown");
    }
    let tag = if trace.client.is_ipv6() { "IPv6:" } else { "" };
    // Writing to a Vec cannot fail.
    let _ = write!(out, " ([{tag}{}]){}\r\n\t", trace.client, User(trace.user));
}

/// A comment; characters of a name that would end it or the field are escaped.
struct User<'a>(Option<&'a str>);

impl Display for User<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(user) = self.0 else { return Ok(()) };
        out.write_str("\r\n\t(Authenticated sender: ")?;
        for c in user.chars().filter(|c| !c.is_control()).take(USER_CHARS_MAX) {
            out.write_str(if matches!(c, '(' | ')' | '\\') { "\\" } else { "" })?;
            out.write_char(c)?;
        }
        out.write_char(')')
    }
}

/// `TLSv1.3` and its cipher as a comment, in the form of RFC 8314 section 4.3 and other servers.
struct Comment<'a>(Option<(&'a str, &'a str)>);

impl Display for Comment<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some((version, cipher)) => write!(out, "\r\n\t(TLS{} {cipher})", version.trim_start_matches("TLSv")),
            None => Ok(()),
        }
    }
}

/// Appends the field for a message that a local user submitted.
pub fn received_local(hostname: &str, uid: u32, id: &dyn Display, now: Ms, out: &mut Vec<u8>) {
    let date = format_date(now);
    let field = format!("Received: by {hostname} (Stentor, from userid {uid})\r\n\tid {id};\r\n\t{date}\r\n");
    out.extend_from_slice(field.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_user_is_named_by_number() {
        let mut out = Vec::new();
        received_local("mx.example.org", 1000, &"000000000001", 0, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "Received: by mx.example.org (Stentor, from userid 1000)\r\n\tid 000000000001;\r\n\tThu, 1 Jan 1970 00:00:00 +0000\r\n"
        );
    }

    #[test]
    fn what_the_session_was_is_said() {
        let mut out = Vec::new();
        let trace = Trace {
            helo: "c.example",
            client: "2001:db8::1".parse().unwrap(),
            names_client: true,
            hostname: "mx.example.org",
            protocol: protocol(false, true, true, true),
            tls: Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
            user: None,
            id: &"000000000001",
            now: 0,
        };
        received(&trace, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Received: from c.example ([IPv6:2001:db8::1])\r\n\tby mx.example.org with ESMTPSA\r\n\t(TLS1.3 \
             TLS_AES_256_GCM_SHA384) id 000000000001;\r\n\tThu, 1 Jan 1970 00:00:00 +0000\r\n"
        );
        let mut out = Vec::new();
        received(&Trace { names_client: false, user: Some("ann"), ..trace }, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Received: by mx.example.org with ESMTPSA\r\n\t(TLS1.3 TLS_AES_256_GCM_SHA384)\r\n\t(Authenticated sender: ann) id \
             000000000001;\r\n\tThu, 1 Jan 1970 00:00:00 +0000\r\n",
            "neither name nor address of the client"
        );
        assert_eq!(protocol(true, true, true, false), "UTF8SMTPS");
        assert_eq!(protocol(false, true, false, true), "ESMTPA");
        assert_eq!(protocol(false, false, true, true), "SMTP");
    }

    #[test]
    fn a_hostile_helo_cannot_inject() {
        let mut out = Vec::new();
        let trace = Trace {
            helo: "evil) by me;\r\nBcc: x@example.org",
            client: "192.0.2.1".parse().unwrap(),
            names_client: true,
            hostname: "lists.example.org",
            protocol: "ESMTP",
            tls: None,
            user: Some("evil) by me;\r\nBcc: x@\\example.org"),
            id: &"000000000001",
            now: 0,
        };
        received(&trace, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "Received: from evilbymeBcc:xexample.org ([192.0.2.1])\r\n\t(Authenticated sender: evil\\) by me;Bcc: \
             x@\\\\example.org)\r\n\tby lists.example.org with ESMTP id \
             000000000001;\r\n\tThu, 1 Jan 1970 00:00:00 +0000\r\n"
        );
    }
}
