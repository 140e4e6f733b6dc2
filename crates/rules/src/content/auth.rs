//! Authentication results in a message's header: Authentication-Results (RFC 8601).
//!
//! Promise: only fields with our own authserv-id count, since anybody can write others. Comments, folds and quoted
//! strings are parsed by the grammar (section 2.2), in linear time. The caller must first remove such fields from
//! messages of untrusted clients ([`claims`]).
//!
//! Failure: a field with an unclosed comment or quote has no results; it claims to be ours if it contains our name
//! anywhere.

use regex::Regex;

use super::pattern::{ContentConditionError, Pattern};

const FIELD: &[u8] = b"authentication-results";
/// Maximum results of one message, and maximum properties of each.
const RESULTS_MAX: usize = 1_000;
const PROPERTIES_MAX: usize = 100;
/// Methods with the results of RFC 8601 section 2.7 (`arc`: RFC 8617); other methods define their own.
const METHODS: [&str; 6] = ["spf", "dkim", "dmarc", "arc", "auth", "iprev"];
const RESULTS: [&str; 8] = ["pass", "fail", "softfail", "neutral", "none", "policy", "temperror", "permerror"];

/// One result with its properties: `dkim=pass header.d=example.org`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct AuthResult {
    /// Method in lower case; so are property names.
    method: String,
    result: String,
    properties: Vec<(String, String)>,
}

/// Authentication results of a message that this server wrote.
#[derive(Debug)]
pub struct AuthFieldResults {
    /// Our authserv-id.
    id: Box<str>,
    all: Vec<AuthResult>,
}

impl AuthFieldResults {
    pub fn new(id: &str) -> AuthFieldResults {
        AuthFieldResults { id: id.into(), all: Vec::new() }
    }

    /// Adds a header field; its value may be folded.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if !name.eq_ignore_ascii_case(FIELD) {
            return;
        }
        let Some(segments) = segments(value) else { return };
        if !segments.first().is_some_and(|first| is_id(first, &self.id)) {
            return;
        }
        let room = RESULTS_MAX.saturating_sub(self.all.len());
        self.all.extend(segments[1..].iter().filter_map(|items| result(items)).take(room));
    }
}

/// Whether a header field claims to be written by us.
pub fn claims(id: &str, name: &[u8], value: &[u8]) -> bool {
    name.eq_ignore_ascii_case(FIELD)
        && match segments(value) {
            Some(segments) => segments.first().is_some_and(|first| is_id(first, id)),
            None => String::from_utf8_lossy(value).to_ascii_lowercase().contains(&id.to_ascii_lowercase()),
        }
}

/// Splits at semicolons, then into words; quoted text is unquoted, and both sides of an equals sign are joined.
/// `None`: a comment or quote is not closed.
fn segments(value: &[u8]) -> Option<Vec<Vec<String>>> {
    let value = String::from_utf8_lossy(value);
    let (mut all, mut items, mut item) = (Vec::new(), Vec::new(), None::<String>);
    let mut letters = value.chars();
    // A word continues after `=`, even across spaces.
    let mut is_open = false;
    while let Some(letter) = letters.next() {
        match letter {
            '(' => {
                comment(&mut letters)?;
                items.extend(item.take_if(|_| !is_open));
            }
            ' ' | '\t' | '\r' | '\n' => items.extend(item.take_if(|_| !is_open)),
            ';' => {
                items.extend(item.take());
                is_open = false;
                all.push(std::mem::take(&mut items));
            }
            '=' => {
                let own = item.take().or_else(|| items.pop()).unwrap_or_default();
                item = Some(own + "=");
                is_open = true;
            }
            '"' => {
                quoted(&mut letters, item.get_or_insert_default())?;
                is_open = false;
            }
            letter => {
                item.get_or_insert_default().push(letter);
                is_open = false;
            }
        }
    }
    items.extend(item);
    all.push(items);
    Some(all)
}

fn comment(letters: &mut std::str::Chars<'_>) -> Option<()> {
    let mut depth = 1_u32;
    while depth > 0 {
        match letters.next()? {
            '(' => depth += 1,
            ')' => depth -= 1,
            '\\' => drop(letters.next()?),
            _ => {}
        }
    }
    Some(())
}

