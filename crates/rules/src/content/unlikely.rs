//! Finds valid patterns that probably do not have the intended meaning, for `check`.

use stentor_mime::charset::Charset;

/// Why a pattern under a key of a rule hardly ever matches.
pub fn unlikely(key: &str, pattern: &str) -> Option<String> {
    let is_expression = |text: &str| text.len() > 1 && text.starts_with('/') && text.ends_with('/');
    if is_expression(pattern) {
        return None;
    }
    let behind = if key.ends_with("header") { pattern.split_once(':')?.1.trim() } else { pattern };
    if let Some(expression) = flagged(behind) {
        return Some(format!(
            "{behind:?} is matched literally: write {expression:?} for the expression, which ignores case anyway"
        ));
    }
    match key {
        "sender" | "recipient" => {
            let domain = pattern.rsplit_once('@').map_or(pattern, |(_, domain)| domain).trim_start_matches(['*', '.']);
            let is_bare = !pattern.is_empty()
                && pattern.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_+".contains(&byte));
            if is_bare && !pattern.eq_ignore_ascii_case("localhost") {
                return Some(format!(
                    "{pattern:?} is read as a domain: did you mean {:?}, this user at any domain?",
                    format!("{pattern}@")
                ));
            }
            (pattern != "*" && pattern.contains('*')).then(|| {
                format!(
                    "{pattern:?} has an asterisk that is matched literally: write {domain:?} for a domain, \
                     \".{domain}\" for its subdomains"
                )
            })
        }
        "subject" | "body" | "header" | "raw_header" => {
            let text = behind;
            if text == "*" {
                let what = if key.ends_with("header") { "this field with any text" } else { "any text" };
                return Some(format!(
                    "{text:?} is matched literally: write {:?} for {what}",
                    with_field(pattern, text)
                ));
            }
            // Asterisks alone may be a spam level.
            let is_padded = !text.bytes().all(|byte| byte == b'*') && (text.starts_with('*') || text.ends_with('*'));
            (is_padded && !is_expression(text)).then(|| {
                let bare = text.trim_matches('*');
                format!("the asterisks of {text:?} are matched literally: a text matches anywhere, so write {bare:?}")
            })
        }
        "charset" => (!pattern.contains('*') && Charset::named(pattern.as_bytes()).is_none())
            .then(|| format!("unknown charset {pattern:?}: only mail that uses exactly this name matches")),
        "attachment" => {
            let end = pattern.strip_prefix('.').unwrap_or(pattern);
            (!end.contains(['*', '.'])).then(|| {
                format!("only a file named exactly {pattern:?} matches: write \"*.{end}\" for the end of a name")
            })
        }
        "attachment_type" => (!pattern.contains(['*', '/']))
            .then(|| format!("{pattern:?} is not a complete type: write \"{pattern}/*\"")),
        _ => None,
    }
}

/// The expression in `/x/i`, the notation of other programs.
fn flagged(text: &str) -> Option<&str> {
    let (expression, flags) = text.strip_prefix('/')?.rsplit_once('/')?;
    let is_flags =
        !expression.is_empty() && (1..=3).contains(&flags.len()) && flags.bytes().all(|b| b"imsxuU".contains(&b));
    is_flags.then(|| &text[..text.len() - flags.len()])
}

/// The pattern with its text replaced by `/^/`.
fn with_field(pattern: &str, text: &str) -> String {
    format!("{}/^/", pattern.trim_end().strip_suffix(text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hardly_matches_is_named_with_what_to_write() {
        for (key, pattern, better) in [
            ("sender", "*@evil.example", "\"evil.example\""),
            ("recipient", "*.evil.example", "\".evil.example\""),
            ("subject", "*invoice*", "\"invoice\""),
            ("body", "*invoice", "\"invoice\""),
            ("header", "X-Mailer: *bulk*", "\"bulk\""),
            ("header", "X-Ok: *", "\"X-Ok: /^/\""),
            ("raw_header", "X-Spam-Level: *", "\"X-Spam-Level: /^/\""),
            ("subject", "*", "\"/^/\""),
            ("body", "/viagra/i", "\"/viagra/\""),
            ("header", "Subject: /^win/im", "\"/^win/\""),
            ("sender", "/^x.*@/i", "\"/^x.*@/\""),
            ("charset", "gb-2312", "\"gb-2312\""),
            ("attachment", "exe", "\"*.exe\""),
            ("attachment", ".exe", "\"*.exe\""),
            ("recipient", "joe", "\"joe@\""),
            ("sender", "mailer-daemon", "\"mailer-daemon@\""),
            ("attachment_type", "image", "\"image/*\""),
        ] {
            let said = unlikely(key, pattern);
            assert!(said.as_ref().is_some_and(|said| said.contains(better)), "{key} {pattern}: {said:?}");
        }
        for (key, pattern) in [
            ("sender", "*"),
            ("sender", "/^x.*@/"),
            ("recipient", "ann@evil.example"),
            ("recipient", "joe@"),
            ("recipient", "localhost"),
            ("recipient", ".test"),
            ("sender", "<>"),
            ("subject", "5 * 3"),
            ("subject", "/^\\*+/"),
            ("header", "*: bulk"),
            ("header", "X-Spam-Level: *****"),
            ("body", "/unsubscribe/me"),
            ("body", "either/or"),
            ("header", "X-Spam: /.*/"),
            ("charset", "gb2312"),
            ("charset", "KOI8-R"),
            ("charset", "x-*"),
            ("attachment", "*.exe"),
            ("attachment", ".profile.exe"),
            ("attachment", "/exe/"),
            ("attachment_type", "image/*"),
            ("script", "Han"),
        ] {
            assert_eq!(unlikely(key, pattern), None, "{key} {pattern}");
        }
    }
}
