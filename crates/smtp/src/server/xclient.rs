//! Parses XCLIENT, by which a configured proxy names its client (Postfix's `XCLIENT_README`).
//!
//! Promise: pure; an invalid line has no effect. Values are xtext without control characters.

use std::net::{IpAddr, Ipv4Addr};

use stentor_mail::reply::Reply;

use super::ehlo::is_helo_name;
use super::params::xtext_decode;
use super::replies;

const UNAVAILABLE: &str = "[UNAVAILABLE]";
const TEMPORARILY_UNAVAILABLE: &str = "[TEMPUNAVAIL]";
const LOGIN_BYTES_MAX: usize = 255;

/// A proxy's facts about its client. `None`: not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xclient {
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub name: Option<XclientName>,
    /// Empty: the client has not sent HELO.
    pub helo: Option<Box<str>>,
    /// Whether the client used EHLO rather than HELO.
    pub is_esmtp: Option<bool>,
    /// User logged in at the proxy; empty: none.
    pub login: Option<Box<str>>,
}

/// The client's name, verified by the proxy in DNS both ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XclientName {
    /// In lower case.
    Is(Box<str>),
    /// The client has no name.
    None,
    /// DNS did not answer.
    Unknown,
}

impl Xclient {
    /// Parses the text after `XCLIENT`.
    pub(super) fn parse(argument: &[u8]) -> Result<Xclient, Reply> {
        let text = std::str::from_utf8(argument).map_err(|_| replies::XCLIENT_SYNTAX)?;
        let mut said = Xclient::default();
        for attribute in text.split_ascii_whitespace() {
            said.take(attribute).ok_or(replies::XCLIENT_SYNTAX)?;
        }
        if text.trim().is_empty() { Err(replies::XCLIENT_SYNTAX) } else { Ok(said) }
    }

    fn take(&mut self, attribute: &str) -> Option<()> {
        let (name, value) = attribute.split_once('=')?;
        let decoded = xtext_decode(value)?;
        let known = || (decoded != UNAVAILABLE && decoded != TEMPORARILY_UNAVAILABLE).then_some(decoded.as_str());
        match name.to_ascii_uppercase().as_str() {
            // As for PROXY UNKNOWN: this may be any client, so it gets none of the privileges of the proxy's own
            // address.
            "ADDR" if known().is_none() => self.address = Some(Ipv4Addr::UNSPECIFIED.into()),
            "ADDR" => self.address = Some(address(&decoded)?),
            "PORT" => self.port = known().map(str::parse).transpose().ok()?,
            "NAME" => {
                self.name = Some(match known() {
                    Some(name) if is_helo_name(name.as_bytes()) => XclientName::Is(name.to_ascii_lowercase().into()),
                    Some(_) => return None,
                    None if decoded == UNAVAILABLE => XclientName::None,
                    None => XclientName::Unknown,
                });
            }
            "HELO" => {
                let helo = known().unwrap_or_default();
                self.helo = Some((helo.is_empty() || is_helo_name(helo.as_bytes())).then(|| helo.into())?);
            }
            "PROTO" => {
                self.is_esmtp = Some(match decoded.to_ascii_uppercase().as_str() {
                    "ESMTP" => true,
                    "SMTP" => false,
                    _ => return None,
                });
            }
            "LOGIN" => {
                let login = known().unwrap_or_default();
                let is_word = login.len() <= LOGIN_BYTES_MAX && login.bytes().all(|byte| byte.is_ascii_graphic());
                self.login = Some(is_word.then(|| login.into())?);
            }
            // Accepted but not used here.
            "REVERSE_NAME" | "DESTADDR" | "DESTPORT" => {}
            _ => return None,
        }
        Some(())
    }
}

/// Parses `192.0.2.1` or `IPV6:2001:db8::1`; like Postfix, also an IPv6 address without its prefix.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.get(..5).filter(|prefix| prefix.eq_ignore_ascii_case("IPV6:")).map_or(text, |_| &text[5..]);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<Xclient> {
        Xclient::parse(text.as_bytes()).ok()
    }

    #[test]
    fn attributes() {
        let all =
            parse("ADDR=IPV6:2001:db8::1 port=77 Name=MX.example.org HELO=mx PROTO=esmtp LOGIN=ann+40example.org");
        let expected = Xclient {
            address: Some("2001:db8::1".parse().unwrap()),
            port: Some(77),
            name: Some(XclientName::Is("mx.example.org".into())),
            helo: Some("mx".into()),
            is_esmtp: Some(true),
            login: Some("ann@example.org".into()),
        };
        assert_eq!(all, Some(expected));
        let none = parse("NAME=[UNAVAILABLE] HELO=[UNAVAILABLE] LOGIN=[UNAVAILABLE] PORT=[UNAVAILABLE]").unwrap();
        assert_eq!((none.name, none.port), (Some(XclientName::None), None));
        assert_eq!((none.helo, none.login), (Some("".into()), Some("".into())));
        assert_eq!(parse("NAME=[TEMPUNAVAIL]").unwrap().name, Some(XclientName::Unknown));
        assert_eq!(parse("DESTADDR=192.0.2.9 DESTPORT=25 REVERSE_NAME=x"), Some(Xclient::default()));
        for unknown in ["ADDR=[UNAVAILABLE]", "ADDR=[TEMPUNAVAIL]"] {
            assert_eq!(parse(unknown).unwrap().address, "0.0.0.0".parse().ok(), "{unknown}");
        }
        assert_eq!(parse("ADDR=2001:db8::2").unwrap().address, "2001:db8::2".parse().ok());
    }

    #[test]
    fn what_is_refused() {
        for wrong in [
            "",
            " ",
            "ADDR",
            "ADDR=",
            "ADDR=192.0.2.256",
            "PORT=65536",
            "PROTO=LMTP",
            "NAME=a+0Ab",
            "NAME=a b",
            "HELO=a;b",
            "LOGIN=a+ZZ",
            "LOGIN=a+20b",
            "SOURCE=LOCAL",
            "ADDR=192.0.2.1 X=1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse(&format!("LOGIN={}", "a".repeat(256))), None);
    }

    proptest! {
        #[test]
        fn never_panics_nor_keeps_controls(
            line in "((ADDR|NAME|HELO|LOGIN|PORT|PROTO)=([!-~]|\\+[0-9A-F]{2}|[\u{0}-\u{7f}\u{e9}]){0,12} ?){0,3}"
        ) {
            if let Ok(said) = Xclient::parse(line.as_bytes()) {
                let shown = format!("{:?}{:?}", said.helo, said.login);
                prop_assert!(!shown.contains("\\u") && !shown.contains("\\n") && !shown.contains("\\r"));
            }
        }
    }
}
