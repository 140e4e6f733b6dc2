//! Parameters of MAIL and RCPT: SIZE (RFC 1870), BODY (RFC 6152), SMTPUTF8 (RFC 6531), RET, ENVID, NOTIFY and ORCPT
//! (RFC 3461 section 4), AUTH (RFC 4954 section 5), REQUIRETLS (RFC 8689), and Postfix's XVERP.
//!
//! Promise: accepted values can be sent on unchanged: no space, no control character, and non-ASCII only in ORCPT of an
//! SMTPUTF8 transaction (RFC 6533 section 3). Unknown parameters are refused, never ignored.

use stentor_mail::dsn::Ret;
use stentor_mail::reply::Reply;

use super::replies;

/// Longest ENVID in octets, encoded (RFC 3461 section 4.4).
const ENVID_BYTES_MAX: usize = 100;
/// Longest ORCPT in octets, encoded (RFC 3461 section 4.2).
const ORCPT_BYTES_MAX: usize = 500;

/// BODY of MAIL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Body {
    /// Declared or by default; the body may still hold 8-bit data, see `HeaderFacts::eight_bit`.
    #[default]
    SevenBit,
    EightBitMime,
}

/// NOTIFY of RCPT, as a set of its keywords; NEVER excludes the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notify(u8);

impl Notify {
    pub const NEVER: Self = Self(1);
    pub const SUCCESS: Self = Self(2);
    pub const FAILURE: Self = Self(4);
    pub const DELAY: Self = Self(8);

    /// Creates a set from bits. `None` if none is set, or NEVER is set with others.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits == 1 || (bits != 0 && bits & 1 == 0 && bits < 16) { Some(Self(bits)) } else { None }
    }

    /// NEVER = 1, SUCCESS = 2, FAILURE = 4, DELAY = 8.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn parse(value: &str) -> Option<Self> {
        if value.eq_ignore_ascii_case("NEVER") {
            return Some(Self::NEVER);
        }
        let mut bits = 0;
        for word in value.split(',') {
            let known = [("SUCCESS", Self::SUCCESS), ("FAILURE", Self::FAILURE), ("DELAY", Self::DELAY)];
            let (_, flag) = known.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name))?;
            bits |= flag.0;
        }
        Some(Self(bits))
    }
}

/// XVERP of MAIL: the characters that join sender and recipient in each copy's return path,
/// `local{before}user{between}host@domain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerpDelimiters {
    pub before: char,
    pub between: char,
}

impl Default for VerpDelimiters {
    /// Those of Postfix and Mailman.
    fn default() -> Self {
        Self { before: '+', between: '=' }
    }
}

impl VerpDelimiters {
    /// The characters that Postfix permits (`verp_delimiter_filter`).
    fn parse(value: &str) -> Option<Self> {
        match value.as_bytes() {
            &[before @ (b'-' | b'=' | b'+'), between @ (b'-' | b'=' | b'+')] => {
                Some(Self { before: before.into(), between: between.into() })
            }
            _ => None,
        }
    }
}

/// Parameters of MAIL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MailParams {
    pub(super) size: Option<u64>,
    pub(super) body: Option<Body>,
    pub(super) smtputf8: bool,
    pub(super) ret: Option<Ret>,
    pub(super) envid: Option<String>,
    pub(super) requiretls: bool,
    pub(super) verp: Option<VerpDelimiters>,
}

/// Parameters that only some sessions offer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OptionalParams {
    /// AUTH (RFC 4954 section 5).
    pub(super) auth: bool,
    /// REQUIRETLS (RFC 8689 section 2).
    pub(super) requiretls: bool,
    /// XVERP of Postfix.
    pub(super) xverp: bool,
}

/// Parameters of RCPT.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RcptParams {
    pub(super) notify: Option<Notify>,
    pub(super) orcpt: Option<String>,
}

