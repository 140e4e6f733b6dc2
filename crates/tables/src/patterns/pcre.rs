//! Perl-compatible regular expressions, as far as they can be matched in linear time. They match octets, not
//! characters, as in Postfix.
//!
//! Differences: `$` and `\Z` do not match before a newline at the very end of a key.

use super::translation::{Fault, Translation, bad, class_name, interval, unsupported};

#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    pub ignores_case: bool,
    pub dot_is_any: bool,
    pub by_line: bool,
    /// White space and comments between pieces are ignored.
    pub is_extended: bool,
    pub is_anchored: bool,
    pub is_lazy: bool,
}

pub(super) fn translate(pattern: &[u8], flags: Flags) -> Result<(String, u16), Fault> {
    let mut prefix = String::new();
    for (letter, is_set) in
        [('i', flags.ignores_case), ('s', flags.dot_is_any), ('m', flags.by_line), ('U', flags.is_lazy)]
    {
        prefix.extend(is_set.then_some(letter));
    }
    if !prefix.is_empty() {
        prefix = format!("(?{prefix})");
    }
    if flags.is_anchored {
        prefix.push_str(r"\A(?:");
    }
    let mut translator = Translator { pattern, at: 0, is_extended: flags.is_extended, out: Translation::new(&prefix) };
    while translator.at < pattern.len() {
        translator.step()?;
    }
    if translator.out.depth() == 0 && flags.is_anchored {
        translator.out.push(pattern.len(), ")");
    }
    translator.out.finish(pattern.len())
}

struct Translator<'a> {
    pattern: &'a [u8],
    at: usize,
    is_extended: bool,
    out: Translation,
}

