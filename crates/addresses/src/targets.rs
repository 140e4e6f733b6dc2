//! The right side of an alias or a virtual user: addresses, names, programs, files and included files, separated by
//! commas.
//!
//! Promise: follows aliases(5) of Postfix and of sendmail. Quotes around a whole target are removed (`"|program a,b"`),
//! those of an address stay; comments in parentheses and the name before `<address>` are dropped. Blanks also separate
//! addresses, as in Postfix.
//!
//! Failure: an empty `<>`, or a quote, bracket or parenthesis that is not closed.

/// Maximum targets of one line or included file.
pub const TARGETS_MAX: usize = 10_000;
/// Maximum targets followed for one recipient, including those of included files and those already seen.
pub const FOLLOWED_MAX: usize = 2 * TARGETS_MAX;
/// Characters that an error shows of an invalid target.
const SHOWN_CHARS_MAX: usize = 200;

/// A target of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpansionTarget {
    /// `user@domain`, or a name alone.
    Address(String),
    /// `\name`: not looked up again.
    Final(String),
    /// `@domain`: the same user there.
    Domain(String),
    /// `:include:/path`
    Include(String),
    /// `|command`
    Program(String),
    /// `/path`
    File(String),
}

/// Why a text is not a list of targets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("{0} is not closed in {1:?}")]
    Open(&'static str, String),
    #[error("{0:?} is not an address, name, :include:/path, |program or /file")]
    Malformed(String),
    #[error("more than {TARGETS_MAX} targets")]
    TooMany,
}

/// Parses one line's targets, in order.
///
/// # Errors
/// A target is invalid.
pub fn parse(text: &str) -> Result<Vec<ExpansionTarget>, TargetError> {
    let mut targets = Vec::new();
    add(text, &mut targets)?;
    Ok(targets)
}

/// Parses the targets of an included file: one per line, or several with commas; lines that begin with `#` are
/// comments.
///
/// # Errors
/// A line is invalid: its number, from 1.
pub fn parse_include(text: &str) -> Result<Vec<ExpansionTarget>, (usize, TargetError)> {
    let mut targets = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if !line.trim_start().starts_with('#') {
            add(line, &mut targets).map_err(|error| (at + 1, error))?;
        }
    }
    Ok(targets)
}

fn add(text: &str, targets: &mut Vec<ExpansionTarget>) -> Result<(), TargetError> {
    let mut rest = text;
    while !rest.is_empty() {
        let end = end_of_target(rest)?;
        let item = rest[..end].trim();
        if !item.is_empty() {
            if targets.len() == TARGETS_MAX {
                return Err(TargetError::TooMany);
            }
            target(item, targets)?;
        }
        rest = rest.get(end + 1..).unwrap_or("");
    }
    Ok(())
}

/// Returns the position of the comma that ends the first target, or the text's end.
fn end_of_target(text: &str) -> Result<usize, TargetError> {
    let (mut is_quoted, mut comments, mut is_escaped) = (false, 0_u32, false);
    for (at, octet) in text.bytes().enumerate() {
        match octet {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' if comments == 0 => is_quoted = !is_quoted,
            b'(' if !is_quoted => comments += 1,
            b')' if !is_quoted => comments = comments.saturating_sub(1),
            b',' if !is_quoted && comments == 0 => return Ok(at),
            _ => {}
        }
    }
    let open = |what| TargetError::Open(what, shown(text.trim()));
    match (is_quoted, comments) {
        (true, _) => Err(open("a quote")),
        (false, 1..) => Err(open("a comment")),
        (false, 0) => Ok(text.len()),
    }
}

fn target(item: &str, targets: &mut Vec<ExpansionTarget>) -> Result<(), TargetError> {
    let plain = whole_quoted(item).unwrap_or_else(|| item.to_owned());
    if let Some(command) = plain.strip_prefix('|') {
        // sendmail's users also quote the command after the bar.
        let command = command.trim();
        let command = whole_quoted(command).unwrap_or_else(|| command.to_owned());
        if command.is_empty() {
            return Err(malformed(item));
        }
        targets.push(ExpansionTarget::Program(command));
        return Ok(());
    }
    if let Some(path) = include(&plain) {
        if !path.starts_with('/') {
            return Err(malformed(item));
        }
        targets.push(ExpansionTarget::Include(path.to_owned()));
        return Ok(());
    }
    if plain.starts_with('/') {
        targets.push(ExpansionTarget::File(plain));
        return Ok(());
    }
    let address = without_comments(item)?;
    if address.is_empty() || address.contains(['"', '<']) {
        targets.push(name(&address).ok_or_else(|| malformed(item))?);
        return Ok(());
    }
    for word in address.split_whitespace() {
        targets.push(name(word).ok_or_else(|| malformed(item))?);
    }
    Ok(())
}

/// Parses an address, a name or a domain.
fn name(text: &str) -> Option<ExpansionTarget> {
    let (name, is_final) = match text.strip_prefix('\\') {
        Some(name) => (name, true),
        None => (text, false),
    };
    if name.is_empty() || name.contains(['<', '>']) || name.contains(char::is_control) {
        return None;
    }
    match name.strip_prefix('@') {
        Some(domain) if !is_final && !domain.is_empty() => Some(ExpansionTarget::Domain(domain.to_owned())),
        Some(_) => None,
        None if is_final => Some(ExpansionTarget::Final(name.to_owned())),
        None => Some(ExpansionTarget::Address(name.to_owned())),
    }
}