impl MailParams {
    /// Parses the parameters after the path; SIZE is checked against `size_max`.
    pub(super) fn parse(text: &[u8], size_max: u64, also: OptionalParams) -> Result<Self, Reply> {
        let mut params = Self::default();
        let mut submitter = None;
        for (name, value) in split(text) {
            let text = value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
            match name.to_ascii_uppercase().as_slice() {
                b"SIZE" => {
                    let size = decimal(text).ok_or(replies::SIZE_SYNTAX)?;
                    if size > size_max {
                        return Err(replies::TOO_BIG);
                    }
                    once(&mut params.size, size)?;
                }
                b"BODY" => {
                    let body = match text.to_ascii_uppercase().as_str() {
                        "7BIT" => Body::SevenBit,
                        "8BITMIME" => Body::EightBitMime,
                        _ => return Err(replies::BODY_SYNTAX),
                    };
                    once(&mut params.body, body)?;
                }
                b"SMTPUTF8" => {
                    if value.is_some() {
                        return Err(replies::SMTPUTF8_SYNTAX);
                    }
                    params.smtputf8 = true;
                }
                b"RET" => {
                    let ret = match text.to_ascii_uppercase().as_str() {
                        "FULL" => Ret::Full,
                        "HDRS" => Ret::Headers,
                        _ => return Err(replies::RET_SYNTAX),
                    };
                    once(&mut params.ret, ret)?;
                }
                b"ENVID" => {
                    if text.len() > ENVID_BYTES_MAX || xtext_decode(text).is_none_or(|envid| envid.is_empty()) {
                        return Err(replies::ENVID_SYNTAX);
                    }
                    once(&mut params.envid, text.to_owned())?;
                }
                // The original submitter: nothing here depends on it.
                b"AUTH" if also.auth => {
                    xtext_decode(text).filter(|of| !of.is_empty()).ok_or(replies::AUTH_PARAM_SYNTAX)?;
                    once(&mut submitter, ())?;
                }
                b"REQUIRETLS" if also.requiretls => {
                    if value.is_some() {
                        return Err(replies::REQUIRETLS_SYNTAX);
                    }
                    params.requiretls = true;
                }
                b"XVERP" if also.xverp => {
                    let delimiters = match value {
                        None => VerpDelimiters::default(),
                        Some(_) => VerpDelimiters::parse(text).ok_or(replies::XVERP_SYNTAX)?,
                    };
                    once(&mut params.verp, delimiters)?;
                }
                _ => return Err(replies::PARAMETER_UNKNOWN),
            }
        }
        Ok(params)
    }
}

impl RcptParams {
    /// Parses the parameters after the path; `smtputf8` is the transaction's.
    pub(super) fn parse(text: &[u8], smtputf8: bool) -> Result<Self, Reply> {
        let mut params = Self::default();
        for (name, value) in split(text) {
            let text = value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
            match name.to_ascii_uppercase().as_slice() {
                b"NOTIFY" => once(&mut params.notify, Notify::parse(text).ok_or(replies::NOTIFY_SYNTAX)?)?,
                b"ORCPT" => {
                    if !is_orcpt(text, smtputf8) {
                        return Err(replies::ORCPT_SYNTAX);
                    }
                    once(&mut params.orcpt, text.to_owned())?;
                }
                _ => return Err(replies::PARAMETER_UNKNOWN),
            }
        }
        Ok(params)
    }
}

/// Decodes xtext (RFC 3461 section 4): `+3D` is `=`. `None` if it is not xtext, or decodes to non-printable characters.
pub fn xtext_decode(text: &str) -> Option<String> {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'+' => {
                let hex = |digit: u8| match digit {
                    b'0'..=b'9' => Some(digit - b'0'),
                    b'A'..=b'F' => Some(digit - b'A' + 10),
                    _ => None,
                };
                let [high, low, tail @ ..] = rest else { return None };
                let byte = hex(*high)? << 4 | hex(*low)?;
                if !(b' '..0x7f).contains(&byte) {
                    return None;
                }
                decoded.push(byte as char);
                rest = tail;
            }
            b'=' => return None,
            b'!'..=b'~' => decoded.push(*byte as char),
            _ => return None,
        }
    }
    Some(decoded)
}

