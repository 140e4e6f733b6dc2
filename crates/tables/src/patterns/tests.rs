use std::fmt::Write as _;

use proptest::prelude::*;

use super::{Dialect, Match, Patterns};
use crate::diagnostic::{FileReport, LoadReport, Severity, TableProblem};

fn read(dialect: Dialect, text: &str) -> (Patterns, LoadReport) {
    let mut report = LoadReport::default();
    let patterns = Patterns::read(text.as_bytes(), dialect, &mut FileReport { file: "t", report: &mut report });
    (patterns, report)
}

fn value(patterns: &Patterns, key: &str) -> Option<(String, u32)> {
    let mut out = Vec::new();
    let (found, line) = patterns.get(key.as_bytes(), &mut out)?;
    let value = match found {
        Match::Literal(value) => value.to_vec(),
        Match::InBuffer => out,
    };
    Some((String::from_utf8(value).unwrap(), line))
}

fn answers(dialect: Dialect, text: &str, expected: &[(&str, Option<(&str, u32)>)]) -> LoadReport {
    let (patterns, report) = read(dialect, text);
    for (key, expected) in expected {
        assert_eq!(value(&patterns, key), expected.map(|(value, line)| (value.to_owned(), line)), "{key}");
    }
    report
}

fn places(report: &LoadReport) -> Vec<(u32, u32)> {
    report.diagnostics.iter().map(|found| (found.line, found.column)).collect()
}

/// Compares with the answers of Debian's postmap 3.7 for the same file.
#[test]
fn regexp_answers_as_postmap() {
    let text = "/^(a|ab)(c|bcd)(d*)$/ [$1][$2][${3}]\n/a{x/ foo\n/(foo/ no\n/[\\.]x/ bs\n!/e/ noe $1\nif /z/\n/zz/ Z2\n\
                endif junk\n/x(y)/  $$1 $1 $(1)z\nabc foo\n/nore/\n/\\<w\\>/ word\n/a\\.b/flagbad x\n/Q/i Qonly\n\
                /(m)|(n)/ [$1|$2]\n";
    let expected = [
        ("abcd", Some(("[a][bcd][]", 1))),
        ("exy", Some(("$1 y yz", 9))),
        ("\\x", Some(("bs", 4))),
        (".x", Some(("bs", 4))),
        ("zze", Some(("Z2", 7))),
        ("w", Some(("word", 12))),
        ("Q", Some(("Qonly", 14))),
        ("q e", None),
        ("nore", Some(("", 11))),
        ("m e", Some(("[m|]", 15))),
        ("n e", Some(("[|n]", 15))),
        ("ExY", Some(("$1 Y Yz", 9))),
    ];
    let report = answers(Dialect::Posix, text, &expected);
    assert!(!report.has_errors());
    assert_eq!(places(&report), [(2, 3), (3, 6), (5, 6), (8, 0), (10, 1), (11, 0), (13, 7)]);
}

#[test]
fn regexp_dialect_is_that_of_glibc() {
    let text = "/a{,2}b$/ q\n/a**c/ dd\n/x{1}{2}/ e\n/^*d/ f\n/)/ paren\n/[[:upper:]]5/i up\n/[[.a.]-c]6/ col\n\
                /[^[:digit:]]7/ nd\n/(a|)8/ alt\n/\\(l\\)+/x bre\n/^a\\{2\\}9/x br2\n/*z/x star\n/é[é]/ uml\n/\\ns/ bsn\n\
                /a|*b/ none\n/a+?k/ lz\n|[]/]0| slash\n/a&&b[&&~~-]/ sets\n";
    let expected = [
        ("aab", Some(("q", 1))),
        ("ac", Some(("dd", 2))),
        ("xx", Some(("e", 3))),
        ("d", None),
        (")", Some(("paren", 5))),
        ("A5", Some(("up", 6))),
        ("a5", None),
        ("b6", Some(("col", 7))),
        ("-7", Some(("nd", 8))),
        ("x8", Some(("alt", 9))),
        ("aa9", Some(("br2", 11))),
        ("*z", Some(("star", 12))),
        ("é\u{e9}", Some(("uml", 13))),
        ("ns", Some(("bsn", 14))),
        ("aak", Some(("lz", 16))),
        ("]0", Some(("slash", 17))),
        ("a&&b-", Some(("sets", 18))),
    ];
    assert_eq!(places(&answers(Dialect::Posix, text, &expected)), [(4, 3), (15, 4)]);
}

#[test]
fn a_second_pattern_and_nested_blocks() {
    let text = "/^a/!/b$/ not b\nif /^a/\nif !/c/\n/b/ no c\nendif\n/b/ with c\nendif\n! /a/ none\nif /x\n/y/\n";
    let expected = [
        ("ax", Some(("not b", 1))),
        ("ab", Some(("no c", 4))),
        ("acb", Some(("with c", 6))),
        ("x", Some(("none", 8))),
        ("za", None),
    ];
    assert_eq!(places(&answers(Dialect::Posix, text, &expected)), [(9, 4), (10, 0)]);
}

