//! Refusals as written in rules, routes and tables.

use stentor_mail::reply::{Enhanced, Reply};

pub(crate) const DENIED: &str = "Access denied";

/// The codes of a refusal.
#[derive(Clone, Copy)]
pub(crate) struct RefusalCodes {
    pub code: u16,
    pub enhanced: Enhanced,
}

/// Default codes of refusals.
pub(crate) struct Defaults {
    pub reject: RefusalCodes,
    pub defer: RefusalCodes,
}

impl RefusalCodes {
    pub(crate) const fn new(code: u16, enhanced: Enhanced) -> RefusalCodes {
        RefusalCodes { code, enhanced }
    }
}

/// RFC 5321 section 3.6.3 and RFC 3463: "delivery not authorized".
pub(crate) const OURS: Defaults = Defaults {
    reject: RefusalCodes::new(550, Enhanced::new(5, 7, 1)),
    defer: RefusalCodes::new(450, Enhanced::new(4, 7, 1)),
};
/// `access_map_reject_code` and `access_map_defer_code` of postconf(5).
pub(crate) const POSTFIX: Defaults =
    Defaults { reject: RefusalCodes::new(554, Enhanced::new(5, 7, 1)), defer: OURS.defer };

/// Splits off the first word.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
    }
}

/// Parses a three-digit code that refuses.
pub(crate) fn reply_code(text: &str) -> Option<u16> {
    let is_code = text.len() == 3 && text.starts_with(['4', '5']) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_code { text.parse().ok() } else { None }
}

/// Parses `[NNN] [D.S.N] text`, with default codes for missing ones, and a default text. The default enhanced code has
/// the class of the code (RFC 2034 section 4).
pub(crate) fn refusal(text: &str, codes: RefusalCodes, default: &'static str) -> Reply {
    let RefusalCodes { code, enhanced } = codes;
    let (code, text) = match split(text) {
        (word, rest) if reply_code(word).is_some() => (reply_code(word).unwrap_or(code), rest),
        _ => (code, text),
    };
    let (word, rest) = split(text);
    let (named, text) = match Enhanced::parse(word) {
        Some(named) => (Some(named), rest),
        None => (None, text),
    };
    let class = if code < 500 { 4 } else { 5 };
    let enhanced = named.unwrap_or(Enhanced { class, ..enhanced });
    let text = if text.is_empty() { default.into() } else { text.to_owned().into() };
    Reply { code, enhanced: Some(enhanced), text, limit: None }
}

/// sendmail's word before a refusal, in any case.
pub(crate) const ERROR: &str = "error:";

/// Whether a text begins with a word, in any case.
pub(crate) fn has_prefix(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
}

/// Parses the text after `ERROR:`: `D.S.N:NNN text`, `"NNN text"`, `NNN text`, or a word of sysexits(3) and a text.
pub(crate) fn sendmail_error(text: &str) -> Reply {
    let text = text.trim();
    let (first, rest) = text.split_once(':').unwrap_or(("", text));
    let Some(enhanced) = Enhanced::parse(first) else {
        let (words, default) = worded(unquoted(text));
        return refusal(&words, OURS.reject, default);
    };
    let rest = unquoted(rest);
    let is_code = rest.len() >= 3 && rest.bytes().take(3).all(|byte| byte.is_ascii_digit());
    let (code, words) = match rest.split_once(' ') {
        Some((code, words)) if is_code => (code, words),
        _ if is_code => (rest, ""),
        _ => (if enhanced.class == 4 { "450" } else { "550" }, rest),
    };
    // In our syntax the code comes first, then the enhanced code.
    refusal(&format!("{code} {enhanced} {words}"), OURS.reject, DENIED)
}

/// The reply code in such a text, if it is not a refusal's: it is then treated as text.
pub(crate) fn names_other_code(text: &str) -> Option<&str> {
    let text = text.trim();
    let text = match text.split_once(':') {
        Some((first, rest)) if Enhanced::parse(first).is_some() => rest,
        _ => text,
    };
    let (code, _) = split(unquoted(text));
    let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    (is_code && reply_code(code).is_none()).then_some(code)
}

/// Converts `nouser text` and the like to codes, as sendmail does, with its default texts.
fn worded(text: &str) -> (String, &'static str) {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (code, default) = match word.to_ascii_lowercase().as_str() {
        "nouser" => ("550 5.1.1", "User unknown"),
        "nohost" => ("550 5.1.2", "Host unknown"),
        "unavailable" => ("550 5.7.0", "Service unavailable"),
        "usage" => ("501 5.5.2", "Bad usage"),
        "tempfail" => ("451 4.3.0", "Deferred"),
        "protocol" => ("501 5.5.0", "Remote protocol error"),
        "config" => ("550 5.3.5", "Local configuration error"),
        _ => return (text.to_owned(), DENIED),
    };
    // A code may follow, which takes precedence.
    let (given, words) = split(rest);
    let text = match (reply_code(given), code.split_once(' ')) {
        (Some(given), Some((_, enhanced))) => format!("{given} {enhanced} {words}"),
        _ => format!("{code} {rest}"),
    };
    (text, default)
}

/// Removes the surrounding quotes.
pub(crate) fn unquoted(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(text)
}