fn malformed(item: &str) -> TargetError {
    TargetError::Malformed(shown(item))
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

fn include(text: &str) -> Option<&str> {
    const TAG: &str = ":include:";
    text.get(..TAG.len()).filter(|tag| tag.eq_ignore_ascii_case(TAG)).map(|_| text[TAG.len()..].trim())
}

/// Returns the text within quotes that enclose all of it.
fn whole_quoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let (mut plain, mut is_escaped) = (String::with_capacity(inner.len()), false);
    for letter in inner.chars() {
        match letter {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return None,
            letter => {
                plain.push(letter);
                is_escaped = false;
            }
        }
    }
    (!is_escaped).then_some(plain)
}

/// Returns the address: the text in angle brackets, if there are any, without comments.
fn without_comments(item: &str) -> Result<String, TargetError> {
    let (mut kept, mut is_quoted, mut comments, mut is_escaped) = (String::with_capacity(item.len()), false, 0, false);
    let mut begin = None;
    for letter in item.chars() {
        let was_escaped = std::mem::take(&mut is_escaped);
        match letter {
            _ if was_escaped => {}
            '\\' => is_escaped = true,
            '"' if comments == 0 => is_quoted = !is_quoted,
            '(' if !is_quoted => {
                comments += 1;
                continue;
            }
            ')' if !is_quoted && comments > 0 => {
                comments -= 1;
                continue;
            }
            '<' if !is_quoted && comments == 0 => {
                begin = Some(kept.len() + 1);
            }
            '>' if !is_quoted && comments == 0 => {
                let begin = begin.ok_or_else(|| malformed(item))?;
                return Ok(kept[begin..].trim().to_owned());
            }
            _ => {}
        }
        if comments == 0 {
            kept.push(letter);
        }
    }
    match begin {
        Some(_) => Err(TargetError::Open("an angle bracket", shown(item))),
        None => Ok(kept.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> String {
        let word = |target: &ExpansionTarget| match target {
            ExpansionTarget::Address(text) => format!("a {text}"),
            ExpansionTarget::Final(text) => format!("= {text}"),
            ExpansionTarget::Domain(text) => format!("d {text}"),
            ExpansionTarget::Include(text) => format!("i {text}"),
            ExpansionTarget::Program(text) => format!("p {text}"),
            ExpansionTarget::File(text) => format!("f {text}"),
        };
        match parse(text) {
            Ok(targets) => targets.iter().map(word).collect::<Vec<_>>().join("; "),
            Err(error) => format!("! {error}"),
        }
    }

    #[test]
    fn what_files_have() {
        assert_eq!(words("joe"), "a joe");
        assert_eq!(words(" joe , ann@a.test,, "), "a joe; a ann@a.test");
        assert_eq!(words("\\joe, bob@b.test"), "= joe; a bob@b.test");
        assert_eq!(words("\"|/usr/bin/vacation joe, ann\", \\joe"), "p /usr/bin/vacation joe, ann; = joe");
        assert_eq!(words("|\"/usr/bin/procmail -a x\""), "p /usr/bin/procmail -a x");
        assert_eq!(words("|/usr/bin/procmail"), "p /usr/bin/procmail");
        assert_eq!(words("\"|a \\\"b c\\\"\""), "p a \"b c\"");
        assert_eq!(words("/var/mail/archive, /dev/null"), "f /var/mail/archive; f /dev/null");
        assert_eq!(words(":include:/etc/mail/staff, \":include:/a b\""), "i /etc/mail/staff; i /a b");
        assert_eq!(words("@other.test"), "d other.test");
        assert_eq!(words("Joe (the, boss) <joe@a.test>, \"Ann, B.\" <ann@a.test>"), "a joe@a.test; a ann@a.test");
        assert_eq!(words("joe@a.test (at work)"), "a joe@a.test");
        assert_eq!(words("\"a, b\"@c.test"), "a \"a, b\"@c.test");
        assert_eq!(words("joe  \\ann (x y)"), "a joe; = ann");
        assert_eq!(words(""), "");
    }

    #[test]
    fn what_is_no_target() {
        for bad in
            ["\"joe", "joe (x", "<joe", "joe>", "<>", "@", "\\", "|", "\"|\"", ":include:x", "\\@a.test", "a\u{7}"]
        {
            assert!(words(bad).starts_with('!'), "{bad}: {}", words(bad));
        }
    }

    #[test]
    fn an_included_file() {
        let text = "# staff\njoe\n ann@a.test, bob\n\n  # and\n\"|/bin/x\"\n";
        assert_eq!(parse_include(text).unwrap().len(), 4);
        assert_eq!(parse_include("joe\n<a\n").unwrap_err().0, 2);
    }

    #[test]
    fn what_is_too_much_is_an_error_of_some_words() {
        let many = "a\n".repeat(TARGETS_MAX);
        assert_eq!(parse_include(&many).unwrap().len(), TARGETS_MAX);
        assert_eq!(parse_include(&(many + "a\n")).unwrap_err(), (TARGETS_MAX + 1, TargetError::TooMany));
        for long in ["\"", "<", "<>"].map(|begin| begin.to_owned() + &"x".repeat(10_000)) {
            assert!(parse(&long).unwrap_err().to_string().len() < 300, "{}", &long[..2]);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-z,@\"\\\\()<>|/: é]{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn addresses_come_back_as_they_were(names in proptest::collection::vec("[a-z]{1,8}@[a-z]{1,8}\\.test", 0..9)) {
            let expected: Vec<ExpansionTarget> = names.iter().cloned().map(ExpansionTarget::Address).collect();
            prop_assert_eq!(parse(&names.join(", ")).unwrap(), expected);
        }
    }
}