/// `addr-type ";" xtext` (RFC 3461 section 4.2), or utf-8 forms of RFC 6533 section 3, which are not checked further.
fn is_orcpt(text: &str, smtputf8: bool) -> bool {
    let Some((kind, address)) = text.split_once(';') else { return false };
    let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if text.len() > ORCPT_BYTES_MAX || !is_kind || address.is_empty() {
        return false;
    }
    if kind.eq_ignore_ascii_case("utf-8") {
        // `=` must be encoded here too; the reader decodes backslash and plus forms.
        return address.chars().all(|c| !c.is_control() && !matches!(c, ' ' | '=') && (smtputf8 || c.is_ascii()));
    }
    xtext_decode(address).is_some()
}

/// Splits `KEYWORD` or `KEYWORD=value` items separated by spaces.
fn split(text: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    text.split(|&byte| byte == b' ').filter(|item| !item.is_empty()).map(|item| {
        match item.iter().position(|&byte| byte == b'=') {
            Some(at) => (&item[..at], Some(&item[at + 1..])),
            None => (item, None),
        }
    })
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Reply> {
    if slot.is_some() {
        return Err(replies::PARAMETER_TWICE);
    }
    *slot = Some(value);
    Ok(())
}

/// Parses a number of 1 to 20 digits (RFC 1870 section 4, RFC 3030 section 2); no sign, no space.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let is_number = (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mail(text: &str) -> Result<MailParams, Reply> {
        MailParams::parse(text.as_bytes(), 1_000, OptionalParams::default())
    }

    fn rcpt(text: &str) -> Result<RcptParams, Reply> {
        RcptParams::parse(text.as_bytes(), false)
    }

    #[test]
    fn mail_parameters() {
        let params = mail(" size=1000 BODY=8bitmime SMTPUTF8  RET=HDRS ENVID=a+2Bb").unwrap();
        assert_eq!((params.size, params.body, params.smtputf8), (Some(1_000), Some(Body::EightBitMime), true));
        assert_eq!((params.ret, params.envid.as_deref()), (Some(Ret::Headers), Some("a+2Bb")));
    }

    #[test]
    fn a_size_that_is_a_lie_or_no_number() {
        assert_eq!(mail("SIZE=1001"), Err(replies::TOO_BIG));
        assert_eq!(mail("SIZE=18446744073709551615"), Err(replies::TOO_BIG));
        for bad in [
            "SIZE=-1",
            "SIZE=18446744073709551616",
            "SIZE=+1",
            "SIZE=",
            "SIZE",
            "SIZE=1x",
            "SIZE=0000000000000000000001",
        ] {
            assert_eq!(mail(bad), Err(replies::SIZE_SYNTAX), "{bad}");
        }
    }

    #[test]
    fn bad_mail_parameters() {
        assert_eq!(mail("FOO=1"), Err(replies::PARAMETER_UNKNOWN));
        assert_eq!(mail("AUTH=<>"), Err(replies::PARAMETER_UNKNOWN));
        assert_eq!(mail("SIZE=1 SIZE=1"), Err(replies::PARAMETER_TWICE));
        assert_eq!(mail("BODY=BINARYMIME"), Err(replies::BODY_SYNTAX));
        assert_eq!(mail("SMTPUTF8=yes"), Err(replies::SMTPUTF8_SYNTAX));
        assert_eq!(mail("RET=ALL"), Err(replies::RET_SYNTAX));
        for bad in ["ENVID=", "ENVID=a=b", "ENVID=a+2b", "ENVID=a+0A", "ENVID=+", "ENVID=\u{e9}"] {
            assert_eq!(mail(bad), Err(replies::ENVID_SYNTAX), "{bad}");
        }
        assert_eq!(mail(&format!("ENVID={}", "x".repeat(101))), Err(replies::ENVID_SYNTAX));
    }

    #[test]
    fn parameters_of_secured_sessions() {
        let also = OptionalParams { auth: true, requiretls: true, ..OptionalParams::default() };
        let parse = |text: &str| MailParams::parse(text.as_bytes(), 9, also);
        for known in ["AUTH=<>", "AUTH=e+3Dmc2@example.com", "auth=x"] {
            assert_eq!(parse(known), Ok(MailParams::default()), "{known}");
        }
        assert!(parse("RequireTLS AUTH=<>").unwrap().requiretls);
        for bad in ["AUTH=", "AUTH", "AUTH=a=b", "AUTH=a+0D", "AUTH=\u{e9}"] {
            assert_eq!(parse(bad), Err(replies::AUTH_PARAM_SYNTAX), "{bad}");
        }
        assert_eq!(parse("AUTH=<> AUTH=<>"), Err(replies::PARAMETER_TWICE));
        assert_eq!(parse("REQUIRETLS=yes"), Err(replies::REQUIRETLS_SYNTAX));
        assert_eq!(mail("REQUIRETLS"), Err(replies::PARAMETER_UNKNOWN));
    }

    #[test]
    fn delimiters_of_return_paths() {
        let also = OptionalParams { xverp: true, ..OptionalParams::default() };
        let parse = |text: &str| MailParams::parse(text.as_bytes(), 9, also).map(|params| params.verp);
        let delimiters = |before, between| Ok(Some(VerpDelimiters { before, between }));
        assert_eq!(parse("SIZE=1"), Ok(None));
        assert_eq!((parse("XVERP"), parse("xverp=-=")), (delimiters('+', '='), delimiters('-', '=')));
        assert_eq!((parse("XVERP=++"), parse("XVERP=-+")), (delimiters('+', '+'), delimiters('-', '+')));
        for bad in ["XVERP=", "XVERP=-", "XVERP=-=-", "XVERP=#=", "XVERP=+@", "XVERP=\u{e9}", "XVERP=.="] {
            assert_eq!(parse(bad), Err(replies::XVERP_SYNTAX), "{bad}");
        }
        assert_eq!(parse("XVERP XVERP"), Err(replies::PARAMETER_TWICE));
        assert_eq!(mail("XVERP"), Err(replies::PARAMETER_UNKNOWN));
    }

    #[test]
    fn rcpt_parameters() {
        let params = rcpt("NOTIFY=success,DELAY ORCPT=rfc822;a+2Bb@x.org").unwrap();
        let notify = params.notify.unwrap();
        assert_eq!(notify.bits(), 10);
        assert!(notify.contains(Notify::DELAY) && !notify.contains(Notify::FAILURE));
        assert_eq!(params.orcpt.as_deref(), Some("rfc822;a+2Bb@x.org"));
        assert_eq!(rcpt("NOTIFY=never").unwrap().notify, Some(Notify::NEVER));
        assert_eq!(
            (0..=255).filter_map(Notify::from_bits).map(Notify::bits).collect::<Vec<_>>(),
            [1, 2, 4, 6, 8, 10, 12, 14]
        );
        for bad in ["NOTIFY=NEVER,DELAY", "NOTIFY=", "NOTIFY=,", "NOTIFY=X", "NOTIFY"] {
            assert_eq!(rcpt(bad), Err(replies::NOTIFY_SYNTAX), "{bad}");
        }
        for bad in [
            "ORCPT=a@b",
            "ORCPT=;a@b",
            "ORCPT=rfc822;",
            "ORCPT=rfc822;a+0D+0AX",
            "ORCPT=rf 822;a",
            "ORCPT=rfc822;\u{e9}",
        ] {
            assert_eq!(rcpt(bad), Err(replies::ORCPT_SYNTAX), "{bad}");
        }
        let utf8 = "ORCPT=utf-8;j\u{f6}@x.org".as_bytes();
        assert!(RcptParams::parse(utf8, false).is_err() && RcptParams::parse(utf8, true).is_ok());
        assert_eq!(rcpt("SIZE=1"), Err(replies::PARAMETER_UNKNOWN));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80), utf8: bool) {
            let _ = MailParams::parse(&bytes, 1_000, OptionalParams { auth: utf8, requiretls: utf8, xverp: utf8 });
            let _ = RcptParams::parse(&bytes, utf8);
        }

        #[test]
        fn any_envid_is_printable_when_decoded(text in "[ -~+A-F0-9]{0,20}") {
            if let Some(decoded) = xtext_decode(&text) {
                prop_assert!(decoded.bytes().all(|byte| (b' '..0x7f).contains(&byte)));
            }
        }
    }
}
