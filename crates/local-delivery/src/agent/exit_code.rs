//! Interprets a program's exit code: sysexits(3), as in Postfix's pipe(8).
//!
//! | the program | reply |
//! |---|---|
//! | exits with 0 | delivered |
//! | exits with a code listed in the configuration | 451 4.3.0 |
//! | prints an enhanced code and a text, exits with any other code | 4xx or 5xx by that enhanced code |
//! | exits with 64 to 78 | by sysexits(3): 71 and 75 are temporary |
//! | exits with anything else | 554 5.3.0 |
//! | is ended by a signal, runs too long, cannot be started | 451 |

use stentor_mail::reply::{Enhanced, Reply};

/// Maximum length of output in a reply.
const TEXT_BYTES_MAX: usize = 400;

/// Exit code, enhanced code and meaning.
const CODES: [(i32, Enhanced, &str); 15] = [
    (64, Enhanced::new(5, 3, 0), "command line usage error"),
    (65, Enhanced::new(5, 6, 0), "data format error"),
    (66, Enhanced::new(5, 3, 0), "cannot open input"),
    (67, Enhanced::new(5, 1, 1), "user unknown"),
    (68, Enhanced::new(5, 1, 2), "host name unknown"),
    (69, Enhanced::new(5, 3, 0), "service unavailable"),
    (70, Enhanced::new(5, 3, 0), "internal software error"),
    (71, Enhanced::new(4, 3, 0), "system resource problem"),
    (72, Enhanced::new(5, 3, 0), "critical OS file missing"),
    (73, Enhanced::new(5, 2, 0), "cannot create user output file"),
    (74, Enhanced::new(5, 3, 0), "input/output error"),
    (75, Enhanced::new(4, 3, 0), "temporary failure"),
    (76, Enhanced::new(5, 5, 0), "remote error in protocol"),
    (77, Enhanced::new(5, 7, 0), "permission denied"),
    (78, Enhanced::new(5, 3, 5), "local configuration error"),
];

/// The reply to an exit code other than 0, with the program's output.
pub fn refusal(code: i32, output: &[u8], deferred: &[i32]) -> Reply {
    let text = text(output);
    let known = CODES.iter().find(|(known, ..)| *known == code);
    if deferred.contains(&code) {
        let meaning = known.map_or_else(|| format!("exit code {code}"), |(_, _, meaning)| (*meaning).to_owned());
        return reply(Enhanced::new(4, 3, 0), &meaning, &text);
    }
    if let Some(said) = Enhanced::parse(&text).filter(|said| said.class != 2) {
        let rest = text.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
        let meaning = if rest.is_empty() { format!("exit code {code}") } else { String::new() };
        return reply(said, &meaning, rest);
    }
    match known {
        Some((_, enhanced, meaning)) => reply(*enhanced, meaning, &text),
        None => reply(Enhanced::new(5, 3, 0), &format!("exit code {code}"), &text),
    }
}

/// The reply for a program that did not exit by itself.
pub fn broken(what: &str, output: &[u8]) -> Reply {
    reply(Enhanced::new(4, 3, 0), what, &text(output))
}

fn reply(enhanced: Enhanced, meaning: &str, text: &str) -> Reply {
    let code = if enhanced.class == 4 { 451 } else { 554 };
    let code = if enhanced == Enhanced::new(5, 1, 1) { 550 } else { code };
    let text = match (meaning, text) {
        ("", text) => text.to_owned(),
        (meaning, "") => format!("Command failed: {meaning}"),
        (meaning, text) => format!("Command failed: {meaning}: {text}"),
    };
    Reply::new(code, enhanced, text)
}

/// The program's output as one line.
fn text(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(&output[..output.len().min(TEXT_BYTES_MAX)]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32, output: &str) -> String {
        refusal(code, output.as_bytes(), &[1]).to_string()
    }

    #[test]
    fn each_code_of_sysexits_has_its_meaning() {
        for (code, enhanced, _) in CODES {
            assert_eq!(enhanced.class == 4, [71, 75].contains(&code), "{code}");
        }
        assert_eq!(said(75, ""), "451 4.3.0 Command failed: temporary failure");
        assert_eq!(said(67, ""), "550 5.1.1 Command failed: user unknown");
        assert_eq!(said(77, "no\nway\n"), "554 5.7.0 Command failed: permission denied: no way");
        assert_eq!(said(78, ""), "554 5.3.5 Command failed: local configuration error");
    }

    #[test]
    fn others_are_final_unless_they_are_listed() {
        assert_eq!(said(2, ""), "554 5.3.0 Command failed: exit code 2");
        assert_eq!(said(1, "busy"), "451 4.3.0 Command failed: exit code 1: busy");
        assert_eq!(said(255, "x"), "554 5.3.0 Command failed: exit code 255: x");
        assert_eq!(refusal(77, b"", &[77]).to_string(), "451 4.3.0 Command failed: permission denied");
    }

    #[test]
    fn an_enhanced_code_in_the_output_counts() {
        assert_eq!(said(2, "4.2.2 over quota\n"), "451 4.2.2 over quota");
        assert_eq!(said(75, "5.7.1 not you"), "554 5.7.1 not you");
        assert_eq!(said(2, "5.1.1"), "550 5.1.1 Command failed: exit code 2");
        assert_eq!(said(2, "2.0.0 fine"), "554 5.3.0 Command failed: exit code 2: 2.0.0 fine");
        assert_eq!(said(2, "4.2 x"), "554 5.3.0 Command failed: exit code 2: 4.2 x");
    }

    #[test]
    fn output_stays_on_one_line() {
        let reply = said(70, &format!("a\r\n250 ok\r\n\u{1b}[31m{}", "x".repeat(10_000)));
        assert!(reply.starts_with("554 5.3.0 Command failed: internal software error: a 250 ok ?[31mxxx"), "{reply}");
        assert!(reply.len() <= 510 && !reply.contains('\n'), "{reply}");
    }
}