impl<'a> Translator<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.pattern[self.at..]
    }

    fn step(&mut self) -> Result<(), Fault> {
        let at = self.at;
        let octet = self.pattern[at];
        self.at += 1;
        match octet {
            b'\\' => return self.escape(at),
            b'[' => return self.class(at),
            b'(' => return self.group(at),
            b')' => {
                if !self.out.close(at) {
                    return Err(bad(at, "')' without '('"));
                }
            }
            b'|' => self.out.mark(at, "|"),
            b'^' => self.out.mark(at, "^"),
            b'$' => self.out.mark(at, "$"),
            b'.' => self.out.piece(at, "."),
            b'*' => return self.repeat(at, "*"),
            b'+' => return self.repeat(at, "+"),
            b'?' => return self.repeat(at, "?"),
            b'{' => match interval(&self.pattern[at..]) {
                Some(inside) => {
                    self.at += inside.len() + 1;
                    return self.repeat(at, &format!("{{{inside}}}"));
                }
                None => self.out.literal(at, octet),
            },
            b' ' | b'\t'..=b'\r' if self.is_extended => {}
            b'#' if self.is_extended => {
                let end = self.rest().iter().position(|&octet| octet == b'\n');
                self.at += end.unwrap_or(self.rest().len());
            }
            other => self.out.literal(at, other),
        }
        Ok(())
    }

    /// An operator, optionally followed by `?`.
    fn repeat(&mut self, at: usize, operator: &str) -> Result<(), Fault> {
        if self.out.is_repeated() && self.out.can_repeat() {
            return Err(bad(at, "a repetition of a repetition"));
        }
        match self.rest().first() {
            Some(b'?') => {
                self.at += 1;
                self.out.repeat(at, &format!("{operator}?"))
            }
            Some(b'+') => Err(unsupported(at, "a possessive repetition")),
            _ => self.out.repeat(at, operator),
        }
    }

    fn group(&mut self, at: usize) -> Result<(), Fault> {
        match self.rest() {
            [b'?', rest @ ..] => {
                self.at += 1;
                self.special_group(at, rest)
            }
            [b'*', b'A'..=b'Z' | b'a'..=b'z' | b':', ..] => Err(unsupported(at, "a verb in '(*...)'")),
            _ => {
                self.out.open(at, "(", true);
                Ok(())
            }
        }
    }

    /// A group that starts with `(?`, and the rest.
    fn special_group(&mut self, at: usize, rest: &[u8]) -> Result<(), Fault> {
        let named = |prefix: usize, close: u8| rest[prefix..].iter().position(|&octet| octet == close);
        let name_bytes = match rest {
            [b':', ..] => {
                self.at += 1;
                self.out.open(at, "(?:", false);
                return Ok(());
            }
            [b'#', comment @ ..] => {
                let Some(end) = comment.iter().position(|&octet| octet == b')') else {
                    return Err(bad(at, "a comment without ')'"));
                };
                self.at += end + 2;
                return Ok(());
            }
            [b'=' | b'!' | b'*', ..] | [b'<', b'=' | b'!' | b'*', ..] => {
                return Err(unsupported(at, "look-around"));
            }
            [b'>', ..] => return Err(unsupported(at, "an atomic group")),
            [b'|', ..] => return Err(unsupported(at, "a branch reset")),
            [b'(', ..] => return Err(unsupported(at, "a conditional group")),
            [b'C', ..] => return Err(unsupported(at, "a callout")),
            [b'P', b'=', ..] => return Err(unsupported(at, "a back-reference")),
            [b'R' | b'&' | b'0'..=b'9' | b'+', ..] | [b'-', b'0'..=b'9', ..] | [b'P', b'>', ..] => {
                return Err(unsupported(at, "recursion"));
            }
            [b'P', b'<', ..] => named(2, b'>').map(|end| end + 3),
            [b'<', ..] => named(1, b'>').map(|end| end + 2),
            [b'\'', ..] => named(1, b'\'').map(|end| end + 2),
            _ => return self.flags(at, rest),
        };
        let Some(name_bytes) = name_bytes else { return Err(bad(at, "an unterminated group name")) };
        self.at += name_bytes;
        // Group names are never used.
        self.out.open(at, "(", true);
        Ok(())
    }

    /// Flags: `(?i)` and `(?i-s:`.
    fn flags(&mut self, at: usize, rest: &[u8]) -> Result<(), Fault> {
        let end =
            rest.iter().position(|octet| !matches!(octet, b'i' | b's' | b'm' | b'U' | b'-')).unwrap_or(rest.len());
        let flags = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        match rest.get(end) {
            Some(b')') if end > 0 => {
                self.at += end + 1;
                self.out.mark(at, &format!("(?{flags})"));
                Ok(())
            }
            Some(b':') => {
                self.at += end + 1;
                self.out.open(at, &format!("(?{flags}:"), false);
                Ok(())
            }
            Some(b'x' | b'n' | b'J' | b'a' | b'^') => {
                Err(unsupported(at, "a flag other than i, m, s and U in '(?...)'"))
            }
            _ => Err(bad(at, "unknown text after '(?'")),
        }
    }

    fn escape(&mut self, at: usize) -> Result<(), Fault> {
        let Some(&octet) = self.rest().first() else { return Err(bad(at, "ends with a backslash")) };
        self.at += 1;
        let anchor = match octet {
            b'b' => r"\b",
            b'B' => r"\B",
            b'A' => r"\A",
            b'z' | b'Z' => r"\z",
            _ => "",
        };
        if !anchor.is_empty() {
            self.out.mark(at, anchor);
            return Ok(());
        }
        let text = match octet {
            b'Q' => {
                self.quoted(at);
                return Ok(());
            }
            b'E' => return Ok(()),
            b'R' => r"(?:\r\n|[\n\x0b\x0c\r\x85])",
            b'N' => r"[^\n]",
            b'C' => r"(?s:.)",
            b'1'..=b'9' | b'g' | b'k' => return Err(unsupported(at, "a back-reference")),
            b'G' => return Err(unsupported(at, r"\G")),
            b'K' => return Err(unsupported(at, r"\K")),
            b'X' | b'p' | b'P' => return Err(unsupported(at, "a Unicode property")),
            _ => {
                let Some(class) = class_escape(octet) else {
                    let octet = self.octet(at, octet)?;
                    self.out.literal(at, octet);
                    return Ok(());
                };
                class
            }
        };
        self.out.piece(at, text);
        Ok(())
    }

    /// Quoted text: `\Q...\E`.
    fn quoted(&mut self, at: usize) {
        let rest = self.rest();
        let end = rest.windows(2).position(|found| found == b"\\E");
        let inside = &rest[..end.unwrap_or(rest.len())];
        for &octet in inside {
            self.out.literal(at, octet);
        }
        self.at += end.map_or(rest.len(), |end| end + 2);
    }

    /// The octet of an escape; the letter after the backslash has been read.
    fn octet(&mut self, at: usize, letter: u8) -> Result<u8, Fault> {
        Ok(match letter {
            b'a' => 0x07,
            b'e' => 0x1b,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => {
                let digits = self.rest().iter().take(2).take_while(|octet| matches!(octet, b'0'..=b'7')).count();
                let octet = self.rest()[..digits].iter().fold(0, |number, digit| number * 8 + (digit - b'0'));
                self.at += digits;
                octet
            }
            b'x' => self.hexadecimal(at)?,
            b'c' => {
                let Some(&letter) = self.rest().first() else { return Err(bad(at, r"\c without a letter")) };
                self.at += 1;
                letter.to_ascii_uppercase() ^ 0x40
            }
            letter if letter.is_ascii_alphanumeric() => return Err(bad(at, "an unknown escape")),
            other => other,
        })
    }

    fn hexadecimal(&mut self, at: usize) -> Result<u8, Fault> {
        let rest = self.rest();
        let (digits, octets) = if let Some(inside) = rest.strip_prefix(b"{") {
            let Some(end) = inside.iter().position(|&octet| octet == b'}') else {
                return Err(bad(at, r"\x{ without '}'"));
            };
            (&inside[..end], end + 2)
        } else {
            let digits = rest.iter().take(2).take_while(|octet| octet.is_ascii_hexdigit()).count();
            (&rest[..digits], digits)
        };
        self.at += octets;
        if digits.is_empty() {
            return Ok(0);
        }
        let number = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
        number.ok_or_else(|| bad(at, "not a hexadecimal octet"))
    }

    /// A class `[...]`, written octet by octet.
    fn class(&mut self, begin: usize) -> Result<(), Fault> {
        self.out.begin_piece();
        self.out.push(begin, "[");
        if self.rest().starts_with(b"^") {
            self.at += 1;
            self.out.push(begin, "^");
        }
        let first = self.at;
        loop {
            let at = self.at;
            match *self.rest() {
                [] => return Err(bad(begin, "'[' without ']'")),
                [b']', ..] if at > first => break,
                [b'[', b':', ..] if self.rest().windows(2).any(|found| found == b":]") => self.named_class()?,
                [b'\\', b'Q' | b'E', ..] => return Err(unsupported(at, r"\Q in a class")),
                _ => self.range(begin)?,
            }
        }
        self.out.push(self.at, "]");
        self.at += 1;
        Ok(())
    }

    fn named_class(&mut self) -> Result<(), Fault> {
        let at = self.at;
        let name = &self.rest()[2..];
        let end = name.windows(2).position(|found| found == b":]").unwrap_or(name.len());
        let (not, bare) = match &name[..end] {
            [b'^', bare @ ..] => ("^", bare),
            bare => ("", bare),
        };
        let class = if bare == b"word" { Some("word") } else { class_name(bare) };
        let Some(class) = class else { return Err(bad(at, "unknown character class")) };
        self.at += end + 4;
        self.out.push(at, &format!("[:{not}{class}:]"));
        Ok(())
    }

    /// An octet, two octets with `-`, or a class like `\d`.
    fn range(&mut self, begin: usize) -> Result<(), Fault> {
        let at = self.at;
        let Some(low) = self.element(begin)? else { return Ok(()) };
        let before = self.at;
        if let [b'-', next, ..] = *self.rest()
            && next != b']'
        {
            self.at += 1;
            let out_bytes = self.out.text.len();
            if let Some(high) = self.element(begin)? {
                if high < low {
                    return Err(bad(at, "a range that ends before it begins"));
                }
                self.out.push_octet(at, low);
                self.out.push(at, "-");
                self.out.push_octet(at, high);
                return Ok(());
            }
            // After `-` came a class: each is literal.
            debug_assert!(self.out.text.len() > out_bytes && self.at > before);
            self.out.push_octet(at, b'-');
        }
        self.out.push_octet(at, low);
        Ok(())
    }

    /// An octet of a class; `None` if it was itself a class, which has been written.
    fn element(&mut self, begin: usize) -> Result<Option<u8>, Fault> {
        let at = self.at;
        let Some((&octet, rest)) = self.rest().split_first() else { return Err(bad(begin, "'[' without ']'")) };
        self.at += 1;
        if octet != b'\\' {
            return Ok(Some(octet));
        }
        let Some(&letter) = rest.first() else { return Err(bad(at, "ends with a backslash")) };
        self.at += 1;
        match letter {
            b'b' => Ok(Some(0x08)),
            b'p' | b'P' => Err(unsupported(at, "a Unicode property")),
            b'1'..=b'9' => Err(unsupported(at, "an octal number without a leading zero")),
            _ => match class_escape(letter) {
                Some(class) => {
                    self.out.push(at, class);
                    Ok(None)
                }
                None => self.octet(at, letter).map(Some),
            },
        }
    }
}

/// Class escapes, which have the same meaning inside brackets.
fn class_escape(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'd' => r"\d",
        b'D' => r"\D",
        b'w' => r"\w",
        b'W' => r"\W",
        b's' => r"\s",
        b'S' => r"\S",
        b'h' => r"[\t\x20\xa0]",
        b'H' => r"[^\t\x20\xa0]",
        b'v' => r"[\n\x0b\x0c\r\x85]",
        b'V' => r"[^\n\x0b\x0c\r\x85]",
        _ => return None,
    })
}