#[test]
fn pcre_dialect() {
    let text = "/^x(b|bb)(b*)$/ [$1][$2]\n/foo\\<bar/ lt\n/^(?<n>a+?)(a*)$/ <$1|$2>\n/^\\Q.*\\E\\d{2}$/ quoted\n/a{b/ brace\n\
                /^[\\w.-]+@[[:^digit:]\\]]$/ class\n/x y # c/x xy\n/k/A anchored\n/^(g+)/U $1\n/(?i:T)(?-i)u/i tu\n\
                /\\x41\\x{42}\\x43/i ABC\n/[^[]p/ bracket\n/[a-\\d]q/ dash\n/\\/slash/ slash\n";
    let expected = [
        ("xbbb", Some(("[b][bb]", 1))),
        ("foo<bar", Some(("lt", 2))),
        ("aaa", Some(("<a|aa>", 3))),
        (".*12", Some(("quoted", 4))),
        ("za{b", Some(("brace", 5))),
        ("a.b-c@]", Some(("class", 6))),
        ("a@b]", None),
        ("xy", Some(("xy", 7))),
        ("kx", Some(("anchored", 8))),
        ("zk", None),
        ("ggg", Some(("g", 9))),
        ("zTu", Some(("tu", 10))),
        ("zTU", None),
        ("ABC", Some(("ABC", 11))),
        ("[p", None),
        ("-p", Some(("bracket", 12))),
        ("-q", Some(("dash", 13))),
        ("/slash", Some(("slash", 14))),
    ];
    assert_eq!(places(&answers(Dialect::Pcre, text, &expected)), []);
}

#[test]
fn what_is_not_linear_is_an_error_with_its_column() {
    for (pattern, column) in [
        ("ab(?=c)", 4),
        ("a(?!b)", 3),
        ("(?<=a)b", 2),
        ("(?<!a)b", 2),
        ("(a)\\1", 5),
        ("(?P<n>a)(?P=n)", 10),
        ("a\\k<n>", 3),
        ("(?>a)", 2),
        ("a*+b", 3),
        ("(?|a|b)", 2),
        ("a(?R)?", 3),
        ("(?(1)a)", 2),
        ("(*COMMIT)a", 2),
        ("\\p{L}", 2),
        ("a\\Kb", 3),
    ] {
        let (_, report) = read(Dialect::Pcre, &format!("/{pattern}/ x\n"));
        let found = &report.diagnostics[0];
        assert_eq!((found.line, found.column, found.severity()), (1, column, Severity::Error), "{pattern}");
        assert!(matches!(found.problem, TableProblem::UnsupportedPattern(_)), "{found}");
    }
    let (_, report) = read(Dialect::Posix, "/x/ y\n/(a)b\\1/ x\n");
    assert_eq!(
        report.diagnostics[0].to_string(),
        "t:2:6: error: pattern: a back-reference cannot be matched in linear time; rewrite the pattern without it"
    );
}

#[test]
fn repetitions_that_explode_are_an_error() {
    let (_, report) = read(Dialect::Posix, "/((((a{1000}){1000}){1000}){1000})/ $1\n");
    assert!(report.has_errors());
    let (_, report) = read(Dialect::Pcre, "/((((a{1000}){1000}){1000}){1000})/ x\n");
    assert!(report.has_errors());
}

proptest! {
    /// Works for any number of sets, with blocks that cross them.
    #[test]
    fn the_first_rule_wins(
        rules in proptest::collection::vec(("[!]?", "[a-c]{1,3}", 0..9_u8), 1..150),
        key in "[a-d]{0,5}",
    ) {
        let (mut text, mut expected, mut block) = (String::new(), None, None);
        for (number, (not, pattern, kind)) in rules.iter().enumerate() {
            let holds = key.contains(pattern.as_str()) != (not == "!");
            if *kind == 0 && block.is_none() {
                writeln!(text, "if {not}/{pattern}/").unwrap();
                block = Some(holds);
            } else if *kind == 1 && block.take().is_some() {
                text += "endif\n";
            } else {
                writeln!(text, "{not}/{pattern}/ {number}").unwrap();
                if holds && block != Some(false) && expected.is_none() {
                    expected = Some((number.to_string(), number as u32 + 1));
                }
            }
        }
        let (patterns, _) = read(Dialect::Pcre, &text);
        prop_assert_eq!(value(&patterns, &key), expected);
    }

    /// Checks that any literal octet is found in both dialects.
    #[test]
    fn literals_mean_themselves(text in "[ -~é]{1,20}", other in "[ -~]{1,20}") {
        let escaped: String = text.chars().flat_map(|letter| {
            let needs = letter.is_ascii_punctuation();
            needs.then_some('[').into_iter().chain(std::iter::once(letter)).chain(needs.then_some(']'))
        }).collect();
        // A lone `^` in brackets would negate, and the delimiter ends a pattern even in brackets.
        let escaped = escaped.replace("[^]", "\\^").replace("[\\]", "\\\\");
        for dialect in [Dialect::Posix, Dialect::Pcre] {
            let (patterns, report) = read(dialect, &format!("\u{1}^{escaped}$\u{1}i yes\n"));
            prop_assert_eq!(&report.diagnostics, &[]);
            prop_assert_eq!(value(&patterns, &text), Some(("yes".into(), 1)));
            prop_assert_eq!(value(&patterns, &other).is_some(), text == other);
        }
    }

    #[test]
    fn no_rules_are_too_much(text in "([/!]|if |endif|\n|[\\\\\\[\\](){}^$.*+?|:=<>a1-]|[ -~]){0,60}", key in "[ -~]{0,9}") {
        for dialect in [Dialect::Posix, Dialect::Pcre] {
            let (patterns, report) = read(dialect, &text);
            value(&patterns, &key);
            for found in &report.diagnostics {
                prop_assert!(found.line as usize <= text.lines().count());
            }
        }
    }
}