fn quoted(letters: &mut std::str::Chars<'_>, out: &mut String) -> Option<()> {
    loop {
        match letters.next()? {
            '"' => return Some(()),
            '\\' => out.push(letters.next()?),
            '\r' | '\n' => {}
            letter => out.push(letter),
        }
    }
}

/// Whether these are our name, optionally followed by a version.
fn is_id(items: &[String], id: &str) -> bool {
    items.first().is_some_and(|own| own.eq_ignore_ascii_case(id))
}

fn result(items: &[String]) -> Option<AuthResult> {
    let pair = |item: &String| item.split_once('=').map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let (method, result) = pair(items.first()?)?;
    // `dkim/1`: the method's version.
    let method = method.split('/').next().unwrap_or_default().to_owned();
    let properties = items[1..].iter().filter_map(pair).take(PROPERTIES_MAX).collect();
    Some(AuthResult { method, result: result.to_ascii_lowercase(), properties })
}

/// A rule's condition on a result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AuthTest {
    method: Box<str>,
    /// Required result; `None`: any.
    result: Option<Box<str>>,
    properties: Vec<(Box<str>, Pattern)>,
}

impl AuthTest {
    /// Parses `spf=fail`, `dkim=pass header.d=*.example.org` or `dmarc=*`.
    ///
    /// # Errors
    /// The text is not such a condition.
    pub fn parse(text: &str) -> Result<AuthTest, ContentConditionError> {
        let wrong = || ContentConditionError::Auth(text.to_owned());
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let mut pairs = text.split_ascii_whitespace().map(|pair| pair.split_once('='));
        let (method, result) = pairs.next().flatten().ok_or_else(wrong)?;
        if !is_word(method) || !(result == "*" || is_word(result)) {
            return Err(wrong());
        }
        let (method, result) = (method.to_ascii_lowercase(), result.to_ascii_lowercase());
        if METHODS.contains(&method.as_str()) && result != "*" && !RESULTS.contains(&result.as_str()) {
            return Err(ContentConditionError::AuthResult { method, result, known: RESULTS.join(", ") });
        }
        let result = (result != "*").then(|| result.into());
        let properties = pairs.map(|pair| {
            let (name, pattern) = pair.filter(|(name, _)| is_word(name)).ok_or_else(wrong)?;
            Ok((name.to_ascii_lowercase().into(), Pattern::name(pattern)?))
        });
        let properties = properties.collect::<Result<_, ContentConditionError>>()?;
        Ok(AuthTest { method: method.into(), result, properties })
    }

    pub(super) fn shown(&self) -> String {
        let properties = self.properties.iter().map(|(name, pattern)| format!(" {name}={}", pattern.shown));
        format!("{}={}{}", self.method, self.result.as_deref().unwrap_or("*"), properties.collect::<String>())
    }

    /// Compiles the expressions of the properties.
    pub(super) fn compiled(&self) -> Result<Vec<Regex>, ContentConditionError> {
        self.properties.iter().map(|(_, pattern)| pattern.regex()).collect()
    }

