//! POSIX regular expressions, extended and basic, with the extensions of glibc: `\<`, `\>`, `\b`, `\w`, `\s`, `` \`
//! ``, `\'`.
//!
//! One difference: of several matches at the same position POSIX takes the longest, the engine the first. The keys
//! that match are the same, but `$1` may differ (`(a|ab)(c|bcd)?`).

use super::translation::{Fault, Translation, bad, interval, unsupported};

#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    pub is_extended: bool,
    pub ignores_case: bool,
    /// `REG_NEWLINE`: `^` and `$` match at each line, `.` and `[^a]` do not match a newline.
    pub by_line: bool,
}

pub(super) fn translate(pattern: &[u8], flags: Flags) -> Result<(String, u16), Fault> {
    let prefix = match (flags.ignores_case, flags.by_line) {
        (true, true) => "(?im)",
        (true, false) => "(?is)",
        (false, true) => "(?m)",
        (false, false) => "(?s)",
    };
    let mut translator = Translator { pattern, at: 0, flags, out: Translation::new(prefix) };
    while translator.at < pattern.len() {
        translator.step()?;
    }
    translator.out.finish(pattern.len())
}

struct Translator<'a> {
    pattern: &'a [u8],
    at: usize,
    flags: Flags,
    out: Translation,
}

/// A piece of syntax, independent of the dialect.
enum Token {
    Open,
    Close,
    Or,
    Repeat(&'static str),
    Interval,
    Literal(u8),
}

impl Translator<'_> {
    fn rest(&self) -> &[u8] {
        &self.pattern[self.at..]
    }

    fn step(&mut self) -> Result<(), Fault> {
        let at = self.at;
        let octet = self.pattern[at];
        match octet {
            b'\\' => self.escape(),
            b'[' => self.bracket(),
            b'.' => {
                self.at += 1;
                self.out.piece(at, ".");
                Ok(())
            }
            b'^' if self.is_anchor_at_begin() => {
                self.at += 1;
                self.out.mark(at, "^");
                Ok(())
            }
            b'$' if self.is_anchor_at_end() => {
                self.at += 1;
                self.out.mark(at, "$");
                Ok(())
            }
            _ => {
                let token = match octet {
                    b'*' => Token::Repeat("*"),
                    b'(' if self.flags.is_extended => Token::Open,
                    b')' if self.flags.is_extended && self.out.depth() > 0 => Token::Close,
                    b'|' if self.flags.is_extended => Token::Or,
                    b'+' if self.flags.is_extended => Token::Repeat("+"),
                    b'?' if self.flags.is_extended => Token::Repeat("?"),
                    b'{' if self.flags.is_extended => Token::Interval,
                    other => Token::Literal(other),
                };
                self.token(at, 1, &token)
            }
        }
    }

    /// In a basic expression `^` is an anchor only at the beginning of an expression.
    fn is_anchor_at_begin(&self) -> bool {
        let before = &self.pattern[..self.at];
        self.flags.is_extended || before.is_empty() || before.ends_with(b"\\(") || before.ends_with(b"\\|")
    }

    fn is_anchor_at_end(&self) -> bool {
        let behind = &self.pattern[self.at + 1..];
        self.flags.is_extended || behind.is_empty() || behind.starts_with(b"\\)") || behind.starts_with(b"\\|")
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let at = self.at;
        let Some(&octet) = self.pattern.get(at + 1) else { return Err(bad(at, "ends with a backslash")) };
        let class = match octet {
            b'1'..=b'9' => return Err(unsupported(at, "a back-reference")),
            b'w' => r"\w",
            b'W' => r"\W",
            b's' => r"\s",
            b'S' => r"\S",
            b'<' => r"\b{start}",
            b'>' => r"\b{end}",
            b'b' => r"\b",
            b'B' => r"\B",
            b'`' => r"\A",
            b'\'' => r"\z",
            _ => "",
        };
        if !class.is_empty() {
            self.at += 2;
            self.out.piece(at, class);
            return Ok(());
        }
        let is_basic = !self.flags.is_extended;
        let token = match octet {
            b'(' if is_basic => Token::Open,
            b')' if is_basic => Token::Close,
            b'|' if is_basic => Token::Or,
            b'+' if is_basic => Token::Repeat("+"),
            b'?' if is_basic => Token::Repeat("?"),
            b'{' if is_basic => Token::Interval,
            other => Token::Literal(other),
        };
        self.token(at, 2, &token)
    }