    /// The first matching result, as text.
    pub(super) fn met(&self, expressions: &[Regex], results: &AuthFieldResults) -> Option<String> {
        let is_met = |found: &&AuthResult| {
            let mut properties = self.properties.iter().zip(expressions);
            *found.method == *self.method
                && self.result.as_ref().is_none_or(|result| **result == *found.result)
                && properties.all(|((name, _), expression)| {
                    found.properties.iter().any(|(own, value)| *own == **name && expression.is_match(value))
                })
        };
        let found = results.all.iter().find(is_met)?;
        let properties = found.properties.iter().map(|(name, value)| format!(" {name}={value}"));
        Some(format!("{}={}{}", found.method, found.result, properties.collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn met(test: &str, fields: &[&str]) -> Option<String> {
        let mut results = AuthFieldResults::new("mx.example.org");
        for value in fields {
            results.field(b"Authentication-Results", value.as_bytes());
        }
        let test = AuthTest::parse(test).unwrap();
        test.met(&test.compiled().unwrap(), &results)
    }

    #[test]
    fn results_are_read_as_the_grammar_has_them() {
        let field = " MX.example.org (ours) 1;\r\n\tspf=Fail (a \"(comment)\" \\) ; x)\r\n smtp.mailfrom=SRS0=ab=c=d=e@example.net;\r\n \
                     dkim/1 = pass reason=\"good; sure\" header.d = Example.net header.b=\"a=\";dmarc=none";
        for test in [
            "spf=fail",
            "SPF=FAIL smtp.mailfrom=SRS0=*",
            "dkim=pass header.d=*.net header.b=a=",
            "dmarc=none",
            "dkim=*",
        ] {
            assert!(met(test, &[field]).is_some(), "{test}");
        }
        for test in
            ["spf=pass", "dkim=pass header.d=example.org", "arc=*", "reason=good", "spf=fail header.d=example.net"]
        {
            assert_eq!(met(test, &[field]), None, "{test}");
        }
        assert_eq!(met("dmarc=fail", &["\"mx.example.org\"; dmarc=fail"]).as_deref(), Some("dmarc=fail"));
        assert_eq!(
            met("dmarc=fail", &["mx.example.org; none", "mx.example.org;dmarc=fail(p=none) header.from=a.test"])
                .as_deref(),
            Some("dmarc=fail header.from=a.test")
        );
    }

    #[test]
    fn others_results_and_broken_ones_say_nothing() {
        for field in [
            "mx.example.net; spf=pass",
            "mx.example.org.evil; spf=pass",
            "(mx.example.org) x; spf=pass",
            "mx.example.org (; spf=pass",
            "",
            ";",
            "mx.example.org; =pass; spf",
        ] {
            assert_eq!(met("spf=*", &[field]), None, "{field}");
        }
        let is_ours = |value: &str| claims("mx.example.org", b"AUTHENTICATION-RESULTS", value.as_bytes());
        assert!(
            is_ours(" Mx.Example.Org;none")
                && is_ours("(a(b))\"mx.example\\.org\" 1 ; spf=pass")
                && is_ours("mx.example.org (open")
        );
        assert!(
            !is_ours("mx.example.net (mx.example.org); spf=pass")
                && !is_ours("other (open")
                && !claims("a", b"X", b"a")
        );
    }

    #[test]
    fn slips_are_errors() {
        for text in [
            "",
            "spf",
            "spf=",
            "=fail",
            "spf fail",
            "spf=fail smtp.mailfrom",
            "dkim=pass header.d=",
            "dkim=pass header.d=/(/",
        ] {
            assert!(AuthTest::parse(text).is_err(), "{text}");
        }
        for (text, is_known) in
            [("dmarc=failed", false), ("SPF=Hardfail", false), ("spf=SoftFail", true), ("x-tls=strong", true)]
        {
            assert_eq!(AuthTest::parse(text).is_ok(), is_known, "{text}");
        }
        let why = AuthTest::parse("dmarc=failed").unwrap_err().to_string();
        assert!(why.contains("dmarc has no result \"failed\": use one of pass, fail, softfail"), "{why}");
        assert_eq!(AuthTest::parse("DKIM=pass header.D=a*").unwrap().shown(), "dkim=pass header.d=a*");
    }

    proptest! {
        #[test]
        fn never_panics_and_reads_what_was_written(text in "[ ;=()\"\\\\a.\r\n]{0,40}", method in "[a-z]{1,8}", value in "[a-z@= ;(]{1,12}") {
            let _ = claims("a", b"Authentication-Results", text.as_bytes());
            let mut results = AuthFieldResults::new("a");
            results.field(b"Authentication-Results", text.as_bytes());
            let mut results = AuthFieldResults::new("a");
            results.field(b"Authentication-Results", format!("a; {method}=pass smtp.x=\"{value}\"").as_bytes());
            let wanted = AuthResult { method, result: "pass".to_owned(), properties: vec![("smtp.x".to_owned(), value)] };
            prop_assert_eq!(results.all, vec![wanted]);
        }
    }
}