    fn token(&mut self, at: usize, octets: usize, token: &Token) -> Result<(), Fault> {
        self.at += octets;
        match *token {
            Token::Open => self.out.open(at, "(", true),
            Token::Close => {
                if !self.out.close(at) {
                    return Err(bad(at, "')' without '('"));
                }
            }
            Token::Or => self.out.mark(at, "|"),
            // If there is nothing to repeat, the star of a basic expression is literal.
            Token::Repeat(_) if !self.flags.is_extended && !self.out.can_repeat() => {
                self.out.literal(at, self.pattern[at + octets - 1]);
            }
            Token::Repeat(operator) => self.out.repeat(at, operator)?,
            Token::Interval => self.interval(at, octets)?,
            Token::Literal(octet) => self.out.literal(at, octet),
        }
        Ok(())
    }

    /// `{1,2}`, in a basic expression `\{1,2\}`; a missing first number is 0.
    fn interval(&mut self, at: usize, octets: usize) -> Result<(), Fault> {
        let close: &[u8] = if self.flags.is_extended { b"}" } else { b"\\}" };
        let Some(end) = self.rest().windows(close.len()).position(|found| found == close) else {
            return Err(bad(at, "'{' without '}'"));
        };
        let mut inside = [b"{", &self.rest()[..end], b"}"].concat();
        if inside.starts_with(b"{,") {
            inside.insert(1, b'0');
        }
        let Some(interval) = interval(&inside) else { return Err(bad(at, "not a valid interval in braces")) };
        self.out.repeat(at, &format!("{{{interval}}}"))?;
        self.at = at + octets + end + close.len();
        Ok(())
    }

    /// A bracket expression `[...]`, in which a backslash is literal.
    fn bracket(&mut self) -> Result<(), Fault> {
        let begin = self.at;
        self.at += 1;
        self.out.begin_piece();
        self.out.push(begin, "[");
        if self.rest().starts_with(b"^") {
            self.at += 1;
            self.out.push(begin, "^");
            if self.flags.by_line {
                self.out.push(begin, "\\n");
            }
        }
        let first = self.at;
        loop {
            let at = self.at;
            match *self.rest() {
                [] => return Err(bad(begin, "'[' without ']'")),
                [b']', ..] if at > first => break,
                [b'[', b':', ..] => self.class()?,
                _ => self.range(begin)?,
            }
        }
        self.out.push(self.at, "]");
        self.at += 1;
        Ok(())
    }

    /// A class such as `[:alpha:]`.
    fn class(&mut self) -> Result<(), Fault> {
        let at = self.at;
        let name = &self.rest()[2..];
        let Some(end) = name.windows(2).position(|found| found == b":]") else {
            return Err(bad(at, "'[:' without ':]'"));
        };
        let Some(class) = super::translation::class_name(&name[..end]) else {
            return Err(bad(at, "unknown character class"));
        };
        self.at += end + 4;
        self.out.push(at, &format!("[:{class}:]"));
        Ok(())
    }

    /// An octet, or two octets with `-`.
    fn range(&mut self, begin: usize) -> Result<(), Fault> {
        let at = self.at;
        let low = self.element(begin)?;
        self.out.push_octet(at, low);
        if let [b'-', next, ..] = *self.rest()
            && next != b']'
        {
            self.at += 1;
            let high = self.element(begin)?;
            if high < low {
                return Err(bad(at, "a range that ends before it begins"));
            }
            self.out.push(at, "-");
            self.out.push_octet(at, high);
        }
        Ok(())
    }

    /// An octet, which may be written `[.a.]` or `[=a=]`.
    fn element(&mut self, begin: usize) -> Result<u8, Fault> {
        let at = self.at;
        match *self.rest() {
            [b'[', mark @ (b'.' | b'='), octet, again, b']', ..] if mark == again => {
                self.at += 5;
                Ok(octet)
            }
            [b'[', b'.' | b'=', ..] => Err(bad(at, "unknown collating element")),
            [octet, ..] => {
                self.at += 1;
                Ok(octet)
            }
            [] => Err(bad(begin, "'[' without ']'")),
        }
    }
}
